"""A process of the evaluator, which measures one trial, or several one after the other."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import socket
import sys
from dataclasses import dataclass
from typing import Any

from . import confine, evaluator_layer, forks, kernel, limits, result
from .evaluator_handles import DONE, MESSAGE_BYTES, MOST_DESCRIPTORS
from .evaluator_state import CpuAndMemory, ModuleState, ProcessState
from .forks import ForkFilter
from .library_state import LibraryState
from .sandbox_layout import NESTED, SandboxLayout
from .syscall_filter import SyscallFilter

_RESULT_CHUNK = 65_536


@dataclass(frozen=True)
class TrialFilters:
    """The filters that the processes of a trial install as their last step.

    Attributes:
      program: Of a program.
      evaluator: Of an evaluator that is apart from programs.
      fork_filter: Of both, where the zygote answers forks; else None.
    """

    program: SyscallFilter
    evaluator: SyscallFilter
    fork_filter: ForkFilter | None


@dataclass(frozen=True)
class _Writers:
    """The writing ends of a trial's pipes.

    Attributes:
      moves: Takes the moves of a game, and never waits; None where none is played.
    """

    results: int
    out: int
    err: int
    moves: int | None

    def kept(self) -> tuple[int, ...]:
        """Returns those that the evaluator itself writes to."""
        return (self.results,) if self.moves is None else (self.results, self.moves)


def _writers(request: dict[str, Any], fds: list[int]) -> tuple[_Writers, list[int]]:
    """Returns the writing ends that came with a request, and the other descriptors."""
    results, out, err, *others = fds
    moves = others.pop(0) if request["moves"] else None
    return _Writers(results, out, err, moves), others


class EvaluatorProcess:
    """A process of the evaluator, which measures one trial, or several where it is kept.

    Args:
      layout: The sandbox's.
      mode: "guarded" or "compatible".
      module: The evaluator.
      filters: Of programs and evaluators.
      variables: Names of the variables that the problem sets.
    """

    def __init__(
        self,
        layout: SandboxLayout,
        mode: str,
        module: Any,
        filters: TrialFilters,
        variables: frozenset[str],
    ) -> None:
        self._layout, self._mode, self._module = layout, mode, module
        self._filters, self._variables = filters, variables

    def run(self, request: dict[str, Any], fds: list[int], imported: ModuleState | None) -> None:
        """Measures a first trial, and others for as long as nothing tells them from a first.

        Args:
          request: Of the first trial.
          fds: Its result, its streams, and a channel if forks are answered or the process is kept.
          imported: What the modules held after the import; None where the process is not kept.
        """
        writers, channels = _writers(request, fds)
        limits.begin_session()
        limits.take_streams(os.open("/dev/null", os.O_RDWR), writers.out, writers.err)
        limits.buffer_lines()
        limits.close_all_but((*writers.kept(), *channels))
        channel = socket.socket(fileno=channels[0]) if channels else None
        _confine(self._layout, self._mode, request, self._filters, channel)
        if channel is not None and request["trials"] > 1 and imported is not None:
            self._run_several(request, writers, imported, channel)
            return
        if channel is not None:
            channel.close()
        self._measure(request, writers)

    def _run_several(
        self,
        request: dict[str, Any],
        writers: _Writers,
        imported: ModuleState,
        channel: socket.socket,
    ) -> None:
        before, spent = ProcessState(self._layout.work), CpuAndMemory.now()
        libraries = LibraryState()
        while True:
            if not (self._measure(request, writers) and before.unchanged_but_for_the_trial()):
                return
            if not (imported.unchanged() and libraries.unchanged()):
                return
            os.chdir("/")
            for fd in writers.kept():
                os.close(fd)
            now = CpuAndMemory.now()
            channel.send(DONE.pack(now.cpu_seconds - spent.cpu_seconds, now.peak_kib))
            message, fds, _, _ = socket.recv_fds(channel, MESSAGE_BYTES, MOST_DESCRIPTORS)
            if not message:
                return
            request, spent = json.loads(message), now
            writers, _ = _writers(request, fds)
            limits.take_streams(0, writers.out, writers.err)
            limits.buffer_lines()
            for fd in (writers.out, writers.err):
                os.close(fd)
            limits.renew_cpu_time(request["limits"])

    def _measure(self, request: dict[str, Any], writers: _Writers) -> bool:
        """Runs the stage function and writes its document; returns whether that is a result."""
        for fd in writers.kept():
            # Processes that the evaluator starts must not answer for it.
            os.set_inheritable(fd, False)
        directory, asked_pid = request["directory"], os.getpid()
        os.environ["EVOQ_PROGRAM_SOURCE"] = request["sources"]
        os.umask(0o077)
        confine.move_into(directory, self._variables)
        confine.reseed(request["seed"])
        shared = self._mode == "compatible"
        if not shared:
            evaluator_layer.restore_own(self._layout)
        document = _call(
            self._module, request, shared, self._layout.evaluator, writers.moves
        )  # fmt: skip
        # A forked child that returns here leaves the answer to its parent.
        if os.getpid() != asked_pid:
            os._exit(0)
        for stream in (sys.stdout, sys.stderr):
            # The evaluator may have closed or replaced the stream.
            with contextlib.suppress(Exception):
                stream.flush()
        view = memoryview(document)
        while view:
            view = view[os.write(writers.results, view[:_RESULT_CHUNK]) :]
        return result.is_result(document)


def _confine(
    layout: SandboxLayout,
    mode: str,
    request: dict[str, Any],
    filters: TrialFilters,
    channel: socket.socket | None,
) -> None:
    """Takes from this process what the evaluator, or the program in it, must not have."""
    bounds = request["limits"]
    answer_forks = forks.installation(filters.fork_filter, channel)
    if mode == "compatible":
        confinement = confine.of_evaluator(layout, request["uid"], request["directory"])
        confine.confine(layout, confinement, bounds, filters.program, answer_forks)
        return
    kernel.die_with_parent()
    limits.apply(bounds, 0, request["trials"])
    kernel.show_memory() if layout.measured else kernel.hide_memory()
    answer_forks()
    if layout.identities != NESTED:
        filters.evaluator.install()


def _call(
    module: Any, request: dict[str, Any], shared: bool, root: str, showing: int | None
) -> bytes:
    asked_pid, paths = os.getpid(), request["paths"]
    named = {"cases": request["cases"]} if request["cases"] else {}
    moves: list[str] = []
    try:
        returned = vars(module)[request["function"]](*paths, **named)
        if inspect.isawaitable(returned):
            # The zygote has imported asyncio where the evaluator's text shows the need.
            import asyncio

            returned = asyncio.run(_awaited(returned))
        if inspect.isgenerator(returned):
            returned = result.played(returned, moves, showing)
        return result.document(returned, int(request["limits"]["result_bytes"]))
    except BaseException as error:
        if os.getpid() != asked_pid:
            # A forked child ends with its exception, as without the harness.
            raise
        try:
            return result.raised(error, tuple(request["files"]), root, shared, moves)
        except BaseException:
            return result.failure("runtime", "an exception that cannot be described")


async def _awaited(awaitable: Any) -> Any:
    return await awaitable
