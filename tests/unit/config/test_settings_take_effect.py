"""Settings that had no test of their effect: each, set, changes what it is about."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy.pool import QueuePool

from app.adapters.model.choose import Providers
from app.adapters.model.congestion.circuit_breaker import BreakerRules
from app.adapters.model.congestion.silence import FEWEST
from app.adapters.model.providers import vllm_engine
from app.adapters.model.providers.attempts import EndpointModel
from app.adapters.model.providers.ensemble import Ensemble
from app.adapters.model.providers.event_loop import ModelLoop
from app.adapters.model.providers.human import HumanModel
from app.adapters.model.providers.openai import OpenAIWire
from app.adapters.model.providers.recorded import CachedModel
from app.adapters.model.providers.spec import ProcessLimits, model_spec
from app.adapters.model.providers.vllm_engine import VllmLaunch
from app.adapters.problems.loading import load
from app.adapters.sandbox import choose, containers, orphans
from app.adapters.sandbox.docker import ContainerSettings, DockerSandbox
from app.adapters.sandbox.environments import Environments
from app.adapters.sandbox.process import ProcessSandbox
from app.bootstrap import worker as bootstrap
from app.bootstrap.settings import process_limits
from app.cli import dashboard
from app.config.layers import from_assignments, problem_options
from app.config.models import ModelSettings
from app.config.places import LEAST
from app.config.rules import judges_of
from app.config.settings import RunSettings, SandboxSettings, Settings
from app.dashboard.server import Place
from app.domain.evaluation import Trial
from app.domain.operator import Brief, Draft, ProgramRecord, Role
from app.domain.operators.conversation import describer
from app.domain.problem import Limits
from app.domain.program import Program
from app.domain.prompting.judging import Judge, Judges
from app.domain.prompting.prompts import diff_prompt
from app.domain.search.shares import NEWCOMERS
from app.domain.source.edits import Edit
from app.engine import generate
from app.engine.context import Context, Pace
from app.ports.workers import Worker

LIMITS_OF_A_PROCESS = ("MAX_IN_FLIGHT", "TARGET_IN_FLIGHT", "PARALLEL_GENERATIONS")
BODY = "    x = 1\n" * 8
PARENT = ProgramRecord(Program(f"def f():\n{BODY}    return 1\n"), 0.5)
TOP = ProgramRecord(Program("def f():\n    return 3\n"), 0.9)
OTHER = ProgramRecord(
    Program(f"def f():\n{BODY}    return 2\n"), 0.4, changes="Change 1: '1' to '2'"
)


def prompt(**prompts: Any) -> str:
    settings = RunSettings.model_validate({"prompts": prompts, "search": {"top_programs": 1}})
    known = {record.program.id: record for record in (PARENT, TOP, OTHER)}
    parent, *others = known
    draft = Draft(7, 0, 0, 1, (parent,), tuple(others))
    rules = settings.prompts.rules(settings.search)
    brief = Brief("Make f larger.", "python", (draft,), known, prompts=rules, seed="s")
    return diff_prompt(brief, draft).user


@pytest.mark.parametrize(
    ("setting", "set_to", "text", "by_default"),
    [
        ("suggest_simplification_after_chars", 50, "Consider simplifying", False),
        ("include_changes_under_chars", 5, "Modification: Change 1", True),
        ("concise_implementation_max_lines", 5, "Concise implementation", True),
        ("comprehensive_implementation_min_lines", 5, "Comprehensive implementation", False),
    ],
)
def test_a_setting_of_prompts_changes_what_a_prompt_says(
    setting: str, set_to: int, text: str, by_default: bool
) -> None:
    few = {"concise_implementation_max_lines": 3} if setting.startswith("compre") else {}
    assert (text in prompt(**few)) is by_default
    assert (text in prompt(**few, **{setting: set_to})) is not by_default


def test_prompts_show_as_many_programs_as_the_search_where_they_have_no_number_of_their_own() -> (
    None
):
    def shown(**prompts: int) -> tuple[int, int]:
        search = {"top_programs": 7, "inspirations": 8}
        settings = RunSettings.model_validate({"prompts": prompts, "search": search})
        rules = settings.prompts.rules(settings.search)
        return rules.num_top_programs, rules.num_diverse_programs

    assert shown() == (7, 8)
    assert shown(num_top_programs=1, num_diverse_programs=0) == (1, 0)


def test_the_summary_of_edits_has_the_bounds_of_the_settings() -> None:
    edit = Edit(("x" * 60,) * 5, ("y",))

    def text(**prompts: int) -> str:
        settings = RunSettings.model_validate({"prompts": prompts})
        return describer(settings.prompts.rules(settings.search))([edit])

    assert "... (3 more lines)" not in text()
    assert "... (3 more lines)" in text(diff_summary_max_lines=2)
    assert "x" * 60 in text()
    assert "x" * 60 not in text(diff_summary_max_line_len=20)


def test_settings_of_a_sandbox_reach_its_pool_and_its_containers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: dict[str, Any] = {}

    def record(pool: object, **parts: Any) -> object:
        made.update(pool=pool, **parts)
        return object.__new__(DockerSandbox)

    cleared: list[str] = []

    def clear(seconds: float, owner: str) -> int:
        cleared.append(owner)
        return 0

    monkeypatch.setattr(choose, "engine_answers", lambda seconds: True)
    monkeypatch.setattr(containers, "remove_orphans", clear)
    monkeypatch.setattr(orphans, "remove_orphans", clear)
    monkeypatch.setattr(containers.Images, "has_default", lambda self: True)
    monkeypatch.setattr(containers, "DockerSandbox", record)

    def pool(**settings: Any) -> dict[str, Any]:
        choose.choose(SandboxSettings(**settings), show_progress=lambda _: None)
        return asdict(made["pool"])

    assert pool(cpus=3.5)["max_trials"] == 500
    assert made["settings"].cpus == 3.5
    assert pool(trials_per_sandbox=7)["max_trials"] == 7
    assert pool(trials_per_sandbox=7, one_container_per_trial=True)["max_trials"] == 1
    assert pool(minutes_per_sandbox=2)["max_age_seconds"] == 120.0
    assert pool(trials_per_evaluator=9)["trials_per_evaluator"] == 9
    assert (pool()["spares"], pool(spares=0)["spares"], pool(spares=3)["spares"]) == (1, 0, 3)
    assert (pool()["max_sandboxes"], pool(places=9)["max_sandboxes"]) == (LEAST, 9)
    assert (made["settings"].runtime, made["images"]._owner, cleared[-1]) == ("", "", "")
    pool(runtime="runsc", seccomp="engine", owner="mine", image="own:1", build_minutes=2)
    assert made["settings"] == ContainerSettings("runsc", 1.0, "", "mine")
    images = made["images"]
    assert (images._default, images._owner, images._build_seconds) == ("own:1", "mine", 120.0)
    assert cleared[-1] == "mine"
    choose.clear_orphans(SandboxSettings(owner="another"))
    assert cleared[-1] == "another"


def test_settings_of_installations_reach_the_environments(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made: dict[str, Any] = {}

    def record(**parts: Any) -> Environments:
        made.update(parts)
        return Environments(folder=tmp_path)

    monkeypatch.setattr(choose, "Environments", record)
    settings = SandboxSettings(
        backend="process",
        build_minutes=2,
        build_hosts="one.example two.example",
        unisolated_builds=True,
        unbounded_processes=True,
        environments=str(tmp_path),
    )

    sandbox = choose.choose(settings, show_progress=lambda _: None)

    assert isinstance(sandbox, ProcessSandbox)
    assert made["build_seconds"] == 120.0
    assert made["hosts"] == ("one.example", "two.example")
    assert (made["unisolated"], made["folder"]) == (True, tmp_path)
    assert sandbox._unbounded_processes
    sandbox.close()


def test_a_model_rests_after_the_failures_and_for_the_time_of_the_settings() -> None:
    default, own = ModelSettings(), {"failover_after": 5, "failover_rest_seconds": 7.0}
    assert default.fail_over(Role.GENERATOR) == (3, 30.0)
    assert ModelSettings(**own).fail_over(Role.GENERATOR) == (5, 7.0)
    of_role = ModelSettings(**{"roles": {"judge": own}})
    assert of_role.fail_over(Role.JUDGE) == (5, 7.0)
    assert of_role.fail_over(Role.GENERATOR) == (3, 30.0)


@pytest.mark.parametrize(
    ("setting", "limit"), [("file_bytes", "RLIMIT_FSIZE"), ("open_files", "RLIMIT_NOFILE")]
)
def test_a_limit_of_files_binds_the_process_of_a_trial(
    setting: str, limit: str, tmp_path: Path
) -> None:
    (tmp_path / "initial_program.py").write_text("def f():\n    return 1\n")
    (tmp_path / "evaluator.py").write_text("def evaluate(path):\n    return {'score': 1.0}\n")
    code = (
        "import json, resource, sys; from workers.harness import limits\n"
        "limits.apply(json.loads(sys.argv[1]), 0)\n"
        "print(resource.getrlimit(getattr(resource, sys.argv[2]))[0])"
    )

    def in_force(*assignments: str) -> int:
        options = problem_options([from_assignments(assignments)])
        problem = load((tmp_path,), options=options)
        [seed] = problem.seeds
        job = problem.prepare(Trial("evaluate", (seed.id,)), {seed.id: seed})
        bounds = json.dumps(asdict(job.limits))
        arguments = [sys.executable, "-c", code, bounds, limit]
        return int(subprocess.run(arguments, capture_output=True, check=True).stdout)

    assert in_force(f"sandbox.{setting}=131") == 131
    assert in_force() == getattr(Limits(), setting)


def test_the_time_out_of_an_attempt_begins_at_its_setting_and_falls_to_the_least_one() -> None:
    def time_out(answers: int, **settings: float) -> float:
        section = ModelSettings(**{"model": "m", **settings})
        [choice] = section.models_of(Role.GENERATOR)
        model = EndpointModel(OpenAIWire(model_spec(choice, lambda _: None)), ModelLoop())
        for _ in range(answers):
            model._silence._first = model._silence._first.after_token(0.1)
        return model._silence._first.wait_seconds

    assert (time_out(0), time_out(0, timeout_seconds=500.0)) == (300.0, 2500.0)
    assert (time_out(FEWEST), time_out(FEWEST, min_timeout_seconds=7.0)) == (2.0, 7.0)


class _WorkerOfTest(Exception):
    """Ends a test where a worker is recorded; its arguments are the worker and its protections."""


def recorded_worker(kind: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Worker, object]:
    """Returns a worker as it is recorded, and what reads the protections of its sandboxes."""

    def record(store: object, worker: Worker, *places: object, **more: object) -> None:
        raise _WorkerOfTest(worker, more["protections"])

    monkeypatch.setattr(bootstrap, "WorkerTimeRecorder", record)
    ctx: Any = SimpleNamespace(store=None, sandbox=SimpleNamespace(protections=list))
    with pytest.raises(_WorkerOfTest) as caught:
        bootstrap.with_worker_time(ctx, {kind}, lambda faults: None)
    worker, protections = caught.value.args
    return worker, protections


@pytest.mark.parametrize("kind", ["gpu", "cpu", "control"])
def test_a_worker_records_what_it_applies_and_one_that_evaluates_its_protections(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVOQ_SANDBOX__RUNTIME", "runsc")
    monkeypatch.setenv("EVOQ_QUEUE__LEASE_SECONDS", "7")

    worker, protections = recorded_worker(kind, monkeypatch)

    assert worker.settings["sandbox.runtime"] == "runsc"
    assert worker.settings["queue.lease_seconds"] == 7.0
    assert "search.islands" not in worker.settings
    assert protections is (list if kind == "cpu" else None)


@pytest.mark.parametrize("kind", ["gpu", "cpu", "control"])
def test_the_price_of_a_kind_is_recorded_with_each_worker_of_it(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def price() -> float | None:
        worker, _ = recorded_worker(kind, monkeypatch)
        assert worker.kind == kind
        return worker.usd_per_hour

    for variable in ("GPU", "CPU", "CONTROL"):
        monkeypatch.delenv(f"EVOQ_PRICES__{variable}_USD_PER_HOUR", raising=False)
    assert price() is None
    monkeypatch.setenv(f"EVOQ_PRICES__{kind.upper()}_USD_PER_HOUR", "0.25")
    assert price() == 0.25


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Context]:
    """Builds the context of a worker by the variables of the test; nothing is connected to."""
    monkeypatch.setattr(bootstrap, "_require_schema", lambda *_: None)
    monkeypatch.setattr(bootstrap, "worker_engine", lambda: None)
    monkeypatch.setenv("EVOQ_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
    for variable in ("DATABASE_CONNECTIONS", "EVALUATE_CONCURRENCY", "SANDBOX__CELLS", "REDIS_URL"):
        monkeypatch.delenv(f"EVOQ_{variable}", raising=False)
    return bootstrap.worker_context


def test_a_worker_holds_as_many_database_connections_as_the_variable_says(
    worker: Callable[[], Context], monkeypatch: pytest.MonkeyPatch
) -> None:
    def size() -> int:
        store: Any = worker().store
        pool = store._engine.pool
        assert isinstance(pool, QueuePool)
        assert pool._max_overflow == 0
        return pool.size()

    assert size() == 16
    monkeypatch.setenv("EVOQ_DATABASE_CONNECTIONS", "3")
    assert size() == 3


@pytest.mark.parametrize("variable", ["EVOQ_EVALUATE_CONCURRENCY", "EVOQ_SANDBOX__PLACES"])
def test_a_worker_has_a_sandbox_for_each_place_and_one_for_a_newcomer(
    variable: str, worker: Callable[[], Context], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "9")
    made: list[SandboxSettings] = []
    monkeypatch.setattr(bootstrap, "LazySandbox", made.append)

    worker()

    assert made[0].places == 9 + NEWCOMERS


def test_the_pace_of_a_worker_is_that_of_its_variables(
    worker: Callable[[], Context], monkeypatch: pytest.MonkeyPatch
) -> None:
    renewing: list[float] = []

    class Renewer:
        def __init__(self, store: object, seconds: float, listen: object) -> None:
            renewing.append(seconds)

        keep = None

    monkeypatch.setattr("app.bootstrap.ledger.LeaseRenewer", Renewer)
    for name in ("LEASE_SECONDS", "REDELIVER_SECONDS", "ATTEMPTS"):
        monkeypatch.delenv(f"EVOQ_QUEUE__{name}", raising=False)
    assert worker().pace == Pace(30.0, 30.0, attempts=5)
    monkeypatch.setenv("EVOQ_QUEUE__LEASE_SECONDS", "7")
    monkeypatch.setenv("EVOQ_QUEUE__REDELIVER_SECONDS", "8")
    monkeypatch.setenv("EVOQ_QUEUE__ATTEMPTS", "2")

    assert worker().pace == Pace(7.0, 8.0, attempts=2)
    assert renewing == [30.0, 7.0]


def test_a_dashboard_knows_the_hosts_of_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Place] = []

    @contextmanager
    def serve(ctx: object, redis_url: str, place: Place, **shown: object) -> Iterator[Any]:
        served.append(place)
        yield SimpleNamespace(address="http://localhost:1")

    def known(host: str, *allowed: str) -> bool:
        screen: Any = SimpleNamespace(say=lambda text: None)
        ctx: Any = None
        with dashboard.served(ctx, "redis://nowhere", screen, hosts=allowed):
            return served[-1].access().knows(host)

    monkeypatch.setattr(dashboard, "serving", serve)
    monkeypatch.delenv("EVOQ_DASHBOARD_HOSTS", raising=False)
    assert not known("two.example:443")
    monkeypatch.setenv("EVOQ_DASHBOARD_HOSTS", "one.example, Two.Example,")
    assert known("two.example:443")
    assert known("three.example", "three.example")
    assert not known("")


def test_the_engine_of_a_worker_is_launched_by_its_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    launch = bootstrap.worker_engine.__wrapped__  # it is built once a process
    for variable in ("MODEL", "NAME", "ARGS", "METRICS_PORT"):
        monkeypatch.delenv(f"EVOQ_VLLM_{variable}", raising=False)
    assert launch() is None
    monkeypatch.setenv("EVOQ_VLLM_MODEL", "org/model")
    assert launch().launch == VllmLaunch("org/model", "org/model")
    monkeypatch.setenv("EVOQ_VLLM_NAME", "small")
    monkeypatch.setenv("EVOQ_VLLM_ARGS", "--tensor-parallel-size 2")
    monkeypatch.setenv("EVOQ_VLLM_METRICS_PORT", "9999")
    assert launch().launch == VllmLaunch("org/model", "small", "--tensor-parallel-size 2", 9999)


def test_an_engine_serves_its_metrics_where_a_port_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served: list[int] = []
    loaded = SimpleNamespace(errored=True, template="", shutdown=lambda: None)
    monkeypatch.setattr(vllm_engine, "_load", lambda launch: loaded)
    monkeypatch.setattr(vllm_engine, "_serve_metrics", served.append)

    for port in (None, 9999):
        engine = vllm_engine.VllmEngine(VllmLaunch("m", "m", "", port))
        engine.start(lambda line: None)
        engine.close()

    assert served == [9999]


def test_the_limits_of_a_process_are_those_of_its_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def limits() -> ProcessLimits:
        return process_limits(Settings())

    for name in ("REDIS_URL", *(f"LLM_{part}" for part in LIMITS_OF_A_PROCESS)):
        monkeypatch.delenv(f"EVOQ_{name}", raising=False)
    assert limits() == ProcessLimits()
    monkeypatch.setenv("EVOQ_REDIS_URL", "redis://127.0.0.1:1/0")
    for value, name in enumerate(LIMITS_OF_A_PROCESS, 3):
        monkeypatch.setenv(f"EVOQ_LLM_{name}", str(value))
    assert limits() == ProcessLimits("redis://127.0.0.1:1/0", 3, 4, 5)


def test_a_person_is_waited_for_in_the_folder_and_as_long_as_the_settings_say() -> None:
    ledger: Any = None
    settings = {"provider": "human", "model": "me", "timeout_seconds": 7.0, "answers": "/answers"}
    providers = Providers(ledger, lambda _: None)

    person = providers.model(ModelSettings(**settings), 1, "r")

    assert isinstance(person, HumanModel)
    assert (person._wait_seconds, person._folder) == (7.0, Path("/answers/r"))
    providers.close()


def test_a_mix_rests_and_weighs_its_models_as_the_settings_say() -> None:
    ledger: Any = None
    models = [{"name": "a", "weight": 3.0}, {"name": "b", "weight": 1.0}]
    settings = {"base_url": "http://h/v1", "models": models, "failover_after": 5}
    providers = Providers(ledger, lambda _: None)

    mix = providers.model(ModelSettings(**{**settings, "cache": False}), 1)
    cached = providers.model(ModelSettings(**{**settings, "cache": True}), 1)

    assert isinstance(mix, Ensemble)
    assert [member.weight for member in mix._models] == [3.0, 1.0]
    assert [member.breaker._rules for member in mix._models] == [BreakerRules(5, 30.0)] * 2
    assert isinstance(cached, CachedModel)
    providers.close()


def test_a_proposal_is_leased_at_the_pace_of_its_worker() -> None:
    leased: list[tuple[object, ...]] = []

    def claim(proposals: object, seconds: float, *, attempts: int) -> list[Any]:
        leased.append((proposals, seconds, attempts))
        return []

    tx: Any = SimpleNamespace(proposals=SimpleNamespace(claim=claim))
    generate.claim_proposals(tx, [1], Pace(7.0, 8.0, attempts=2))

    assert leased == [([1], 7.0, 2)]


def test_judges_have_the_weights_of_their_models_and_their_metrics_that_of_the_setting() -> None:
    panel = [{"name": "strict", "weight": 2.0}, {"name": "reserve", "weight": 0.0}]
    llm = {"model": "m", "feedback": True, "feedback_weight": 0.3}
    settings = ModelSettings(**{**llm, "roles": {"judge": {"models": panel}}})

    assert judges_of(settings) == Judges((Judge("strict", 2.0),), 0.3)
    assert judges_of(ModelSettings(**{**llm, "feedback": False})) is None
