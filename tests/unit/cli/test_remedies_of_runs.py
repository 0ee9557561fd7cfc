"""The advice of errors about a run, its model, its ledger and its problem's code, carried out."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import replace
from importlib.metadata import EntryPoint
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import app.cli.change
import app.cli.dashboard
import app.cli.play
import app.cli.run
import app.config.recipes
import app.reports.ledger_file
from app.adapters.model.choose import Providers
from app.adapters.model.providers import human
from app.adapters.model.providers.attempts import EndpointModel
from app.adapters.model.providers.event_loop import ModelLoop
from app.adapters.model.providers.gates import Gates
from app.adapters.model.providers.human import HumanModel
from app.adapters.model.providers.openai import OpenAIWire
from app.adapters.model.providers.presets import PRESETS
from app.adapters.model.providers.recorded import ReplayModel
from app.adapters.model.providers.spec import ModelSpec, ProcessLimits, model_spec
from app.adapters.model.providers.vllm_engine import VllmEngine, VllmLaunch
from app.adapters.problems import evaluator_result
from app.adapters.problems.described.description import Description
from app.adapters.problems.evaluator_result import Reader
from app.cli.output import Screen
from app.client import local_state
from app.client import target as targets
from app.config.layers import from_environment
from app.config.models import ModelSettings, Provider
from app.config.rules import rules_of
from app.dashboard import control
from app.dashboard.control import Control
from app.dashboard.reads import RunReader
from app.domain.evaluation import Trial
from app.domain.operator import Prompt, Role
from app.domain.problem import Outcome
from app.domain.program import Program
from app.domain.run import Run, RunState
from app.domain.search.recipes import RECIPES
from app.engine import inside, lifecycle
from app.engine.context import Context
from app.patterns import levels
from app.ports.protocols import Misconfigured, Unavailable
from app.reports.ledger_file import FORMAT, VERSION
from tests.engine.toy import problem
from tests.unit.cli.remedies import Row, is_carried_out, remedies, replace_everywhere, replaced
from tests.unit.config.test_changes import OPERATORS, begun

TENSOR = {"__object__": "tensor([1, 2])", "type": "Tensor"}
QUIET = Screen(json=False, quiet=True)
PROMPT = Prompt("", "Q", 1)
CHILD = Program("x = 2\n")


class Reached(Exception):
    """The step after the one that refused was reached."""


@contextmanager
def reaching() -> Iterator[None]:
    """Fails unless the step after the one that refuses is reached."""
    with pytest.raises(Reached):
        yield


def reach(*_: Any, **__: Any) -> Any:
    raise Reached


class Ledger:
    """A ledger that answers with these aggregates."""

    def __init__(self, **aggregates: Any) -> None:
        self._tx = SimpleNamespace(**aggregates)

    @contextmanager
    def begin(self) -> Iterator[Any]:
        yield self._tx


def holding(*names: str) -> Any:
    """Returns a ledger with runs of these names."""
    runs = SimpleNamespace(named=lambda name: begun() if name in names else None)
    return Ledger(runs=runs, completions=SimpleNamespace(replay=lambda run, asked: []))


def model(engine: str = "", **settings: Any) -> None:
    launched = VllmEngine(VllmLaunch(f"/models/{engine}", engine)) if engine else None
    built = Providers(holding(), {}.get, launched)
    built.model(ModelSettings(**settings), seed=1)
    built.close()


def keyed(environment: Mapping[str, str], **settings: Any) -> None:
    [choice] = ModelSettings(model="m", **settings).models_of(Role.GENERATOR)
    spec = model_spec(choice, environment.get)
    EndpointModel(OpenAIWire(spec), cast(Any, None)).complete([])


def by_person(folder: str, *, reply: str = "") -> None:
    """Asks a person, who has answered the earlier prompts with `reply`."""
    if reply:
        [waiting] = human.unanswered(Path(folder))
        human.answer(Path(folder), waiting.name, reply)
    person = HumanModel("me", Path(folder), wait_seconds=0, clock=lambda: 1e10)
    [completion] = person.complete([PROMPT])
    assert completion.text == reply


def kept_in(folder: str) -> None:
    try:
        by_person(folder)
    except Misconfigured:
        raise
    except Unavailable:
        assert human.unanswered(Path(folder))


def at_once(requests: int, most: int) -> None:
    """Sends so many requests to an endpoint, of which `most` may be in flight."""

    async def send() -> None:
        gates = Gates(ProcessLimits())
        loop = ModelLoop(gates, gates.close)
        spec = ModelSpec(
            *("m", 1.0, "http://127.0.0.1:9/v1"),
            preset=PRESETS[Provider.OPENAI],
            deadline_seconds=0.05,
            max_in_flight=most,
        )
        asking = EndpointModel(OpenAIWire(spec), loop)
        try:
            for _ in range(requests):
                await asking._acquire(1, again=False)
        finally:
            await gates.close()

    asyncio.run(send())


def with_recipe(*, installed: bool, around: bool = False) -> None:
    """Builds what a run needs of a recipe that a package provides."""
    point = EntryPoint("foreign", "app.domain.search.recipes:FOREIGN", app.config.recipes.GROUP)
    here = {"foreign": point} if installed else {}
    with (
        replaced(app.config.recipes, _installed=lambda: here),
        replaced(EntryPoint, load=lambda self: RECIPES["greedy"]),
    ):
        settings = {"nested": {"strategy": "foreign"}} if around else {}
        rules = rules_of("greedy" if around else "foreign", settings)
    run = SimpleNamespace(name="r", strategy="foreign", rules=rules, problem="d")
    if not around:
        Context.recipe(cast(Any, None), cast(Any, run))
        return
    ctx = SimpleNamespace(problem=lambda digest: problem())
    leased = SimpleNamespace(id=1, cohort=SimpleNamespace(members=[None]))
    tx = SimpleNamespace(proposals=SimpleNamespace(draw=reach))
    with suppress(Reached):
        inside._begin(*(cast(Any, each) for each in (ctx, tx, run, leased, None)))


def changed(*, meanwhile: bool) -> None:
    """Changes a run, which another command may have changed meanwhile."""
    ctx = SimpleNamespace(problem=lambda digest: problem(), operators=OPERATORS)
    with replaced(lifecycle, change=lambda ctx, run, revision: not meanwhile):
        app.cli.change.apply(cast(Any, ctx), begun(), {"llm.max_tokens": 100}, QUIET)


@contextmanager
def opened(run: Run) -> Iterator[None]:
    """Lets a command find a run."""

    @contextmanager
    def open_run(*_: Any) -> Iterator[Any]:
        yield SimpleNamespace(store=holding()), run

    with replaced(targets, open_run=open_run):
        yield


def resumed(*, deployed: bool) -> None:
    """Resumes a run of one process."""
    with pytest.MonkeyPatch.context() as patch, opened(_in_process()):
        for name, value in (("DATABASE", "postgresql://h/db"), ("REDIS", "redis://h")):
            patch.delenv(f"EVOQ_{name}_URL", raising=False)
            if deployed:
                patch.setenv(f"EVOQ_{name}_URL", value)
        replace_everywhere(patch, inside, "refusal", lambda store, run: None)
        replace_everywhere(patch, app.cli.change, "given", reach)
        with suppress(Reached):
            app.cli.run.resume("toy")


def _in_process() -> Run:
    return replace(begun(), in_process=True)


def let_go_on(*, workers: bool) -> None:
    """Resumes a run on the dashboard."""
    present = SimpleNamespace(generating=workers, evaluating=workers)
    paused = begun(state=RunState.PAUSED)
    ledger = Ledger(
        workers=SimpleNamespace(presence=lambda: present),
        runs=SimpleNamespace(get=lambda run: paused),
    )
    with (
        replaced(control, refusal=lambda store, run: None),
        replaced(lifecycle, resume=lambda ctx, run, keep_leases: True),
    ):
        Control(cast(Any, SimpleNamespace(store=ledger))).resume(paused)


def played(players: int) -> None:
    with (
        opened(begun()),
        replaced(targets, stored_problem=lambda *_: replace(problem(), players=players)),
        replaced(app.cli.play, _opponent=reach),
        suppress(Reached),
    ):
        app.cli.play.play("toy")


def shown_at(home: str | None = None, folder: str = ".") -> None:
    """Serves a dashboard of the runs of a folder, after a change to another one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in ("HOME", "DATABASE_URL", "REDIS_URL"):
            patch.delenv(f"EVOQ_{name}", raising=False)
        if home is not None:
            patch.setenv("EVOQ_HOME", home)
        replace_everywhere(patch, targets, "open_ledger", reach)
        with redirect_stdout(StringIO()), reaching():
            app.cli.dashboard.dashboard()


def begun_in(folder: str) -> str:
    """Returns a folder that a run was started in."""
    (Path(folder) / targets.HOME).mkdir(parents=True, exist_ok=True)
    return folder


def runs_of(home: str | None = None, folder: str = ".") -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        replace_everywhere(patch, targets, "open_ledger", reach)
        variables = {} if home is None else {"EVOQ_HOME": home}
        with (
            reaching(),
            targets.open_run("r", targets.find_target([from_environment(variables)])),
        ):
            pass


def locked(home: str) -> None:
    found = targets.find_target([from_environment({"EVOQ_HOME": home})]).home
    with local_state.up_lock(found):
        pass


def of_version(version: int, reads: int = VERSION) -> None:
    with replaced(app.reports.ledger_file, VERSION=reads):
        app.reports.ledger_file._require_version(FORMAT, version)


def described(players: int, **stage: Any) -> None:
    stages = [{"name": "play", **stage}]
    Description.model_validate({"seeds": {"a": "a.py"}, "stages": stages, "players": players})


def measured(metrics: Mapping[str, Any], *axes: str) -> None:
    """Reads what an evaluator returned; its failure is the error."""
    reader = Reader(seeds=(), verified=True, axes=axes)
    outcome = Outcome(json.dumps({"metrics": metrics, "artifacts": {}}).encode(), None)
    found = reader.interpret(Trial("evaluate", (CHILD.id,)), {CHILD.id: CHILD}, outcome)
    if found.failure is not None:
        raise ValueError(found.failure.detail)


def judged(better: Any) -> None:
    levels._better(lambda first, second: better, Path("first"), Path("second"))


RESUMED = "continue it in its embedded folder, or start another run"
ROWS = [
    Row(
        model,
        "no model for generator: name one, as --set llm.model=NAME",
        [lambda: model(model="m")],
    ),
    Row(
        lambda: model("tiny", provider="vllm", model="large"),
        "name that one, or give the model a base_url to ask a server",
        [
            lambda: model("tiny", provider="vllm", model="tiny"),
            lambda: model("tiny", provider="vllm", model="large", base_url="http://h/v1"),
        ],
    ),
    Row(
        lambda: by_person("answers"),
        "wait for a person: see `evoq answer`",
        [lambda: by_person("answers", reply="x = 3")],
    ),
    Row(
        lambda: kept_in("file/answers"),
        "set llm.answers to a folder that every worker can write",
        [lambda: kept_in("kept")],
    ),
    Row(
        lambda: keyed({}, provider="openai"),
        "set OPENAI_API_KEY where the workers are started, or give the model the base_url",
        [
            lambda: keyed({"OPENAI_API_KEY": "k"}, provider="openai"),
            lambda: keyed({}, base_url="http://127.0.0.1:9/v1"),
        ],
    ),
    Row(
        lambda: at_once(2, most=1),
        "raise llm.max_in_flight if the endpoint can do more",
        [lambda: at_once(2, most=2)],
    ),
    Row(
        lambda: ReplayModel("absent", holding("first")).complete([]),
        "to replay: see `evoq list-runs`",
        [lambda: ReplayModel("first", holding("first")).complete([])],
    ),
    Row(
        lambda: with_recipe(installed=False),
        "of run 'r' is not installed here: install the package that provides it",
        [lambda: with_recipe(installed=True)],
    ),
    Row(
        lambda: with_recipe(installed=False, around=True),
        "the runs inside 'r' is not installed here: install the package that provides it",
        [lambda: with_recipe(installed=True, around=True)],
    ),
    Row(
        lambda: changed(meanwhile=True),
        "at the same moment: give the command again",
        [lambda: changed(meanwhile=False)],
    ),
    Row(
        lambda: resumed(deployed=True),
        f"unset EVOQ_DATABASE_URL and EVOQ_REDIS_URL to {RESUMED}",
        [lambda: resumed(deployed=False)],
    ),
    Row(
        lambda: let_go_on(workers=False),
        "start the workers, or `evoq up`, first",
        [lambda: let_go_on(workers=True)],
    ),
    Row(lambda: played(1), "Choose a run of a game", [lambda: played(2)]),
    Row(
        shown_at,
        "Change to the folder a run was started in, set EVOQ_HOME, or start a run with",
        [
            lambda: shown_at(folder=begun_in("there")),
            lambda: shown_at(f"{begun_in('there')}/{targets.HOME}"),
        ],
    ),
    Row(
        runs_of,
        "Change to the folder a run was started in, or set EVOQ_HOME",
        [
            lambda: runs_of(folder=begun_in("there")),
            lambda: runs_of(f"{begun_in('there')}/{targets.HOME}"),
        ],
    ),
    Row(
        lambda: targets.find_run(holding("first"), "absent"),
        "`evoq list-runs` names them",
        [lambda: targets.find_run(holding("first"), "first")],
    ),
    Row(
        lambda: RunReader.run(cast(Any, SimpleNamespace(store=holding("first"))), "absent"),
        "/api/runs names them",
        [lambda: RunReader.run(cast(Any, SimpleNamespace(store=holding("first"))), "first")],
    ),
    Row(
        lambda: locked("file/home"),
        "Set EVOQ_HOME to another folder",
        [lambda: locked("another")],
    ),
    Row(
        lambda: of_version(VERSION + 1),
        "use a newer one",
        [lambda: of_version(VERSION + 1, reads=VERSION + 1)],
    ),
    Row(
        lambda: of_version(VERSION, reads=VERSION + 1),
        "use an older one",
        [lambda: of_version(VERSION)],
    ),
    Row(
        lambda: described(2, cases=["a"]),
        "the cases of a game are its numbers: leave `cases` out",
        [lambda: described(2)],
    ),
    Row(
        lambda: measured({"score": 1.0}, "size"),
        "the evaluator must return a metric of that name (it returned score), or the axis must be",
        [
            lambda: measured({"score": 1.0, "size": 3}, "size"),
            lambda: measured({"score": 1.0}, "complexity"),
        ],
    ),
    Row(
        lambda: measured({"score": TENSOR, "speed": 3.0}),
        "Return a number, or what `float` makes one; or return `combined_score`, beside which any",
        [
            lambda: measured({"score": 1.0, "speed": 3.0}),
            lambda: measured({"score": TENSOR, "speed": 3.0, "combined_score": 0.5}),
        ],
    ),
    Row(lambda: judged(2), "return 0 or 1", [lambda: judged(0), lambda: judged(1)]),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.advice[:40])
def test_an_advice_about_a_run_that_is_carried_out_ends_the_refusal(
    row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    row.check()


def test_every_remedy_of_an_evaluators_result_is_carried_out_here() -> None:
    tried = [row.advice for row in ROWS]

    for text in remedies(evaluator_result):
        assert is_carried_out(text, tried), text
