"""What the end of an evaluator's process means for the program it was reading."""

import signal
from dataclasses import replace

import pytest

from app.adapters.sandbox.frames import TrialReport
from app.adapters.sandbox.verdict import outcome, starved
from app.domain.evaluation import FailureKind
from app.domain.problem import Evaluator, Job, Limits, Outcome

JOB = Job(Evaluator("e", {}), "evaluate", ((".py", b""),), Limits(cpu_seconds=3.0))
RESULT = b'{"result": {"metrics": {"combined_score": 1.0}, "artifacts": {}}}'


def ended_by(number: int, cpu_seconds: float, result: bytes = b"") -> Outcome:
    """Returns the outcome of a trial whose evaluator this signal ended."""
    header = {
        "stopped_by": "",
        "statuses": [["evaluator", number, False]],
        "wall_seconds": 5.0,
        "cpu_seconds": cpu_seconds,
        "waited_seconds": 0.0,
        "stalled_seconds": 0.0,
        "peak_kib": 1,
        "oom_kills": 0,
    }
    return outcome(JOB, TrialReport(header, result, (b"", b"", b"", b"")), 0.0)


@pytest.mark.parametrize("cpu_seconds", [2.8, 3.0, 3.1])
def test_an_evaluator_out_of_cpu_time_is_a_timeout(
    cpu_seconds: float,
) -> None:
    """The limit counts ticks of the clock, the report what was used: on a crowded machine less."""
    failure = ended_by(signal.SIGXCPU, cpu_seconds).failure

    assert failure is not None
    assert failure.kind is FailureKind.TIMEOUT
    assert "3 s of CPU time" in failure.detail


@pytest.mark.parametrize(
    ("cpu_seconds", "kind"), [(0.5, FailureKind.RUNTIME), (4.0, FailureKind.TIMEOUT)]
)
def test_a_killed_evaluator_is_a_timeout_if_its_cpu_time_was_spent(
    cpu_seconds: float, kind: FailureKind
) -> None:
    failure = ended_by(signal.SIGKILL, cpu_seconds).failure

    assert failure is not None
    assert failure.kind is kind


def test_an_evaluator_that_ends_after_its_result_keeps_it() -> None:
    found = ended_by(signal.SIGXCPU, 3.0, RESULT)

    assert (found.failure, found.result is None) == (None, False)


@pytest.mark.parametrize(
    ("stopped_by", "cpu", "waited", "stalled", "expected"),
    [
        ("timeout", 0.5, 9.0, 0.0, True),
        ("timeout", 5.0, 9.0, 0.0, False),  # many processes, which crowd each other out
        ("timeout", 2.4, 4.9, 0.0, False),  # it computed for a while and slept for a while
        ("timeout", 9.9, 0.1, 0.0, False),  # it computed
        ("timeout", 0.0, 0.0, 0.0, False),  # it slept
        ("timeout", 4.0, 0.0, 5.0, True),  # its container was paused
        ("timeout", 4.0, 0.0, 4.9, False),
        ("", 0.5, 9.0, 9.0, False),  # it ended by itself
    ],
)
def test_a_trial_is_starved_where_the_machine_denied_it_half_of_its_time(
    stopped_by: str, cpu: float, waited: float, stalled: float, expected: bool
) -> None:
    job = replace(JOB, limits=Limits(wall_seconds=10.0))
    header = {
        "stopped_by": stopped_by,
        "cpu_seconds": cpu,
        "waited_seconds": waited,
        "stalled_seconds": stalled,
    }

    assert starved(job, TrialReport(header, b"", (b"", b"", b"", b""))) is expected
