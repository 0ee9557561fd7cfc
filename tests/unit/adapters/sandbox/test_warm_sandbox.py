"""The worker's side of a sandbox, of which a worker that was held up is late to ask."""

import json
import struct
from collections.abc import Sequence

import pytest

from app.adapters.sandbox import warm_sandbox
from app.adapters.sandbox.connection import Loss, SandboxOverdue
from app.adapters.sandbox.frames import BootSettings
from app.adapters.sandbox.warm_sandbox import WarmSandbox
from app.domain.problem import Evaluator, Job, Limits, Mode

JOB = Job(Evaluator("e", {}), "evaluate", ((".py", b"x"),), Limits(wall_seconds=2.0))
ANSWER = {"functions": ["evaluate"], "isolation": {}}
REPORT = {"left": [], "evaluator_lost": False, "sizes": [0, 0, 0, 0, 0], "stopped_by": ""}


class Clock:
    """Seconds that pass only while a sandbox is waited for."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


class Sandbox:
    """A connection to a sandbox that answers after so many waits, each to its deadline and more."""

    outruns: Sequence[bool] = (False,)
    """At each look; the last holds for all that follow."""

    def __init__(self, clock: Clock, *held_up_seconds: float) -> None:
        self._clock = clock
        self._held_up = [*held_up_seconds]
        self._out = b"".join(map(_frame, (ANSWER, REPORT)))
        self._booted = False
        self._looks = [*self.outruns]

    def send(self, parts: Sequence[bytes], deadline: float) -> None: ...

    def receive(self, size: int, deadline: float) -> bytes:
        if self._booted and self._held_up:
            self._clock.now = deadline + self._held_up.pop(0)
            raise SandboxOverdue("no answer")
        received, self._out = self._out[:size], self._out[size:]
        self._booted = self._booted or size > 12
        return received

    def silent(self, seconds: float = 0.0) -> bool:
        self._clock.now += seconds
        return True

    def outrun(self) -> bool:
        self._clock.now += 0.2
        return self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]

    def check(self) -> None: ...

    def loss(self) -> Loss:
        return Loss.UNKNOWN

    def error_output(self) -> str:
        return ""

    def close(self) -> None: ...


def _frame(document: object) -> bytes:
    text = json.dumps(document).encode()
    return struct.pack(">IQ", len(text), 0) + text


def booted(monkeypatch: pytest.MonkeyPatch, *held_up_seconds: float) -> WarmSandbox:
    clock = Clock()
    monkeypatch.setattr(warm_sandbox, "time", clock)
    connection = Sandbox(clock, *held_up_seconds)
    settings = BootSettings("process")
    return WarmSandbox(
        connection, settings, JOB.evaluator, Mode.COMPATIBLE, JOB.limits, numpy=False
    )


def test_a_worker_that_was_held_up_asks_for_the_report_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert booted(monkeypatch, 60.0).run(JOB).header == REPORT


@pytest.mark.parametrize("held_up_seconds", [(0.1,), (60.0, 0.1), (60.0, 60.0)])
def test_a_sandbox_that_does_not_answer_a_worker_that_waits_is_overdue(
    monkeypatch: pytest.MonkeyPatch, held_up_seconds: tuple[float, ...]
) -> None:
    with pytest.raises(SandboxOverdue):
        booted(monkeypatch, *held_up_seconds).run(JOB)


@pytest.mark.parametrize("outruns", [(True,), (False, False, True)])
def test_a_sandbox_that_what_runs_in_it_keeps_from_answering_is_overdue_soon(
    monkeypatch: pytest.MonkeyPatch, outruns: tuple[bool, ...]
) -> None:
    monkeypatch.setattr(Sandbox, "outruns", outruns)
    sandbox = booted(monkeypatch)
    with pytest.raises(SandboxOverdue, match="keeps it from answering"):
        sandbox.run(JOB)
    took = warm_sandbox.time.monotonic() - 100.0
    assert took < JOB.limits.wall_seconds + 1.0 + 0.5 * len(outruns)


def test_a_sandbox_without_processor_time_may_answer_later(monkeypatch: pytest.MonkeyPatch) -> None:
    assert booted(monkeypatch).run(JOB).header == REPORT
