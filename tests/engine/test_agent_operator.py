"""Runs whose children agents make: what enters, what is booked, and what ends an agent."""

import math
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import app.bootstrap.agents
from app.adapters.isolated import IsolatedCommand
from app.adapters.model.per_run import Models
from app.adapters.queue.inline import InlineExecutor
from app.adapters.sandbox import isolated_command
from app.adapters.sandbox.isolated_command import run_isolated
from app.adapters.store.leases import Withdrawal
from app.bootstrap.agents import agents
from app.config.rules import rules_of
from app.config.settings import stored_settings
from app.domain.evaluation import Trial
from app.domain.events import EventKind
from app.domain.operator import Role
from app.domain.operators.agent import AGENT
from app.domain.problem import EditRules, Evaluator, Job, Problem
from app.domain.program import Program, ProgramId
from app.domain.run import Run, RunState
from app.domain.search.budget import Budget
from app.engine import lifecycle, steps
from app.engine.briefing import first_prompts, unmeasured_brief
from app.engine.context import Context, Pace
from app.ports.protocols import Misconfigured, Stop, Stopped
from tests.engine.conftest import new_run, table, with_process
from tests.engine.executors import RecordedMessages, operator_replies
from tests.engine.toy import DIGEST, problem
from tests.model_endpoint import COMPLETION_TOKENS, PROMPT_TOKENS, Endpoint, serving

TOKENS = PROMPT_TOKENS + COMPLETION_TOKENS
STEP = """
import os, pathlib
file = pathlib.Path({file!r})
x = float(file.read_text().split("=")[1]) + 0.25
file.write_text(f"x = {{x}}\\n")
print("I moved x to", x, flush=True)
"""
ASK = """
import json, os, urllib.request, urllib.error
def ask(**body):
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode(),
        {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        return error.code
"""
ONE_FILE = STEP.format(file="program.py")


def run_here(isolated: IsolatedCommand, stop: Stop) -> int:
    """Runs the command of an agent as a child of this process, without any isolation."""
    listener = socket.create_server(("127.0.0.1", 0))
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    server = threading.Thread(target=isolated.serve, args=(listener,), daemon=True)
    server.start()
    variables = {
        name: text.replace("{address}", address) for name, text in isolated.addresses.items()
    }
    path = f"{isolated.environment['PATH']}:{os.environ['PATH']}"
    try:
        with subprocess.Popen(
            isolated.command,
            cwd=isolated.folder,
            env={**isolated.environment, **variables, "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process:
            assert process.stdout is not None
            with stop.then(process.kill):
                for line in process.stdout:
                    isolated.show(line)
                status = process.wait()
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        server.join()
    if stop.asked:
        raise Stopped("the command was asked to stop")
    return status


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serving() as found:
        yield found


@pytest.fixture(autouse=True)
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app.bootstrap.agents, "run_isolated", run_here)


@dataclass(frozen=True)
class NewSettings:
    """What a run of agents is begun with.

    Attributes:
      script: What each agent runs.
      url: Of the model that agents ask; "" for none.
    """

    script: str
    url: str = ""
    proposals: int = 1
    tokens: int | None = None
    agent_tokens: int = 1_000

    def settings(self) -> dict[str, Any]:
        agent = {
            "command": ["python3", "-c", self.script],
            "tokens": self.agent_tokens,
            "network": bool(self.url),
        }
        llm = {"model": "m", "base_url": self.url, "max_tokens": 100} if self.url else {}
        queue = {"generating": 1, "evaluating": 1}
        given = {"agent": agent, "llm": llm, "queue": queue, "search": {"islands": 1}}
        return stored_settings(given).model_dump(mode="json")


def proposed(ctx: Context, run: Run) -> tuple[int, ...]:
    """Brings a run to its first proposal; returns the message of its step `generate`."""
    while True:
        step, subjects, _ = ctx.executor.take()  # type: ignore[attr-defined]
        with ctx.store.begin() as tx:
            if step == "generate" and tx.runs.get(run.id).proposals:
                return tuple(subjects)
        table(ctx)[step](*subjects)


@contextmanager
def _kept(withdrawal: Withdrawal) -> Iterator[Withdrawal]:
    yield withdrawal


def prepare(trial: Trial, programs: Mapping[ProgramId, Program]) -> Job:
    """Hands the file `a.py` of a program of several files to the toy sandbox."""
    sources = tuple((".py", programs[p].focused("a.py").source.encode()) for p in trial.players)
    return Job(Evaluator(DIGEST, {"evaluator.py": b"open(path)"}), trial.stage, sources)


SEVERAL = replace(
    problem(),
    seeds=(Program.of_files({"a.py": "x = 0.0\n", "b.py": "y = 1\n"}),),
    edit=EditRules(evolve=("*.py",)),
    fixed={"README.md": b"# Fixed\n"},
    prepare=prepare,
)


def begun(ctx: Context, toy: Problem, new: NewSettings) -> tuple[Context, Run]:
    """Returns a context with the agents of a run, and the run, which has begun."""
    run = replace(
        new_run(toy, budget=new.proposals),
        operators={AGENT.name: 1.0},
        settings=new.settings(),
        budget=Budget(new.proposals, tokens=new.tokens),
    )
    ctx = replace(
        ctx,
        model=Models(ctx.store, agent=agents(lambda run: toy, ctx.sandbox, ctx.store)),
        problem=lambda digest: toy,
        operators={**ctx.operators, AGENT.name: AGENT},
    )
    return ctx, lifecycle.start(ctx, toy, run)


def ended(ctx: Context, run: Run) -> Run:
    assert isinstance(ctx.executor, InlineExecutor)
    ctx.executor.drain(table(ctx), lambda: False)
    steps.produce(ctx, run.id)
    ctx.executor.drain(table(ctx), lambda: False)
    with ctx.store.begin() as tx:
        return tx.runs.get(run.id)


def failures(ctx: Context, run: Run) -> list[Mapping[str, Any]]:
    with ctx.store.begin() as tx:
        return [event.data for event in tx.events.read(run.id, kinds=(EventKind.FAILED,))]


@pytest.mark.parametrize(("toy", "file"), [(problem(), "program.py"), (SEVERAL, "a.py")])
def test_the_children_of_agents_are_measured_and_enter(
    ctx: Context, toy: Problem, file: str
) -> None:
    ctx, run = begun(ctx, toy, NewSettings(STEP.format(file=file), proposals=4))

    run = ended(ctx, run)

    assert run.state is RunState.FINISHED
    assert failures(ctx, run) == []
    with ctx.store.begin() as tx:
        best = tx.history.best(run.id)
    assert best is not None
    assert best.fitness is not None
    assert best.fitness > -math.pi


def test_a_task_names_the_files_and_shows_none() -> None:
    program = SEVERAL.seeds[0]
    rules = rules_of("map_elites", NewSettings("").settings())
    brief = unmeasured_brief(replace(SEVERAL, context={"c.py": "z = 7\n"}), rules, 0, program, ())

    [task] = first_prompts(AGENT, brief)

    assert "- a.py\n- b.py\n\nScore" in task.user
    assert not {"x = 0.0", "y = 1", "z = 7"} & set(task.user.splitlines())
    assert task.role is Role.AGENT
    assert task.program is not None
    assert task.program.id == program.id


def test_a_failure_has_the_output_of_its_agent(ctx: Context) -> None:
    script = "print('There is nothing to do.')"
    ctx, run = begun(ctx, problem(), NewSettings(script, proposals=1))

    run = ended(ctx, run)

    [failed] = failures(ctx, run)
    assert failed["failure"] == "unchanged"
    with ctx.store.begin() as tx:
        found = tx.history.usual_failure(run.id, "unchanged", 1)
    assert found is not None
    assert "There is nothing to do." in found.newest


def test_where_nothing_isolates_the_run_is_paused_with_the_remedy(
    ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app.bootstrap.agents, "run_isolated", run_isolated)
    monkeypatch.setattr(isolated_command, "_LEVELS", ())
    ctx, run = begun(ctx, problem(), NewSettings(ONE_FILE, proposals=1))

    run = ended(ctx, run)

    assert run.state is RunState.PAUSED
    assert "nothing here keeps an agent apart" in run.reason
    assert "leave `agent` out of search.operators" in run.reason


def test_a_model_without_an_address_is_no_model_for_agents(
    ctx: Context, endpoint: Endpoint
) -> None:
    ctx, run = begun(ctx, problem(), NewSettings(ONE_FILE, endpoint.url))
    asked, made = run.settings, agents(lambda run: problem(), ctx.sandbox, ctx.store)
    human = {**asked["llm"], "provider": "human", "base_url": None}
    role = {"agent": {"model": "m", "base_url": endpoint.url}}

    with pytest.raises(Misconfigured, match="no address that an agent could ask"):
        made(replace(run, settings={**asked, "llm": human}))

    offline = {**asked, "llm": human, "agent": {**asked["agent"], "network": False}}
    assert made(replace(run, settings=offline)) is not None
    assert made(replace(run, settings={**asked, "llm": {**human, "roles": role}})) is not None


def test_the_tokens_of_an_agent_are_booked_for_its_run(ctx: Context, endpoint: Endpoint) -> None:
    script = ASK + "ask(messages=[])\nask(messages=[])\n" + ONE_FILE
    ctx, run = begun(ctx, problem(), NewSettings(script, endpoint.url, proposals=2))

    run = ended(ctx, run)

    assert len(endpoint.asked) == 4
    assert run.tokens == 4 * TOKENS
    # The requests of an agent say nothing about the length of the prompts of other operators.
    assert run.longest_prompt_tokens == 0


def test_agents_never_take_more_than_the_budget_of_their_run(
    ctx: Context, endpoint: Endpoint
) -> None:
    script = ASK + "while ask(messages=[], n=9) == 200:\n    pass\n" + ONE_FILE
    new = NewSettings(script, endpoint.url, proposals=9, tokens=1_500, agent_tokens=400)
    ctx, run = begun(ctx, problem(), new)

    run = ended(ctx, run)

    assert run.state is RunState.FINISHED
    assert "budget of 1500 tokens spent" in run.reason
    assert 2 * TOKENS < run.tokens <= 1_500
    assert run.proposals < 9
    assert all(0 < body["max_tokens"] <= 100 and "n" not in body for body in endpoint.bodies)


def test_an_agent_has_its_draft_measured(ctx: Context) -> None:
    script = ONE_FILE + (
        "import subprocess\n"
        "print(subprocess.run(['evoq', 'try'], capture_output=True, text=True))\n"
    )
    ctx = replace(ctx, executor=RecordedMessages())
    ctx, run = begun(ctx, problem(), NewSettings(script, proposals=1))
    message = proposed(ctx, run)

    steps.generate(ctx, *message)

    with ctx.store.begin() as tx:
        text = str(operator_replies(tx, *message))
    assert '"score": -2.89' in text
    assert '"tries_left": 2' in text


def test_an_agent_holds_no_place_at_a_model(ctx: Context) -> None:
    def take_place(run: Run) -> Any:
        raise AssertionError("an agent took a place at the model")

    ctx, run = begun(ctx, problem(), NewSettings(ONE_FILE, proposals=1))

    assert ended(with_process(ctx, take_place=take_place), run).state is RunState.FINISHED


def test_an_agent_of_a_worker_that_died_after_it_does_not_run_again(
    ctx: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = tmp_path / "count"
    script = f"open({str(count)!r}, 'a').write('1')\n" + ONE_FILE
    ctx = replace(ctx, executor=RecordedMessages(), pace=Pace(lease_seconds=0.0, retry_seconds=0.0))
    ctx, run = begun(ctx, problem(), NewSettings(script, proposals=1))
    message = proposed(ctx, run)

    def die(*arguments: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr("app.engine.generate.enter_children", die)
        with pytest.raises(SystemExit):
            steps.generate(ctx, *message)
    steps.generate(ctx, *message)

    assert count.read_text() == "1"
    assert ctx.executor.messages[0][0] == "evaluate"  # type: ignore[attr-defined]


def test_an_agent_whose_proposal_is_withdrawn_is_ended_and_its_tokens_are_booked(
    ctx: Context, endpoint: Endpoint, tmp_path: Path
) -> None:
    ready = tmp_path / "ready"
    script = ASK + f"ask(messages=[])\nopen({str(ready)!r}, 'w')\nimport time\ntime.sleep(300)\n"
    ctx = replace(ctx, executor=RecordedMessages(), pace=Pace(retry_seconds=0.0))
    ctx, run = begun(ctx, problem(), NewSettings(script, endpoint.url, proposals=1))
    message, withdrawal = proposed(ctx, run), Withdrawal()

    def keep_lease(kind: str, subject: int) -> Any:
        return _kept(withdrawal)

    with ThreadPoolExecutor(1) as pool:
        generated = pool.submit(steps.generate, with_process(ctx, keep_lease=keep_lease), *message)
        while not ready.exists() and not generated.done():
            time.sleep(0.02)
        withdrawal.ask()
        generated.result(60)

    with ctx.store.begin() as tx:
        assert tx.runs.get(run.id).tokens == TOKENS
