"""Derives the outcome of a job, with its kind of failure, from the report of a sandbox.

The order matters: what the zygote observed from outside takes precedence over anything that the
processes of the trial reported about themselves.
"""

import json
import math
import signal
from collections.abc import Iterable
from dataclasses import dataclass

from app.adapters.sandbox.frames import TrialReport
from app.domain.evaluation import Failure, FailureKind
from app.domain.problem import Job, Limits, Mode, Outcome
from workers.harness.errors import KINDS_OF_A_PROGRAM

_KIB_PER_MIB = 1024
_PROGRAM_MARK = b"\n--- program ---\n"
_DETAIL_CHARS = 4000
_DEEPEST = 40
_DENIED, _CROWDED = 0.5, 0.25
"""Shares of a trial's time: without a processor, and on one."""
_STOPPED = {
    "files": Failure(
        FailureKind.OUTPUT_LIMIT, "files of more than 128 MiB together, or more than 2000 of them"
    ),
    "hoarding": Failure(
        FailureKind.OUTPUT_LIMIT, "more than 30 % of the bytes or of the files of the game's disk"
    ),
    "concealed": Failure(
        FailureKind.SANDBOX_VIOLATION, "a process or a directory that cannot be measured"
    ),
}
_OF_A_TRIAL = frozenset(map(FailureKind, KINDS_OF_A_PROGRAM))


def outcome(job: Job, report: TrialReport, boot_seconds: float) -> Outcome:
    """Returns the outcome of `job` from the report of the sandbox that ran it."""
    failure = _seen_from_outside(job, report)
    culprit = None if failure is None else _culprit(job, report, failure)
    result: bytes | None = None
    if failure is None:
        try:
            ended = _result_or_failure(report.result, job)
            result, failure, culprit = ended.result, ended.failure, ended.culprit
        except ValueError as reason:
            failure = Failure(
                FailureKind.INVALID_RESULT, f"the result is not strict JSON: {reason}"
            )
    # The referee of a game has judged a crash already.
    if failure is None and job.game is None:
        failure = _crash_despite_result(job, report)
        result = None if failure is not None else result
    header = report.header
    return Outcome(
        result=result,
        failure=failure,
        stdout=_joined(report.streams[0], b"".join(report.streams[2::2])),
        stderr=_joined(report.streams[1], b"".join(report.streams[3::2])),
        wall_seconds=header["wall_seconds"],
        cpu_seconds=header["cpu_seconds"],
        peak_memory_mib=header["peak_kib"] / _KIB_PER_MIB,
        boot_seconds=boot_seconds,
        culprit=culprit,
    )


def _culprit(job: Job, report: TrialReport, failure: Failure) -> int | None:
    """Returns the player of a game that caused a failure seen from outside; None if none did.

    The kernel's ending of a process names the player, and what the zygote measured does.
    """
    if job.game is None:
        return None
    header = report.header
    if header["blamed"] is not None:
        return header["blamed"]
    ended = {
        process
        for process, status, ended_by_zygote in header["statuses"]
        if process != "evaluator" and not ended_by_zygote and status & 0x7F
    }
    if len(ended) == 1:
        return int(ended.pop())
    return header["largest"] if failure.kind is FailureKind.MEMORY else None


def starved(job: Job, report: TrialReport) -> bool:
    """Returns whether a trial that was ended at its deadline was denied the machine.

    That is the case if the sandbox as a whole stood still for half of the trial's time, or if a
    process could run for half of that time and did not, while the whole trial had less than a
    quarter of one processor.  A program that computes, or that crowds itself out with processes of
    its own, has more than that; one that sleeps waits for no processor.
    """
    header, wall_seconds = report.header, job.limits.wall_seconds
    if header["stopped_by"] != "timeout":
        return False
    waited = header["waited_seconds"] >= _DENIED * wall_seconds
    idle = header["cpu_seconds"] < _CROWDED * wall_seconds
    stalled = header["stalled_seconds"] >= _DENIED * wall_seconds
    return stalled or (waited and idle)


def more_than(limits: Limits) -> str:
    """Returns the detail of a failure by memory."""
    return f"more than {limits.memory_mib} MiB of memory"


def _seen_from_outside(job: Job, report: TrialReport) -> Failure | None:
    header, limits = report.header, job.limits
    stopped_by, oom_kills = header["stopped_by"], header["oom_kills"]
    if stopped_by == "memory" or oom_kills > 0:
        return Failure(FailureKind.MEMORY, more_than(limits))
    if stopped_by == "timeout":
        detail = f"no result within {limits.wall_seconds:g} s"
        if starved(job, report):
            detail += f"; the machine gave it {header['cpu_seconds']:.1f} s of processor time"
        return Failure(FailureKind.TIMEOUT, detail)
    if stopped_by == "processes":
        most = f"more than {limits.processes} processes and threads at once"
        return Failure(FailureKind.RUNTIME, most)
    if stopped_by == "output_limit":
        return Failure(FailureKind.OUTPUT_LIMIT, f"more than {limits.output_bytes} bytes of output")
    if stopped_by in _STOPPED:
        return _STOPPED[stopped_by]
    signals = _signals(job, report)
    if signal.SIGSYS in signals:
        return Failure(FailureKind.SANDBOX_VIOLATION, "a system call that no program may make")
    spent = header["cpu_seconds"] >= limits.cpu_seconds
    # The evaluator's time too: values that take long to read are the program's doing.
    ends = signals | _ends_of_evaluator(report)
    if signal.SIGXCPU in ends or (spent and signal.SIGKILL in ends):
        return Failure(FailureKind.TIMEOUT, f"more than {limits.cpu_seconds:g} s of CPU time")
    if signal.SIGXFSZ in signals:
        return Failure(FailureKind.OUTPUT_LIMIT, f"a file of more than {limits.file_bytes} bytes")
    if not report.result:
        return Failure(FailureKind.RUNTIME, _ending(report))
    return None


def _signals(job: Job, report: TrialReport) -> set[int]:
    """Returns the signals that ended programs, without those that the zygote sent."""
    return {
        status & 0x7F
        for process, status, ended_by_zygote in report.header["statuses"]
        if not ended_by_zygote and (process != "evaluator" or job.mode is Mode.COMPATIBLE)
    } - {0}


def _ends_of_evaluator(report: TrialReport) -> set[int]:
    """Returns the signals that ended the evaluator before it had a result."""
    if report.result:
        return set()
    return {
        status & 0x7F
        for process, status, ended_by_zygote in report.header["statuses"]
        if process == "evaluator" and not ended_by_zygote
    } - {0}


def _crash_despite_result(job: Job, report: TrialReport) -> Failure | None:
    signals = _signals(job, report)
    if not signals:
        return None
    return Failure(FailureKind.RUNTIME, f"the program was ended by {_signal_name(min(signals))}")


def _ending(report: TrialReport) -> str:
    for _, status, ended_by_zygote in report.header["statuses"]:
        if status & 0x7F and not ended_by_zygote:
            return f"ended by {_signal_name(status & 0x7F)} without a result"
    for _, status, ended_by_zygote in report.header["statuses"]:
        if status >> 8 and not ended_by_zygote:
            return f"ended with exit status {status >> 8} without a result"
    return "ended without a result"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass(frozen=True, slots=True)
class _Ended:
    """What the evaluator's process reported: a result, or a failure and who caused it."""

    result: bytes | None
    failure: Failure | None = None
    culprit: int | None = None


def _result_or_failure(document: bytes, job: Job) -> _Ended:
    """Returns the result's bytes, or the failure that the evaluator's process reported.

    Raises:
      ValueError: The document is not what an honest evaluator's process writes.
    """
    try:
        tree = _strict(document)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if not isinstance(tree, dict) or len(tree) != 1:
        raise ValueError("not a document of one key")
    ((key, body),) = tree.items()
    if key == "failure" and isinstance(body, dict):
        kind = FailureKind(str(body.get("kind")))
        allowed = _OF_A_TRIAL | {FailureKind.TIMEOUT} if job.game else _OF_A_TRIAL
        if kind not in allowed:
            raise ValueError(f"a trial cannot fail by {kind.value}")
        failure = Failure(kind, str(body.get("detail", ""))[:_DETAIL_CHARS])
        if job.game is None or "seat" not in body:
            return _Ended(None, failure)
        moves = {"metrics": {"moves": body["moves"]}, "artifacts": {}}
        return _Ended(json.dumps(moves).encode(), failure, int(body["seat"]))
    if key != "result" or not isinstance(body, dict) or set(body) != {"metrics", "artifacts"}:
        raise ValueError("neither a result nor a failure")
    metrics, artifacts = body["metrics"], body["artifacts"]
    if not isinstance(metrics, dict) or not isinstance(artifacts, dict):
        raise ValueError("metrics and artifacts are not objects")
    if not all(isinstance(text, str) for text in artifacts.values()):
        raise ValueError("an artifact is not a string")
    if _depth(metrics) > _DEEPEST:
        raise ValueError("nested too deep")
    encoded = json.dumps(body, allow_nan=False).encode()
    if len(encoded) > 2 * job.limits.result_bytes:
        raise ValueError(f"{len(encoded)} bytes")
    return _Ended(encoded)


def _strict(document: bytes) -> object:
    def refuse(constant: str) -> object:
        raise ValueError(f"the constant {constant}")

    def finite(text: str) -> float:
        value = float(text)
        if not math.isfinite(value):
            raise ValueError(f"the number {text[:40]}")
        return value

    def unique(pairs: Iterable[tuple[str, object]]) -> dict[str, object]:
        table: dict[str, object] = {}
        for key, value in pairs:
            if key in table:
                raise ValueError(f"the key {key[:40]!r} twice")
            table[key] = value
        return table

    return json.loads(
        document.decode("utf-8"),
        parse_constant=refuse,
        parse_float=finite,
        object_pairs_hook=unique,
    )


def _depth(tree: object) -> int:
    deepest, level = 0, [tree]
    while level:
        deepest += 1
        below: list[object] = []
        for node in level:
            if isinstance(node, dict):
                below += node.values()
            elif isinstance(node, list):
                below += node
        level = below
    return deepest


def _joined(evaluator: bytes, program: bytes) -> bytes:
    """Returns the evaluator's text, then the program's, which cannot come before the mark."""
    if not program:
        return evaluator
    return evaluator + _PROGRAM_MARK + program if evaluator else program
