"""The evaluator's own zygote: imports it once and forks the processes that measure trials.

Only this process reads the evaluator's files from the worker, so that no byte of them is ever in
the memory that programs are forked from.  In compatible mode, where the
forked process also imports the program, it keeps the right to take a throw-away identity.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import socket
import sys
import traceback
from dataclasses import dataclass
from typing import Any

from . import confine, evaluator_layer, frames, kernel, landlock, result
from .evaluator_handles import MESSAGE_BYTES, MOST_DESCRIPTORS, EvaluatorZygote
from .evaluator_process import EvaluatorProcess, TrialFilters
from .evaluator_state import ModuleState, Unreadable, forget_temporary_directory, packages
from .sandbox_layout import UIDS, SandboxLayout, become

MODULE_NAME = "evaluation_module"
_MOST_NAMES = 1000


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
        message, fds, _, _ = socket.recv_fds(channel, MESSAGE_BYTES, MOST_DESCRIPTORS)
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
