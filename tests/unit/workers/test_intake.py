"""A worker takes messages only of queues that it can serve."""

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from workers import heartbeat
from workers.intake import Intake

QUEUES = ("cpu", "control")


class Consumer:
    """What the intake uses of a Celery consumer; calls are made at once."""

    def __init__(self) -> None:
        self.consumed = dict.fromkeys(QUEUES)
        self.app = SimpleNamespace(amqp=SimpleNamespace(queues=self))

    @property
    def consume_from(self) -> dict[str, Any]:
        return self.consumed

    def call_soon(self, call: Callable[..., None], *arguments: Any) -> None:
        call(*arguments)

    def cancel_task_queue(self, queue: str) -> None:
        del self.consumed[queue]

    def add_task_queue(self, queue: str) -> None:
        self.consumed[queue] = None


@pytest.mark.parametrize(
    ("lacking", "left"),
    [
        ({"sandbox": "no engine"}, {"control"}),
        ({"ledger": "refused"}, set()),
        ({"ledger": "refused", "sandbox": "no engine"}, set()),
    ],
)
def test_queues_that_cannot_be_served_are_not_consumed_until_they_can(
    lacking: dict[str, str], left: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    consumer, intake = Consumer(), Intake()
    intake.opened(consumer)
    with caplog.at_level(logging.WARNING):
        intake.report(lacking)
        intake.report(lacking)
    assert set(consumer.consumed) == left
    assert len(caplog.records) == len(lacking), "each fault is logged once"

    intake.report({})
    assert set(consumer.consumed) == set(QUEUES)


def test_a_fault_that_is_found_before_the_worker_is_connected_counts_too() -> None:
    consumer, intake = Consumer(), Intake()
    intake.report({"sandbox": "no engine"})

    intake.opened(consumer)

    assert set(consumer.consumed) == {"control"}


def test_a_worker_that_cannot_work_shows_no_sign_of_health(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, intake = tmp_path / "heartbeat", Intake()
    monkeypatch.setenv(heartbeat.VARIABLE, str(file))
    monkeypatch.setattr(heartbeat, "intake", intake)

    intake.report({"sandbox": "no engine"})
    heartbeat.worker_is_alive()
    assert not file.exists()

    intake.report({})
    heartbeat.worker_is_alive()
    assert file.exists()
