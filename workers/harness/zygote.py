"""The zygote of a warm sandbox: boots once, then runs trials until the worker closes its input.

In a container it is PID 1 with SETUID, SETGID and KILL and nothing else; as a child of the worker
it first isolates itself as far as the kernel permits.  It parses nothing that a program wrote:
results are passed to the worker unread.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import marshal
import os
import select
import signal
import struct
import sys
import time
from dataclasses import asdict
from types import CodeType
from typing import Any

from . import (
    accounts,
    confine,
    evaluator_zygote,
    file_modes,
    frames,
    isolation,
    kernel,
    landlock,
    limits,
    probes,
    processes,
    program_folder,
    program_server,
)
from .evaluator_handles import EvaluatorZygote
from .evaluator_process import TrialFilters
from .forks import ForkFilter
from .sandbox_layout import (
    FORK_FILTER,
    MEASURED,
    NESTED,
    ONE,
    SHARED_MEMORY,
    UIDS,
    SandboxLayout,
    forget_foreign_paths,
    in_container,
    make_places,
)
from .syscall_filter import FilterPermissions, SyscallFilter
from .trial import TrialRun
from .zygote_state import ZygoteState

_PRELOADED = (
    "ast", "bisect", "collections", "copy", "dataclasses", "decimal", "fractions", "functools",
    "hashlib", "heapq", "itertools", "json", "math", "multiprocessing", "operator", "random", "re",
    "statistics", "string", "tempfile", "time", "traceback", "typing", "zlib",
)  # fmt: skip
_PACKAGE = "evoq_harness"
_CONTAINED = "container", "pod"
"""Kinds of sandboxes that something else has isolated; a pod has a network all the same."""
_ENTERED = "entered"
"""Kind of a sandbox whose process has isolated itself."""
_UNBOUNDED, _WRITABLE = "unbounded", "writable"
_UNISOLATED, _ENGINE = "unisolated", "engine"
"""Why a sandbox refuses to serve: the worker knows the words."""


def main(modules: dict[str, str], codes: dict[str, CodeType], known: bool, mark: str = "") -> None:
    """Serves the worker on this process's standard streams.

    Args:
      modules: Path under the harness's directory to source text, for the evaluator's stub.
      codes: Those that this interpreter has imported, or could, compiled.
      known: Whether the worker had them compiled; if not, a container's answer returns them.
      mark: The word that begins each frame where standard output is a log; "" for a stream.
    """
    host = _take_standard_streams()
    if mark:
        frames.write_as_lines(host[1], mark)
    received = frames.read_header(host[0])
    if received is None:
        return
    boot = received[0]
    entered = _entered(boot, modules, codes, host)
    if entered is None:
        return
    layout, host = entered
    fork_filter, limited = _prepare(boot, layout, modules, host[0])
    _keep_what_is_there()
    gc.enable()
    filters = _filters(layout, boot["mode"], fork_filter)
    started = evaluator_zygote.start(layout, boot["mode"], host[0], filters)
    limits.set_environment(confine.program_environment(layout, layout.work))
    answer = _import_report(started, host[0], layout, time.monotonic() + boot["boot_seconds"])
    if boot["kind"] not in _CONTAINED and not boot["unbounded_processes"]:
        if not layout.bounded_by:
            answer = {"refused": _UNBOUNDED}
        elif not _files_bounded(layout):
            answer = {"refused": _WRITABLE}
    if answer.keys() & {"broken", "refused", "unreadable"}:
        frames.write_frame(host[1], answer)
        processes.abandon(layout, started.pid)
    if answer.pop("keepable") and filters.fork_filter is None:
        started.trials = int(boot["trials_per_evaluator"])
    layout.imported = layout.present()
    if boot["mode"] == "guarded":
        program_server.rehearse(f"{layout.work}/rehearsal.py")
    isolation = {**_describe(layout, filters.program), "limits": limited}
    inherited = _within_filter(layout) and filters.fork_filter is None and filters.program.install()
    _keep_what_is_there()
    state = ZygoteState(
        layout=layout, mode=boot["mode"], evaluator_zygote=started,
        program_filter=None if inherited else filters.program,
        fork_filter=filters.fork_filter, host=host, wake=_wake_on_child_end(),
        baseline_bytes=processes.own_baseline_bytes(), result_bytes=int(boot["result_bytes"]),
    )  # fmt: skip
    returned = boot["kind"] == "container" and not known
    compiled = [memoryview(_compiled(codes))] if returned else []
    frames.write_frame(host[1], {**answer, "isolation": isolation}, compiled)
    while True:
        _serve_one(state)


def _entered(
    boot: dict[str, Any],
    modules: dict[str, str],
    codes: dict[str, CodeType],
    host: tuple[int, int],
) -> tuple[SandboxLayout, tuple[int, int]] | None:
    """Isolates this process; returns its layout and its streams, or None where it is refused.

    Where the problem has an interpreter of its own, that one goes on from here.
    """
    if boot["kind"] == _ENTERED:
        return _continued(boot, host)
    layout = _layout(boot)
    # Packages of the interpreter, and an evaluator in compatible mode, can be what this is.
    as_itself = bool(boot["interpreter"]) or boot["mode"] == "compatible"
    file = probes.openable(boot["engine"], layout, as_itself=as_itself)
    if file:
        frames.write_frame(host[1], {"refused": _ENGINE, "file": file})
        return None
    if boot["interpreter"]:
        _continue_in(boot, layout, modules, codes, host)
    return layout, host


def _prepare(
    boot: dict[str, Any], layout: SandboxLayout, modules: dict[str, str], host_in: int
) -> tuple[ForkFilter, bool]:
    """Makes the places of trials, imports what they share, and finds out what bounds them.

    Returns:
      The filter that answers forks, and whether the limits of a process hold here.
    """
    os.umask(0o022)
    make_places(layout, boot["mode"])
    _install_library(layout, modules)
    for path, size in boot["fixed"]:
        contents = bytearray(size)
        if not frames.fill(host_in, contents):
            os._exit(0)
        program_folder.keep_fixed(layout, path, contents)
    accounts.name_identities(layout)
    os.environ.update(confine.program_environment(layout, layout.work))
    forget_foreign_paths()
    sys.path.insert(0, layout.library)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    kernel.hide_memory()
    limits.buffer_lines()
    _preload([*_PRELOADED, *boot["preload"]])
    fork_filter = ForkFilter(file_modes.CALLS if layout.identities == ONE else ())
    layout.bounded_by = probes.bound_of_processes(layout, fork_filter)
    # gVisor's kernel supports neither way to bound processes.
    if boot["kind"] in _CONTAINED and not layout.bounded_by:
        layout.bounded_by = MEASURED
    limited = probes.limits_hold(layout)
    if layout.own_root:
        layout.readable = landlock.of_sandbox(layout.hides_others)
    else:
        data = boot["mounts"].values() if boot["mode"] == "compatible" else ()
        layout.readable = (*landlock.of_machine(), *data)
    # File owners already protect all else that a rule would name.
    if layout.hides_others:
        readable = (*layout.readable, layout.library)
        layout.ruleset = landlock.ruleset_of_paths(readable, (layout.work, SHARED_MEMORY))
    return fork_filter, limited


def _continue_in(
    boot: dict[str, Any],
    layout: SandboxLayout,
    modules: dict[str, str],
    codes: dict[str, CodeType],
    host: tuple[int, int],
) -> None:
    """Replaces this process by the interpreter of the problem's environment, now that it is apart.

    What was installed there runs code when its interpreter starts.  It takes what this one has
    compiled, if it is of the same version.
    """
    if not layout.own_root and not boot["unisolated_builds"]:
        frames.write_frame(host[1], {"refused": _UNISOLATED})
        os._exit(1)
    kept = [fd for fd in (*host, layout.memory_counter) if fd >= 0]
    for fd in kept:
        os.set_inheritable(fd, True)
    again = {**boot, "kind": _ENTERED, "layout": asdict(layout), "host": host}
    again["layout"].update(kept=[], imported=[])
    memory = os.memfd_create("harness")
    texts = _sized(json.dumps(modules).encode())
    frames.write_all(memory, memoryview(texts + _compiled(codes)))
    frames.write_frame(memory, again)
    os.lseek(memory, 0, os.SEEK_SET)
    os.dup2(memory, 0)
    os.execve(
        boot["interpreter"],
        [boot["interpreter"], "-B", "-s", "-c", boot["bootstrap"]],
        dict(os.environ),
    )


def _compiled(codes: dict[str, CodeType]) -> bytes:
    """Returns compiled modules as the bootstrap reads them."""
    return importlib.util.MAGIC_NUMBER + _sized(marshal.dumps(codes))


def _sized(part: bytes) -> bytes:
    return struct.pack(">I", len(part)) + part


def _continued(
    boot: dict[str, Any], given: tuple[int, int]
) -> tuple[SandboxLayout, tuple[int, int]]:
    """Returns the layout and the streams of the process that this interpreter replaced."""
    for fd in given:
        os.close(fd)
    host_in, host_out = boot["host"]
    layout = SandboxLayout(**boot["layout"])
    layout.shared_places, layout.reasons = tuple(layout.shared_places), tuple(layout.reasons)
    layout.kept = layout.imported = frozenset()
    for fd in (host_in, host_out, layout.memory_counter):
        if fd >= 0:
            os.set_inheritable(fd, False)
    return layout, (host_in, host_out)


def _keep_what_is_there() -> None:
    """Hides what forks will share from the collector, which would write to each object."""
    gc.collect()
    gc.freeze()


def _take_standard_streams() -> tuple[int, int]:
    """Returns the descriptors that lead to the worker, in place of which 0 and 1 lead nowhere."""
    host = os.dup(0), os.dup(1)
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1):
        os.dup2(null, fd)
    os.close(null)
    return host


def _filters(layout: SandboxLayout, mode: str, fork_filter: ForkFilter) -> TrialFilters:
    """Returns the filters that the processes of trials install."""
    # The loopback interface is the evaluator's where a program is apart from it.
    shared = mode == "compatible"
    for_programs = FilterPermissions(
        internet=layout.network_closed and shared, local=layout.own_root, locks=layout.own_files,
        counted_memory=layout.counted_memory, others=layout.identities == UIDS,
        passing=layout.own_root, modes=layout.identities != ONE or layout.bounded_by == FORK_FILTER,
        attributes=layout.identities != ONE,
    )  # fmt: skip
    for_evaluator = FilterPermissions(
        internet=layout.network_closed,
        local=True,
        locks=True,
        counted_memory=True,
        passing=True,
        others=True,
        modes=True,
        attributes=True,
    )
    return TrialFilters(
        SyscallFilter(for_programs),
        SyscallFilter(for_evaluator),
        fork_filter if layout.bounded_by == FORK_FILTER else None,
    )


def _layout(boot: dict[str, Any]) -> SandboxLayout:
    if boot["kind"] in _CONTAINED:
        counter = processes.open_counter(processes.IN_A_CONTAINER, boot["memory_bytes"])
        closed = boot["kind"] != "pod"
        return in_container(counter, int(boot["offset"]), network_closed=closed)
    # Opened while the machine's files are visible, and used after they are not.
    counter = processes.open_counter(tuple(boot["counters"]), boot["memory_bytes"])
    home = os.path.dirname(os.path.dirname(boot["interpreter"]))
    shown = isolation.Shown((home,) if home else (), data=boot["mounts"])
    layout = isolation.enter(boot["scratch"], tuple(boot["levels"]), int(boot["offset"]), shown)
    layout.memory_counter = counter
    return layout


def _install_library(layout: SandboxLayout, modules: dict[str, str]) -> None:
    for name, text in modules.items():
        folder = layout.library if "/" in name else f"{layout.library}/{_PACKAGE}"
        path = f"{folder}/{name}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


def _preload(names: list[str]) -> None:
    """Imports what programs and evaluators will import; a name need not be a module's."""
    for name in names:
        try:
            importlib.import_module(name)
        except Exception:
            # The package is missing or fails; the program's own import reports it.
            continue


def _import_report(
    started: EvaluatorZygote, host_in: int, layout: SandboxLayout, deadline: float
) -> dict[str, Any]:
    """Returns the evaluator's zygote's report on its import."""
    poll = select.poll()
    poll.register(host_in, 0)
    poll.register(started.channel, select.POLLIN)
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            return {"broken": "the evaluator's import did not end in time"}
        for fd, _ in poll.poll(left * 1000):
            if fd == host_in:
                processes.abandon(layout, started.pid)
            answer: dict[str, Any] | None = started.receive()
            if answer is None:
                return {"broken": "the evaluator ended its process while it was imported"}
            return answer


def _wake_on_child_end() -> int:
    reader, writer = os.pipe()
    for fd in (reader, writer):
        os.set_blocking(fd, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    return reader


def _serve_one(state: ZygoteState) -> None:
    received = frames.read_header(state.host[0])
    if received is None:
        processes.abandon(state.layout, state.evaluator_zygote.pid)
        return
    header, raw_bytes = received
    raw = bytearray(raw_bytes)
    if not frames.fill(state.host[0], raw):
        processes.abandon(state.layout, state.evaluator_zygote.pid)
    state.served += 1
    sources, position = [], 0
    for size in header["sizes"]:
        sources.append(memoryview(raw)[position : position + size])
        position += size
    trial = TrialRun(state, header, sources)
    frames.wipe(raw)
    trial.run()


def _evaluator_hidden(layout: SandboxLayout, program_filter: SyscallFilter) -> bool:
    """Returns whether the evaluator's processes and abstract sockets are hidden from programs."""
    processes = layout.identities == NESTED or landlock.version() > 0
    sockets = landlock.has_scopes() or (layout.identities == ONE and program_filter.available)
    return processes and sockets


def _within_filter(layout: SandboxLayout) -> bool:
    """Returns whether this process makes no system call for a trial that a program may not."""
    return layout.identities == UIDS and layout.ruleset >= 0 and not layout.measured


def _files_bounded(layout: SandboxLayout) -> bool:
    """Returns whether a program can write only where its files have a size or are measured."""
    return layout.own_root or landlock.version() > 0


def _describe(layout: SandboxLayout, program_filter: SyscallFilter) -> dict[str, Any]:
    return {
        "identities": layout.identities,
        "own_processes": layout.own_processes,
        "own_root": layout.own_root,
        "network_closed": layout.network_closed,
        "counted_memory": layout.counted_memory,
        "filter": program_filter.available,
        "bounded_by": layout.bounded_by,
        "files_bounded": _files_bounded(layout),
        "landlock": landlock.version() > 0,
        "evaluator_hidden": _evaluator_hidden(layout, program_filter),
        "scopes": landlock.has_scopes(),
        "reasons": list(layout.reasons),
    }
