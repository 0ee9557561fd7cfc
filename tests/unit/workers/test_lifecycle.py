"""What a worker does at its start, by its variables."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from app.config.settings import SandboxSettings
from workers import lifecycle


def started(*queues: str) -> None:
    """Has this process do what a worker of these queues does at its start."""
    served = SimpleNamespace(consume_from=dict.fromkeys(queues))
    sender: Any = SimpleNamespace(app=SimpleNamespace(amqp=SimpleNamespace(queues=served)))
    lifecycle.prepare(sender)


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the worker does, each with the value that it is done with."""
    found: dict[str, Any] = {}

    def clear(settings: SandboxSettings) -> int:
        found["owner"] = settings.owner
        return 0

    monkeypatch.setattr(lifecycle, "_context_or_exit", lambda: None)
    monkeypatch.setattr(lifecycle, "_lower_priority", lambda nice: found.update(nice=nice))
    monkeypatch.setattr(sys, "setswitchinterval", lambda seconds: found.update(turn=seconds))
    monkeypatch.setattr(lifecycle, "serve", lambda address: found.update(metrics=address))
    monkeypatch.setattr(lifecycle, "clear_orphans", clear)
    return found


def test_a_worker_takes_priority_metrics_and_owner_from_its_variables(
    done: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVOQ_NICE", "7")
    monkeypatch.setenv("EVOQ_METRICS_ADDRESS", "127.0.0.1:9464")
    monkeypatch.setenv("EVOQ_SANDBOX__OWNER", "mine")

    started("cpu")

    assert done == {"turn": 0.02, "nice": 7, "metrics": "127.0.0.1:9464", "owner": "mine"}


def test_a_worker_with_the_engine_inside_keeps_the_turns_of_threads(
    done: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVOQ_VLLM_MODEL", "/a/model")

    started("control")

    assert "turn" not in done


def test_a_worker_without_variables_serves_no_metrics(
    done: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("EVOQ_NICE", "EVOQ_METRICS_ADDRESS"):
        monkeypatch.delenv(variable, raising=False)

    started("control")

    assert done == {"turn": 0.02, "nice": None}
