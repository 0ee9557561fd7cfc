"""Frames between a worker and a sandbox: what boots it, a trial, and the report on one.

`workers.harness.frames` has the same for the sandbox's side.
"""

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TypedDict

from app.adapters.sandbox.bundle import (
    BOOTSTRAP,
    compiled_elsewhere,
    harness_frame,
    may_execute_a_programs_text,
    preloads,
)
from app.adapters.sandbox.data_mounts import located
from app.domain.problem import Evaluator, Job, Limits, Mode

LENGTHS = struct.Struct(">IQ")
"""Bytes of a frame's header, and of what follows it."""
_EXTRA_MEMORY_MIB = 128


@dataclass(frozen=True, slots=True)
class BootSettings:
    """How sandboxes of one backend are booted.

    Attributes:
      kind: "process", which isolates itself; "container", which the engine isolates; or "pod", a
        container with a network, which system call filters close.
      scratch: A process sandbox's own empty directory; "" for a container.
      levels: Kinds of isolation that a process sandbox tries, strongest first.
      counters: Files of a process sandbox's cgroup that count what was ended for want of memory.
      offset: Distinguishes the identities of the sandboxes of one machine.
      boot_seconds: Longest time a boot, with the evaluator's import, may take.
      unbounded_processes: Whether a process sandbox also boots where nothing bounds the number of
        a program's processes, or what it writes.
      trials_per_evaluator: Most trials of one process of the evaluator.
      interpreter: The problem's own, which a process sandbox starts once it has isolated itself.
      unisolated_builds: Whether it does so also where nothing isolates it.
      engine: Socket files of the machine's Docker engine, which no evaluator may open.
      compiled: What a sandbox of the same interpreter has compiled; empty for what ours compiles.
    """

    kind: str
    scratch: str = ""
    levels: tuple[str, ...] = ()
    counters: tuple[str, ...] = ()
    offset: int = 0
    boot_seconds: float = 60.0
    unbounded_processes: bool = False
    trials_per_evaluator: int = 50
    interpreter: str = ""
    unisolated_builds: bool = False
    engine: tuple[str, ...] = ()
    compiled: bytes = b""


class ReportHeader(TypedDict):
    """What the zygote observed of a trial.

    Attributes:
      stopped_by: The bound that the trial exceeded, or "timeout"; "" where there is none.
      blamed: Seat of the player that exceeded it; None where that is not known.
      largest: Seat of the player with the most memory; None where that is not known.
      statuses: For each process that ended its name or seat, its status as `os.waitpid` has it,
        and whether the zygote ended it.
      oom_kills: How many processes the kernel ended for want of memory.
      evaluator_lost: Whether the evaluator's zygote ended.
      left: Processes and files that could not be removed.
      sizes: Bytes of the result and of each stream.
    """

    stopped_by: str
    blamed: int | None
    largest: int | None
    statuses: list[tuple[str, int, bool]]
    wall_seconds: float
    cpu_seconds: float
    waited_seconds: float
    stalled_seconds: float
    peak_kib: int
    oom_kills: int
    evaluator_lost: bool
    left: list[str]
    sizes: list[int]


@dataclass(frozen=True, slots=True)
class TrialReport:
    """The zygote's report on a trial, and the raw bytes that the trial wrote.

    Attributes:
      streams: Output and errors of the evaluator, then those of the programs.
    """

    header: ReportHeader
    result: bytes
    streams: tuple[bytes, ...]


def boot_input(
    settings: BootSettings, evaluator: Evaluator, mode: Mode, limits: Limits, numpy: bool
) -> list[bytes]:
    """Returns what a sandbox reads when it boots: the harness, and the files of the problem."""
    if may_execute_a_programs_text(evaluator.files):
        settings = replace(settings, trials_per_evaluator=1)
    given = asdict(settings)
    compiled = given.pop("compiled")
    boot = {
        **given,
        "memory_bytes": sandbox_memory_mib(limits) << 20,
        "bootstrap": BOOTSTRAP,
        "mode": mode.value,
        "preload": preloads({**evaluator.fixed, **evaluator.files}, numpy),
        "result_bytes": limits.result_bytes,
        "mounts": located(evaluator),
        "fixed": [[path, len(contents)] for path, contents in evaluator.fixed.items()],
    }
    files = {
        "entry": evaluator.entry,
        "files": [[name, len(contents)] for name, contents in evaluator.files.items()],
        "environment": dict(evaluator.environment),
        "mounts": boot["mounts"],
    }
    harness = harness_frame()
    if compiled:
        harness = compiled_elsewhere(harness, compiled)
    frames = _frame(boot, evaluator.fixed.values())
    return [harness, *frames, *_frame(files, evaluator.files.values())]


def trial_input(job: Job) -> list[bytes]:
    """Returns what a booted sandbox reads for a trial."""
    header = {
        "function": job.function,
        "suffixes": [suffix for suffix, _ in job.programs],
        "sizes": [len(source) for _, source in job.programs],
        "limits": asdict(job.limits),
        "seed": job.seed,
        "cases": list(job.cases),
        "game": asdict(job.game) if job.game else None,
        "folder": asdict(job.folder) if job.folder else None,
    }
    return _frame(header, [source for _, source in job.programs])


def sandbox_memory_mib(limits: Limits) -> int:
    """Returns how much memory a cgroup around a sandbox may hold, in MiB.

    One process of a program is limited to `memory_mib`; beside it live the zygotes, and what the
    kernel charges for files.
    """
    return limits.memory_mib + limits.memory_mib // 4 + _EXTRA_MEMORY_MIB


def _frame(header: Mapping[str, object], raw: Iterable[bytes] = ()) -> list[bytes]:
    text = json.dumps(header).encode()
    contents = list(raw)
    return [LENGTHS.pack(len(text), sum(len(part) for part in contents)) + text, *contents]
