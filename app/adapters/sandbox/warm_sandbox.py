"""The worker's side of one warm sandbox."""

import json
import re
import time
from typing import Any, cast

from app.adapters.sandbox.connection import Loss, SandboxConnection, SandboxLost, SandboxOverdue
from app.adapters.sandbox.data_mounts import refuse
from app.adapters.sandbox.frames import (
    LENGTHS,
    BootSettings,
    ReportHeader,
    TrialReport,
    boot_input,
    trial_input,
)
from app.adapters.sandbox.protection import Isolation
from app.domain.problem import Evaluator, EvaluatorBroken, Job, Limits, Mode
from app.ports.protocols import Misconfigured, Unavailable

_LARGEST_HEADER = 1 << 20
_CAPTURED_BYTES = 7 << 16
"""Bytes of six streams, each a bounded head and tail."""
_MOVES_BYTES = 16_385
"""One byte more than the harness's `pipes.MOVES_BYTES`."""
_MOST_COMPILED_BYTES = 2 << 20
_RESULT_OVERHEAD_BYTES = 65_536
"""The same bound as in the harness's `zygote_state`."""
BACKSTOP_SECONDS = 5.0
"""Most time after the deadline for ending and cleaning inside the sandbox."""
_USUAL_SECONDS = 1.0
"""Usual time for the same, unless a process keeps the zygote from it."""
_LOOKING_SECONDS = 0.25
"""Pause between two looks at a sandbox that does not answer."""

_REMEDY = "Correct it; a package it needs goes into a requirements.txt beside it"
_PLACE = re.compile(r"([^\n]+?, line \d+): ")
"""Of a file, at the beginning of `workers.harness.result.describe_broken`."""
_UNBOUNDED = (
    "nothing here bounds how many processes a program starts: it has no identity of its own, and "
    "the kernel (or a container around this worker) permits no seccomp listeners, which Linux has "
    "since 5.5. Use the docker sandbox, start the worker as root with the capabilities SETUID and "
    "SETGID, or permit the system call seccomp(2); sandbox.unbounded_processes=true (or "
    "EVOQ_SANDBOX__UNBOUNDED_PROCESSES=true for a worker) accepts that one program may fill the "
    "machine with processes"
)
_WRITABLE = (
    "nothing here bounds what a program writes: namespaces cannot be had, and the kernel has no "
    "Landlock, which Linux has since 5.13 (it may be switched off: lsm= of its command line). Use "
    "the docker sandbox, or start the worker as root; sandbox.unbounded_processes=true (or "
    "EVOQ_SANDBOX__UNBOUNDED_PROCESSES=true for a worker) accepts that a program may fill a disk"
)
_UNISOLATED = (
    "the problem's environment holds packages that run code when their interpreter starts, and "
    "namespaces cannot be had here. Use the docker sandbox, or start the worker as root; "
    "sandbox.unisolated_builds=true (or EVOQ_SANDBOX__UNISOLATED_BUILDS=true for a worker) accepts "
    "that packages may reach this user's files, processes and network"
)
_ENGINE = (
    "the problem's evaluator could open {file}, the socket of the Docker engine, which makes it "
    "root on that machine: it would have the worker's groups, or could become its user, because "
    "namespaces cannot be had here. Use the docker sandbox (start the engine if it does not "
    "answer), or take that socket, or its group, away from the worker (in a deployment, DOCKER_GID)"
)
_READABLE = (
    "Let everyone read it (`chmod -R a+rX PATH`) and, where there are no namespaces, enter the "
    "folders above it"
)
_REFUSALS = {
    "unbounded": _UNBOUNDED,
    "writable": _WRITABLE,
    "unisolated": _UNISOLATED,
    "engine": _ENGINE,
}


class WarmSandbox:
    """A booted sandbox: one trial at a time.

    Attributes:
      isolation: Which protections are in force, as the zygote found by trying.
      boot_seconds: What booting cost.
      compiled: The harness as a container's interpreter compiles it; empty if it had it already.
      served: Trials so far.
      clean: Whether the last trial left nothing; a sandbox that is not clean is replaced.
    """

    def __init__(
        self,
        connection: SandboxConnection,
        settings: BootSettings,
        evaluator: Evaluator,
        mode: Mode,
        limits: Limits,
        numpy: bool,
    ) -> None:
        self._connection = connection
        self._evaluator = evaluator
        self.served = 0
        self.clean = True
        self.started = time.monotonic()
        answer, self.compiled = self._boot(settings, evaluator, mode, limits, numpy)
        if "unreadable" in answer:
            connection.close()
            refuse(answer["unreadable"], "sandboxes may not read it", _READABLE)
        if "broken" in answer:
            connection.close()
            place = _PLACE.match(answer["broken"])
            where = place[1] if place else evaluator.entry
            what = answer["broken"][place.end() :] if place else answer["broken"]
            raise EvaluatorBroken(what, where=where, remedy=_REMEDY)
        if "refused" in answer:
            connection.close()
            raise Misconfigured(_REFUSALS[answer["refused"]].format(file=answer.get("file")))
        self._functions = frozenset(answer["functions"])
        self.isolation: Isolation = answer["isolation"]
        self.boot_seconds = time.monotonic() - self.started

    def _boot(
        self,
        settings: BootSettings,
        evaluator: Evaluator,
        mode: Mode,
        limits: Limits,
        numpy: bool,
    ) -> tuple[dict[str, Any], bytes]:
        deadline = self.started + settings.boot_seconds + BACKSTOP_SECONDS
        parts = boot_input(settings, evaluator, mode, limits, numpy)
        try:
            self._connection.send(parts, deadline)
            return self._receive(deadline, _MOST_COMPILED_BYTES)
        except (SandboxLost, SandboxOverdue) as error:
            words = self._connection.error_output()
            self._connection.close()
            raise Unavailable(f"a sandbox did not boot: {error} {words}".strip()) from error

    def run(self, job: Job) -> TrialReport:
        """Runs one trial.

        Raises:
          SandboxLost: The sandbox ended or spoke nonsense.
          SandboxOverdue: The sandbox did not answer well after the trial's deadline.
          EvaluatorBroken: The evaluator does not define the function.
        """
        if job.function not in self._functions:
            raise EvaluatorBroken(
                f"it defines no function {job.function!r}",
                where=self._evaluator.entry,
                remedy="Define it there",
            )
        self.clean = False
        deadline = time.monotonic() + job.limits.wall_seconds + BACKSTOP_SECONDS
        self._connection.send(trial_input(job), deadline)
        most = job.limits.result_bytes + _RESULT_OVERHEAD_BYTES + 1 + _CAPTURED_BYTES
        report, raw = self._report(job, deadline, most)
        self.served += 1
        self.clean = not report["left"] and not report["evaluator_lost"]
        parts: list[bytes] = []
        position = 0
        for size in report["sizes"]:
            parts.append(raw[position : position + size])
            position += size
        result, *streams = parts
        return TrialReport(report, result, tuple(streams))

    def _report(self, job: Job, deadline: float, most_raw: int) -> tuple[ReportHeader, bytes]:
        """Returns the report on a trial, and shows the moves of a game that come before it."""
        moves = b""
        while True:
            self._await_frame(deadline - BACKSTOP_SECONDS + _USUAL_SECONDS, deadline)
            try:
                header, raw = self._receive(deadline, most_raw)
            except SandboxOverdue:
                late_seconds = time.monotonic() - deadline
                if late_seconds < BACKSTOP_SECONDS:
                    raise
                # This process was itself held up, by a pause of its container perhaps.
                header, raw = self._receive(time.monotonic() + BACKSTOP_SECONDS, most_raw)
            if "moves" not in header:
                return cast(ReportHeader, header), raw
            moves += raw
            if not raw or len(moves) > _MOVES_BYTES:
                raise SandboxLost(f"{len(moves)} bytes of moves, {len(raw)} of them new")
            if job.watch is not None:
                job.watch(_moves(moves))

    def _await_frame(self, usually: float, deadline: float) -> None:
        """Waits for a frame until it should have come, or longer where the machine is busy.

        There, what keeps the sandbox from answering may get no processor during one look.
        """
        seconds = max(0.0, usually - time.monotonic())
        while self._connection.silent(seconds) and time.monotonic() < deadline:
            if self._connection.outrun() and self._connection.silent():
                raise SandboxOverdue("what runs in the sandbox keeps it from answering")
            seconds = _LOOKING_SECONDS

    def _receive(self, deadline: float, most_raw: int) -> tuple[dict[str, Any], bytes]:
        header_bytes, raw_bytes = LENGTHS.unpack(self._connection.receive(LENGTHS.size, deadline))
        if header_bytes > _LARGEST_HEADER or raw_bytes > most_raw:
            raise SandboxLost(f"a frame of {header_bytes} + {raw_bytes} bytes")
        header: dict[str, Any] = json.loads(self._connection.receive(header_bytes, deadline))
        return header, self._connection.receive(raw_bytes, deadline) if raw_bytes else b""

    def interrupt(self) -> None:
        """Ends the trial of another thread, whose `run` raises SandboxLost."""
        self._connection.interrupt()

    def silent(self) -> bool:
        """Returns whether nothing has arrived since the last trial, not even the stream's end."""
        return self._connection.silent()

    def check(self) -> None:
        """Distinguishes a sandbox that hangs from one that cannot be reached.

        Raises:
          Unavailable: The engine does not answer.
        """
        self._connection.check()

    def loss(self) -> Loss:
        """Returns why a sandbox is lost.

        Raises:
          Unavailable: The engine does not answer.
        """
        return self._connection.loss()

    def close(self) -> None:
        self._connection.close()


def _moves(lines: bytes) -> list[str]:
    """Returns the moves of whole lines, each of which should be a text in JSON."""
    moves = []
    for line in lines.split(b"\n")[:-1]:
        try:
            moves.append(str(json.loads(line)))
        except (ValueError, RecursionError):
            break
    return moves
