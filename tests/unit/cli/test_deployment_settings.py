"""In a deployment, what belongs to workers is refused of a run and shown as they report it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.cli import compare
from app.client import session
from app.client.plan import plan_run
from app.client.setting_layers import SettingLayers
from app.client.target import Target
from app.config.layers import UsageError, from_assignments
from app.config.settings import RunSettings
from app.ports.protocols import Protection
from app.ports.workers import Worker
from app.reports.folder import snapshot
from tests.engine.toy import problem

DEPLOYED = Target(Path(), "postgresql://nobody@127.0.0.1:1/none", "redis://127.0.0.1:1")
WORKERS = [
    Worker("a-1-x", "cpu", None, {}, (("no network", "install it"), ("a filter", ""))),
    Worker("b-1-x", "cpu", None, {}, None),
]


def test_a_run_of_a_deployment_is_refused_what_an_embedded_run_may_set() -> None:
    layers = SettingLayers((from_assignments(["sandbox.runtime=runsc"]),))

    assert plan_run(problem(), layers, local=True).settings.sandbox.runtime == "runsc"
    with pytest.raises(UsageError, match=r"`sandbox\.runtime` belongs to the workers"):
        plan_run(problem(), layers, local=False)


def test_so_is_a_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[bool] = []

    def plan(*_: object, local: bool, no_model: bool) -> object:
        given.append(local)
        return SimpleNamespace()

    monkeypatch.setattr("app.cli.compare.plan_run", plan)
    monkeypatch.setattr("app.cli.compare.load_problem", lambda *_, strict: problem())

    for local in (True, False):
        compare._plan_runs(
            *(["p"], {"greedy": []}, [1], None, None, []), no_model=True, strict=False, local=local
        )

    assert given == [True, False]


def test_the_first_lines_of_a_run_of_a_deployment_say_which_protections_stand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @contextmanager
    def ledger(target: Target) -> Iterator[Any]:
        tx = SimpleNamespace(workers=SimpleNamespace(evaluating=lambda: WORKERS))

        @contextmanager
        def begin() -> Iterator[Any]:
            yield tx

        yield SimpleNamespace(store=SimpleNamespace(begin=begin), redis_url=target.redis_url)

    said: list[str] = []
    screen: Any = SimpleNamespace(say=said.append)
    monkeypatch.setattr(session, "open_ledger", ledger)
    monkeypatch.setattr(session, "require_queue", lambda address: None)
    monkeypatch.setattr(session, "with_queue", lambda ledger: None)

    with session.open_session(DEPLOYED, RunSettings(), inline=False, notes=screen):
        pass

    assert said == [
        "1 of 2 workers: sandbox: 1 of 2 protections on (-v names them)",
        "1 of 2 workers: sandbox: missing: no network (install it)",
        "1 of 2 workers: sandbox: none has booted yet",
    ]


def test_the_settings_of_a_run_that_has_ended_are_those_its_workers_applied() -> None:
    def held(*workers: Worker) -> Any:
        settings = RunSettings().model_dump(mode="json")
        run = SimpleNamespace(name="r", strategy="s", seed=1, operators={}, settings=settings)
        summary: Any = SimpleNamespace(run=run)
        return json.loads(json.dumps(snapshot(summary, problem(), workers)))

    def worker(runtime: str) -> Worker:
        return Worker(f"{runtime}-1", "cpu", None, {"sandbox.runtime": runtime}, (("a", ""),))

    assert held()["settings"]["sandbox"]["runtime"] == ""
    agreed = held(worker("runsc"), worker("runsc"))
    assert agreed["settings"]["sandbox"]["runtime"] == "runsc"
    assert agreed["workers"][0] == {"id": "runsc-1", "kind": "cpu", "protections": ["a"]}
    different = held(worker("runsc"), worker("runc"))
    assert different["settings"]["sandbox"]["runtime"] == ["runsc", "runc"]


def test_an_embedded_run_says_its_protections_and_waits_as_long_as_the_setting_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    @contextmanager
    def opened(*_: object, **more: object) -> Iterator[Any]:
        there = [Protection("a filter", True, "")]
        yield SimpleNamespace(protections=lambda: there, store=None)

    monkeypatch.setattr(session, "open_sandbox", opened)
    monkeypatch.setattr(session, "open_ledger", opened)
    monkeypatch.setattr(session, "_pause_left_behind", lambda *_, **more: None)
    monkeypatch.setattr(session, "context", lambda *_, **more: None)
    settings = RunSettings.model_validate({"queue": {"patience_seconds": 7}})

    said: list[str] = []
    screen: Any = SimpleNamespace(say=said.append)

    with session.open_session(Target(tmp_path), settings, inline=True, notes=screen) as found:
        assert found.patience_seconds == 7.0
    assert said == ["sandbox: 1 of 1 protections on (-v names them)"]


def test_workers_of_an_embedded_run_get_its_settings_as_variables_of_their_own() -> None:
    given = {
        "sandbox": {"runtime": "runsc", "image": "mine:1", "mode": "compatible"},
        "queue": {"lease_seconds": 7, "generating": 3},
        "prices": {"cpu_usd_per_hour": 0.5},
        "search": {"islands": 3},
    }

    variables = session.environment_of_workers(
        RunSettings.model_validate(given), {"PATH": "/bin", "EVOQ_QUEUE__ATTEMPTS": "9"}
    )

    assert variables == {
        "PATH": "/bin",
        "EVOQ_QUEUE__ATTEMPTS": "9",
        "EVOQ_SANDBOX__RUNTIME": "runsc",
        "EVOQ_SANDBOX__IMAGE": "mine:1",
        "EVOQ_QUEUE__LEASE_SECONDS": "7.0",
        "EVOQ_PRICES__CPU_USD_PER_HOUR": "0.5",
    }
