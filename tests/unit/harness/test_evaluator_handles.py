"""The zygote's handle on the evaluator's zygote."""

import json
import socket
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from workers.harness.evaluator_handles import EvaluatorZygote, KeptEvaluator
from workers.harness.trial import TrialRun

PID = 1234


@pytest.fixture
def channels() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield ours, theirs


def trial_of(zygote: EvaluatorZygote) -> TrialRun:
    """Returns a trial whose evaluator has been started and has not reported yet."""
    trial = TrialRun.__new__(TrialRun)
    trial._state = SimpleNamespace(evaluator_zygote=zygote)  # type: ignore[assignment]
    trial._evaluator_pid, trial._evaluator_lost, trial._report = 0, False, None
    trial._ended_by_us, trial._statuses = set(), []
    trial._usage = SimpleNamespace(add=lambda cpu_seconds, peak_kib: None)  # type: ignore[assignment]
    return trial


def test_a_report_that_was_received_meanwhile_is_not_waited_for(
    channels: tuple[socket.socket, socket.socket],
) -> None:
    """One poll may find both the number of a kept process and that it has done its trial."""
    ours, theirs = channels
    ours.settimeout(None)
    zygote = EvaluatorZygote(1, ours)
    mine, kept_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with mine, kept_end:
        zygote.kept = KeptEvaluator(mine, 50)
        trial = trial_of(zygote)
        theirs.send(json.dumps({"pid": PID}).encode())
        kept_end.send(b"\0" * 16)

        trial._receive_from_kept(zygote.kept)
        trial._receive_from_evaluator(wait=False)  # the second event of the same poll

        assert trial._evaluator_pid == zygote.kept.pid == PID
        assert trial._report is not None


def test_a_zygote_without_a_report_is_known_to_have_none(
    channels: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = channels
    zygote = EvaluatorZygote(1, ours)
    with pytest.raises(BlockingIOError):
        zygote.receive(wait=False)

    theirs.close()
    assert zygote.receive(wait=False) is None
