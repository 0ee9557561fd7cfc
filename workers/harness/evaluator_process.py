"""The evaluator's own zygote: imports it once and forks a fresh process of it for every trial.

Only this process reads the evaluator's files from the worker, so that no byte of them is ever in
the memory that programs are forked from.  In compatible mode, where the
forked process also imports the program, it keeps the right to take a throw-away identity.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib.util
import inspect
import json
import os
import socket
import sys
import traceback
from dataclasses import dataclass
from typing import Any

from . import confine, frames, kernel, landlock, limits, result
from .confine import Confinement
from .forks import ForkFilter
from .sandbox_layout import NESTED, UIDS, SandboxLayout, become
from .syscall_filter import SyscallFilter

MODULE_NAME = "evaluation_module"
_MESSAGE_BYTES = 131_072
_MOST_NAMES = 1000
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


class EvaluatorZygote:
    """The zygote's handle on the evaluator's zygote."""

    def __init__(self, pid: int, channel: socket.socket) -> None:
        self.pid = pid
        self.channel = channel

    def start(self, request: dict[str, Any], fds: list[int]) -> None:
        socket.send_fds(self.channel, [json.dumps(request).encode()], fds)

    def receive(self) -> dict[str, Any] | None:
        """Returns the next report; None if the evaluator's zygote has ended."""
        try:
            message = self.channel.recv(_MESSAGE_BYTES)
        except ConnectionError:
            return None
        return json.loads(message) if message else None


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
    entry = _receive_files(layout, mode, host_in)
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
    try:
        module = _import(layout, entry)
    except BaseException as error:
        _send(channel, {"broken": result.describe_broken(error, layout.evaluator)})
        return
    if mode == "compatible" and layout.identities == UIDS:
        _lend(layout.temporary)
    gc.collect()
    gc.freeze()
    functions = [name for name, value in vars(module).items() if callable(value)]
    _send(channel, {"functions": functions[:_MOST_NAMES]})
    while True:
        message, fds, _, _ = socket.recv_fds(channel, _MESSAGE_BYTES, 4)
        if not message:
            return
        request = json.loads(message)
        pid = os.fork()
        if pid == 0:
            try:
                _trial(layout, mode, module, request, fds, filters)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        for fd in fds:
            os.close(fd)
        _send(channel, {"pid": pid})
        _, status, usage = os.wait4(pid, 0)
        cpu_seconds = usage.ru_utime + usage.ru_stime
        _send(channel, {"status": status, "cpu": cpu_seconds, "peak_kib": usage.ru_maxrss})


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


def _receive_files(layout: SandboxLayout, mode: str, host_in: int) -> str:
    """Writes the evaluator's files to its directory and returns the path of its module."""
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
    os.environ.update(confine.program_environment(layout.temporary))
    os.environ.update(header["environment"])
    return os.path.join(layout.evaluator, header["entry"])


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


def _trial(
    layout: SandboxLayout,
    mode: str,
    module: Any,
    request: dict[str, Any],
    fds: list[int],
    filters: TrialFilters,
) -> None:
    results, out, err, *channels = fds
    null = os.open("/dev/null", os.O_RDWR)
    limits.take_streams(null, out, err)
    limits.close_all_but((results, *channels))
    os.set_inheritable(results, False)  # what the evaluator starts must not answer for it
    directory, bounds = request["directory"], request["limits"]
    os.environ.update(TMPDIR=directory, HOME=directory, EVOQ_PROGRAM_SOURCE=request["sources"])
    tempfile = sys.modules.get("tempfile")
    if tempfile is not None and vars(tempfile).get("tempdir") == layout.temporary:
        vars(tempfile)["tempdir"] = None  # determined during the import, and common to all trials
    _confine(layout, mode, request, filters)
    if filters.fork_filter is not None:
        with socket.socket(fileno=channels[0]) as channel:
            filters.fork_filter.install_for(channel)
    confine.reseed(request["seed"])
    shared, asked_pid = mode == "compatible", os.getpid()
    document = _call(
        module, request["function"], request["paths"], shared, bounds, layout.evaluator
    )
    if os.getpid() != asked_pid:  # a forked child that returned: its parent answers
        os._exit(0)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # closed or replaced by what ran
            stream.flush()
    view = memoryview(document)
    while view:
        view = view[os.write(results, view[:_RESULT_CHUNK]) :]
    os._exit(0)


def _confine(
    layout: SandboxLayout, mode: str, request: dict[str, Any], filters: TrialFilters
) -> None:
    """Takes from this process what the evaluator, or the program in it, must not have."""
    directory, bounds = request["directory"], request["limits"]
    if mode == "compatible":
        files = (layout.evaluator, layout.temporary, layout.library)
        confinement = Confinement(request["uid"], directory, (), files, apart=False)
        confine.confine(layout, confinement, bounds, filters.program)
        return
    kernel.die_with_parent()
    limits.apply(bounds, 0)
    os.umask(0o077)
    os.chdir(directory)
    kernel.hide_memory()
    if layout.identities != NESTED:
        filters.evaluator.install()


def _call(
    module: Any,
    function: str,
    paths: list[str],
    shared: bool,
    bounds: dict[str, Any],
    root: str,
) -> bytes:
    asked_pid = os.getpid()
    try:
        returned = vars(module)[function](*paths)
        if inspect.isawaitable(returned):
            returned = asyncio.run(_awaited(returned))
        return result.document(returned, int(bounds["result_bytes"]))
    except BaseException as error:
        if os.getpid() != asked_pid:
            raise  # a forked child ends of its exception, as it would without the harness
        try:
            return result.raised(error, tuple(paths), root, shared)
        except BaseException:
            return result.failure("runtime", "an exception that cannot be described")


async def _awaited(awaitable: Any) -> Any:
    return await awaitable
