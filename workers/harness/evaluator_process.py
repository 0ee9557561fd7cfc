"""The evaluator's own zygote: imports it once and forks the processes that measure trials.

Only this process reads the evaluator's files from the worker, so that no byte of them is ever in
the memory that programs are forked from.  In compatible mode, where the
forked process also imports the program, it keeps the right to take a throw-away identity.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import inspect
import json
import os
import socket
import struct
import sys
import traceback
from dataclasses import dataclass
from typing import Any

from . import confine, evaluator_layer, forks, frames, kernel, landlock, limits, result
from .evaluator_state import (
    CpuAndMemory,
    ModuleState,
    ProcessState,
    Unreadable,
    forget_temporary_directory,
    packages,
)
from .forks import ForkFilter
from .library_state import LibraryState
from .sandbox_layout import NESTED, UIDS, SandboxLayout, become
from .syscall_filter import SyscallFilter

MODULE_NAME = "evaluation_module"
_MESSAGE_BYTES = 131_072
_MOST_NAMES = 1000
_MOST_DESCRIPTORS = 5
_RESULT_CHUNK = 65_536
_DONE = struct.Struct("=dQ")
"""CPU seconds and peak memory in KiB, which a kept process reports after a trial."""


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


class EvaluatorZygote:
    """The zygote's handle on the evaluator's zygote.

    Attributes:
      trials: Trials that one process of the evaluator may measure; 1 where none is kept.
      kept: The process that waits for another trial; None if there is none.
    """

    def __init__(self, pid: int, channel: socket.socket) -> None:
        self.pid = pid
        self.channel = channel
        self.trials = 1
        self.kept: KeptEvaluator | None = None

    def start(self, request: dict[str, Any], fds: list[int]) -> int:
        """Has a process measure a trial: the kept one, or a new one of the evaluator's zygote.

        Returns:
          The process, 0 for one whose number the evaluator's zygote will report.
        """
        message = json.dumps({**request, "trials": self.trials}).encode()
        if self.kept is not None:
            if self.kept.start(message, fds):
                return self.kept.pid
            self.end_kept()
        if self.trials == 1:
            socket.send_fds(self.channel, [message], fds)
            return 0
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(self.channel, [message], [*fds, theirs.fileno()])
        self.kept = KeptEvaluator(ours, self.trials)
        return 0

    def end_kept(self) -> None:
        """Closes the connection to the kept process, which ends it."""
        if self.kept is not None:
            self.kept.channel.close()
            self.kept = None

    def pids(self) -> frozenset[int]:
        """Returns the evaluator's processes that outlive a trial."""
        return frozenset((self.pid,) if self.kept is None else (self.pid, self.kept.pid))

    def receive(self, *, wait: bool = True) -> dict[str, Any] | None:
        """Returns the next report; None if the evaluator's zygote has ended.

        Raises:
          BlockingIOError: There is none, and `wait` is false.
        """
        try:
            message = self.channel.recv(_MESSAGE_BYTES, 0 if wait else socket.MSG_DONTWAIT)
        except ConnectionError:
            return None
        return json.loads(message) if message else None


class KeptEvaluator:
    """The zygote's handle on a process that measures several trials, one after the other.

    Attributes:
      pid: Its number; 0 before it is known.
      cpu_seconds: CPU time that it has reported so far.
    """

    def __init__(self, channel: socket.socket, trials: int) -> None:
        self.channel = channel
        self.pid = 0
        self.cpu_seconds = 0.0
        self._left = trials - 1

    def start(self, message: bytes, fds: list[int]) -> bool:
        """Returns whether the process was there to be sent a request."""
        try:
            self.channel.recv(1, socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass
        except OSError:
            return False
        else:
            # The process has ended.
            return False
        if not self._left:
            return False
        self._left -= 1
        try:
            socket.send_fds(self.channel, [message], fds)
        except OSError:
            return False
        return True

    def receive(self) -> dict[str, Any] | None:
        """Returns the report on a trial that left the process fit for the next; None at its end."""
        try:
            message = self.channel.recv(_DONE.size)
        except OSError:
            return None
        if len(message) != _DONE.size:
            return None
        cpu_seconds, peak_kib = _DONE.unpack(message)
        self.cpu_seconds += cpu_seconds
        return {"status": 0, "cpu": cpu_seconds, "peak_kib": peak_kib}


def start(layout: SandboxLayout, mode: str, host_in: int, filters: TrialFilters) -> EvaluatorZygote:
    """Forks the evaluator's zygote, which reads the next frame of `host_in` itself.

    Args:
      layout: The sandbox's.
      mode: "guarded" or "compatible".
      host_in: Where the evaluator's files come from.
      filters: Of programs and evaluators.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            ours.close()
            _serve(layout, mode, host_in, theirs, filters)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    theirs.close()
    return EvaluatorZygote(pid, ours)


def _serve(
    layout: SandboxLayout, mode: str, host_in: int, channel: socket.socket, filters: TrialFilters
) -> None:
    _take_identity(layout, mode)
    received = _receive_files(layout, mode, host_in)
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.closerange(3, channel.fileno())
    os.closerange(channel.fileno() + 1, 1 << 16)
    kernel.no_new_privileges()
    kernel.hide_memory()
    if mode == "guarded":
        landlock.scope_sockets()
        _keep_sockets_in_files()
    preloaded = packages(sys.modules)
    for name, path in received.mounts.items():
        if not os.access(f"{layout.evaluator}/data/{name}", os.R_OK, effective_ids=True):
            _send(channel, {"unreadable": path})
            return
    try:
        module = _import(layout, received.entry)
    except BaseException as error:
        _send(channel, {"broken": result.describe_broken(error, layout.evaluator)})
        return
    if layout.identities == UIDS and os.geteuid() != layout.first_uid:
        # An evaluator that took the identity back while it was imported gives it up again.
        os.setegid(layout.first_uid)
        os.seteuid(layout.first_uid)
    evaluator_layer.keep(layout, mode)
    if mode == "compatible" and layout.identities == UIDS:
        _lend(layout.temporary)
    # A directory that the import has chosen would be common to all trials.
    forget_temporary_directory(layout.temporary)
    gc.collect()
    gc.freeze()
    functions = [name for name, value in vars(module).items() if callable(value)]
    imported = _readable_state(layout, preloaded) if mode == "guarded" else None
    _send(channel, {"functions": functions[:_MOST_NAMES], "keepable": imported is not None})
    while True:
        message, fds, _, _ = socket.recv_fds(channel, _MESSAGE_BYTES, _MOST_DESCRIPTORS)
        if not message:
            return
        request = json.loads(message)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                process = EvaluatorProcess(layout, mode, module, filters, received.variables)
                process.run(request, fds, imported)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        for fd in fds:
            os.close(fd)
        _send(channel, {"pid": pid})
        _, status, usage = os.wait4(pid, 0)
        cpu_seconds = usage.ru_utime + usage.ru_stime
        report = {"status": status, "cpu": cpu_seconds, "peak_kib": usage.ru_maxrss}
        _send(channel, {"of": pid, **report})


def _readable_state(layout: SandboxLayout, preloaded: frozenset[str]) -> ModuleState | None:
    """Returns what the evaluator's modules hold; None if that cannot be compared after a trial."""
    try:
        return ModuleState(layout.evaluator, preloaded)
    except Unreadable:
        return None


def _take_identity(layout: SandboxLayout, mode: str) -> None:
    kernel.die_with_parent()
    if layout.identities == UIDS:
        os.setgroups([])
        if mode == "guarded":
            become(layout.first_uid)
        else:
            os.setegid(layout.first_uid)
            os.seteuid(layout.first_uid)
        kernel.die_with_parent()


def _lend(folder: str) -> None:
    """Lets trials, which have other identities, read what the import left in `folder`."""
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(place, name)
            if not os.path.islink(path):
                mode = os.stat(path).st_mode & 0o7777
                os.chmod(path, mode | (mode & 0o500) >> 3 | (mode & 0o500) >> 6)


def _keep_sockets_in_files() -> None:
    """Keeps `multiprocessing` from abstract sockets, which know no identity (CVE-2022-42919)."""
    import multiprocessing.util

    vars(multiprocessing.util)["abstract_sockets_supported"] = False


def _send(channel: socket.socket, message: dict[str, Any]) -> None:
    channel.send(json.dumps(message).encode())


@dataclass(frozen=True)
class _Received:
    """The evaluator as the worker has sent it.

    Attributes:
      entry: The path of its module.
      variables: Names of the variables that the problem sets.
      mounts: Paths of data on the machine, by name.
    """

    entry: str
    variables: frozenset[str]
    mounts: dict[str, str]


def _receive_files(layout: SandboxLayout, mode: str, host_in: int) -> _Received:
    """Writes the evaluator's files to its directory and sets its variables."""
    received = frames.read_header(host_in)
    if received is None:
        os._exit(0)
    header, _ = received
    os.umask(0o077 if mode == "guarded" else 0o022)
    for name, size in header["files"]:
        path = os.path.join(layout.evaluator, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        contents = bytearray(size)
        if not frames.fill(host_in, contents):
            os._exit(0)
        with open(path, "wb") as file:
            file.write(contents)
    _link_data(layout, header["mounts"])
    os.environ.update(confine.program_environment(layout, layout.temporary))
    confine.move_into(layout.temporary)
    os.environ.update(header["environment"])
    entry = os.path.join(layout.evaluator, header["entry"])
    return _Received(entry, frozenset(header["environment"]), header["mounts"])


def _link_data(layout: SandboxLayout, mounts: dict[str, str]) -> None:
    """Lets the evaluator find data that is not among its files as `data/NAME` beside it."""
    if mounts:
        os.makedirs(f"{layout.evaluator}/data", exist_ok=True)
    for name, path in mounts.items():
        target = f"{layout.data}/{name}" if layout.own_root else path
        os.symlink(target, f"{layout.evaluator}/data/{name}")


def _import(layout: SandboxLayout, path: str) -> Any:
    os.chdir(os.path.dirname(path))
    sys.path.insert(0, os.path.dirname(path))
    if layout.evaluator not in sys.path:
        sys.path.insert(1, layout.evaluator)
    spec = importlib.util.spec_from_file_location(MODULE_NAME, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{os.path.basename(path)} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE_NAME] = module
    spec.loader.exec_module(module)
    return module


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
            channel.send(_DONE.pack(now.cpu_seconds - spent.cpu_seconds, now.peak_kib))
            message, fds, _, _ = socket.recv_fds(channel, _MESSAGE_BYTES, _MOST_DESCRIPTORS)
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
