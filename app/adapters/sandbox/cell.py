"""The worker's side of one warm cell."""

import json
import struct
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from app.adapters.sandbox.bundle import harness_frame, preloads
from app.domain.problem import Evaluator, EvaluatorBroken, Job, Limits, Mode
from app.ports.protocols import Misconfigured, Unavailable

_LENGTHS = struct.Struct(">IQ")
_LARGEST_HEADER = 1 << 20
_CAPTURED_BYTES = 5 << 16  # four streams of bounded head and tail
_RESULT_OVERHEAD_BYTES = 65_536  # as in the harness's `warm`
_EXTRA_MEMORY_MIB = 128
_BACKSTOP_SECONDS = 5.0  # after the deadline: ending and cleaning inside the cell

_REMEDY = "Correct it; a package it needs goes into a requirements.txt beside it"
_UNBOUNDED_REMEDY = (
    "Use the docker sandbox, start the worker as root with the capabilities SETUID and SETGID, or "
    "permit the system call seccomp(2); sandbox.unbounded_processes=true (or "
    "EVOQ_SANDBOX__UNBOUNDED_PROCESSES=true for a worker) accepts that one program may fill the "
    "machine with processes"
)


class CellLost(Exception):
    """The cell ended or spoke nonsense; a fresh one may do better."""


class Overdue(Exception):
    """The cell did not answer in time."""


class Channel(Protocol):
    """A byte stream to and from a cell's zygote."""

    def send(self, parts: Sequence[bytes], deadline: float) -> None:
        """Raises CellLost or Overdue; `deadline` is in `time.monotonic` seconds."""
        ...

    def receive(self, size: int, deadline: float) -> bytes:
        """Returns exactly `size` bytes; raises CellLost or Overdue."""
        ...

    def silent(self) -> bool:
        """Returns whether nothing has come since the last frame, not even the stream's end."""
        ...

    def check(self) -> None:
        """Raises Unavailable if what lies between here and the cell does not answer."""
        ...

    def starved(self) -> bool:
        """Returns whether the cell is lost because it wanted more memory than it may have."""
        ...

    def last_words(self) -> str:
        """Returns what the cell wrote to its error stream, bounded."""
        ...

    def close(self) -> None:
        """Ends the cell and everything in it.  Idempotent."""
        ...


@dataclass(frozen=True, slots=True)
class CellSettings:
    """How cells of one backend are booted.

    Attributes:
      kind: "process" or "container": who puts up the walls.
      scratch: A process cell's own empty directory; "" for a container.
      levels: Which walls a process cell tries, strongest first.
      counters: Files of a process cell's cgroup that count what was ended for want of memory.
      offset: Keeps the identities of cells on one machine apart.
      boot_seconds: Longest time a boot, with the evaluator's import, may take.
      unbounded_processes: Whether a process cell also boots where nothing bounds how many processes
        a program starts.
    """

    kind: str
    scratch: str = ""
    levels: tuple[str, ...] = ()
    counters: tuple[str, ...] = ()
    offset: int = 0
    boot_seconds: float = 60.0
    unbounded_processes: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """What the zygote says about a trial, and the raw bytes the trial left."""

    header: dict[str, Any]
    result: bytes
    streams: tuple[bytes, bytes, bytes, bytes]


class Cell:
    """A booted cell: one trial at a time.

    Attributes:
      walls: Which protections stand, as the zygote found them.
      boot_seconds: What booting cost.
      served: Trials so far.
      clean: Whether the last trial left nothing; a cell that is not is thrown away.
    """

    def __init__(
        self,
        channel: Channel,
        settings: CellSettings,
        evaluator: Evaluator,
        mode: Mode,
        limits: Limits,
    ) -> None:
        self._channel = channel
        self._evaluator = evaluator
        self.served = 0
        self.clean = True
        self.started = time.monotonic()
        answer = self._boot(settings, evaluator, mode, limits)
        if "broken" in answer:
            channel.close()
            raise EvaluatorBroken(f"{answer['broken']}. {_REMEDY}")
        if "refused" in answer:
            channel.close()
            raise Misconfigured(f"{answer['refused']}. {_UNBOUNDED_REMEDY}")
        self._functions = frozenset(answer["functions"])
        self.walls: dict[str, Any] = answer["walls"]
        self.boot_seconds = time.monotonic() - self.started

    def _boot(
        self, settings: CellSettings, evaluator: Evaluator, mode: Mode, limits: Limits
    ) -> dict[str, Any]:
        boot = {
            "kind": settings.kind,
            "scratch": settings.scratch,
            "levels": settings.levels,
            "counters": settings.counters,
            "memory_bytes": whole_cell_mib(limits) << 20,
            "offset": settings.offset,
            "unbounded_processes": settings.unbounded_processes,
            "boot_seconds": settings.boot_seconds,
            "mode": mode.value,
            "preload": preloads(evaluator.files),
            "result_bytes": limits.result_bytes,
        }
        files = {
            "entry": evaluator.entry,
            "files": [[name, len(contents)] for name, contents in evaluator.files.items()],
            "environment": dict(evaluator.environment),
        }
        deadline = self.started + settings.boot_seconds + _BACKSTOP_SECONDS
        try:
            parts = [harness_frame(), *_frame(boot), *_frame(files, evaluator.files.values())]
            self._channel.send(parts, deadline)
            header, _ = self._receive(deadline, 0)
        except (CellLost, Overdue) as error:
            words = self._channel.last_words()
            self._channel.close()
            raise Unavailable(f"a sandbox cell did not boot: {error} {words}".strip()) from error
        return header

    def run(self, job: Job) -> Report:
        """Runs one trial.

        Raises:
          CellLost: The cell ended or spoke nonsense.
          Overdue: The cell did not answer well after the trial's deadline.
          EvaluatorBroken: The evaluator does not define the function.
        """
        if job.function not in self._functions:
            raise EvaluatorBroken(f"{self._evaluator.entry} defines no function {job.function!r}")
        header = {
            "function": job.function,
            "suffixes": [suffix for suffix, _ in job.programs],
            "sizes": [len(source) for _, source in job.programs],
            "limits": asdict(job.limits),
            "seed": job.seed,
        }
        self.clean = False
        deadline = time.monotonic() + job.limits.wall_seconds + _BACKSTOP_SECONDS
        self._channel.send(_frame(header, [source for _, source in job.programs]), deadline)
        most = job.limits.result_bytes + _RESULT_OVERHEAD_BYTES + 1 + _CAPTURED_BYTES
        report, raw = self._receive(deadline, most)
        self.served += 1
        self.clean = not report["left"] and not report["loader_lost"]
        parts: list[bytes] = []
        position = 0
        for size in report["sizes"]:
            parts.append(raw[position : position + size])
            position += size
        result, *streams = parts
        return Report(report, result, (streams[0], streams[1], streams[2], streams[3]))

    def _receive(self, deadline: float, most_raw: int) -> tuple[dict[str, Any], bytes]:
        header_bytes, raw_bytes = _LENGTHS.unpack(self._channel.receive(_LENGTHS.size, deadline))
        if header_bytes > _LARGEST_HEADER or raw_bytes > most_raw:
            raise CellLost(f"a frame of {header_bytes} + {raw_bytes} bytes")
        header: dict[str, Any] = json.loads(self._channel.receive(header_bytes, deadline))
        return header, self._channel.receive(raw_bytes, deadline) if raw_bytes else b""

    def silent(self) -> bool:
        """Returns whether the cell waits for a trial, as far as can be seen without asking it."""
        return self._channel.silent()

    def check(self) -> None:
        """Tells a cell that hangs from one that cannot be reached.

        Raises:
          Unavailable: What lies between here and the cell does not answer.
        """
        self._channel.check()

    def starved(self) -> bool:
        """Returns whether a lost cell wanted more memory than it may have.

        Raises:
          Unavailable: What would know does not answer.
        """
        return self._channel.starved()

    def close(self) -> None:
        self._channel.close()


def whole_cell_mib(limits: Limits) -> int:
    """Returns how much memory a cgroup around a cell may hold, in MiB.

    One process of a program is limited to `memory_mib`; beside it live the zygotes, and what the
    kernel charges for files.
    """
    return limits.memory_mib + limits.memory_mib // 4 + _EXTRA_MEMORY_MIB


def _frame(header: dict[str, Any], raw: Any = ()) -> list[bytes]:
    text = json.dumps(header).encode()
    contents = list(raw)
    return [_LENGTHS.pack(len(text), sum(len(part) for part in contents)) + text, *contents]
