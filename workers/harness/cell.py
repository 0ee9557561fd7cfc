"""The zygote of a warm cell: boots once, then serves trials until its worker goes away.

In a container it is PID 1 with SETUID, SETGID and KILL and nothing else; as a child of the worker
it first puts up what walls it can.  It parses nothing a program wrote: results go to the host as
they came.
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import signal
import sys
import time
from typing import Any

from . import census, frames, kernel, landlock, loader, probes, walls
from .forks import Asking
from .room import ASKING, NESTED, ONE, UIDS, Room, forget_foreign_paths, in_container, make_places
from .seccomp import Filter, Openings
from .trial import Trial
from .warm import Cell

_USUAL = (
    "ast", "bisect", "collections", "copy", "dataclasses", "decimal", "fractions", "functools",
    "heapq", "itertools", "json", "math", "multiprocessing", "operator", "random", "re",
    "statistics", "string", "tempfile", "time", "traceback", "typing", "zlib",
)  # fmt: skip
_PACKAGE = "evoq_harness"
_UNBOUNDED = (
    "nothing here bounds how many processes a program starts: it has no identity of its own, and "
    "the kernel (or a container around this worker) permits no seccomp listeners, which Linux has "
    "since 5.5"
)


def main(modules: dict[str, str]) -> None:
    """Serves the cell on this process's standard streams.

    Args:
      modules: Path under the harness's directory to source text, for the evaluator's stub.
    """
    host_in, host_out = os.dup(0), os.dup(1)
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1):
        os.dup2(null, fd)
    os.close(null)
    received = frames.read_header(host_in)
    if received is None:
        return
    boot = received[0]
    room = _room(boot)
    os.umask(0o022)
    make_places(room, boot["mode"])
    _install_library(room, modules)
    forget_foreign_paths()
    sys.path.insert(0, room.library)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    kernel.hide_memory()
    _preload([*_USUAL, *boot["preload"]])
    asking = Asking()
    room.bounded_by = probes.bound_of_processes(room, asking)
    limited = probes.limits_hold(room)
    room.readable = landlock.of_cell() if room.own_root else landlock.of_machine()
    # The loopback interface is the evaluator's where a program is apart from it.
    shared = boot["mode"] == "compatible"
    for_programs = Openings(
        internet=room.network_closed and shared, local=room.own_root, locks=room.own_files,
        memory_files=room.counted_memory, others=room.identities == UIDS,
    )  # fmt: skip
    sieve = Filter(for_programs)
    for_evaluator = Openings(
        internet=room.network_closed, local=True, locks=True, memory_files=True, others=True
    )
    asked = asking if room.bounded_by == ASKING else None
    filters = loader.Filters(sieve, Filter(for_evaluator), asked)
    started = loader.start(room, boot["mode"], host_in, filters)
    answer = _first_word(started, host_in, room, time.monotonic() + boot["boot_seconds"])
    if boot["kind"] == "process" and not room.bounded_by and not boot["unbounded_processes"]:
        answer = {"refused": _UNBOUNDED}
    if "broken" in answer or "refused" in answer:
        frames.write_frame(host_out, answer)
        census.abandon(room, started.pid)
    room.imported = room.present()
    gc.collect()
    gc.freeze()
    cell = Cell(
        room=room, mode=boot["mode"], loader=started, sieve=sieve, asking=asked,
        host=(host_in, host_out),
        wake=_wake_on_child_end(), baseline_bytes=census.own_baseline_bytes(),
        result_bytes=int(boot["result_bytes"]),
    )  # fmt: skip
    frames.write_frame(host_out, {**answer, "walls": {**_describe(room, sieve), "limits": limited}})
    while True:
        _serve_one(cell)


def _room(boot: dict[str, Any]) -> Room:
    if boot["kind"] == "container":
        return in_container(census.open_counter(census.IN_A_CONTAINER, boot["memory_bytes"]))
    # Opened while the machine's files are in sight, and kept through the walls.
    counter = census.open_counter(tuple(boot["counters"]), boot["memory_bytes"])
    room = walls.enter(boot["scratch"], tuple(boot["levels"]), int(boot["offset"]))
    room.memory_counter = counter
    return room


def _install_library(room: Room, modules: dict[str, str]) -> None:
    for name, text in modules.items():
        folder = room.library if name.startswith("openevolve/") else f"{room.library}/{_PACKAGE}"
        path = f"{folder}/{name}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


def _preload(names: list[str]) -> None:
    """Imports what programs and evaluators will; a name may also be of no module."""
    for name in names:
        try:
            importlib.import_module(name)
        except Exception:  # a package this image lacks, or one that fails: the program will say so
            continue


def _first_word(
    started: loader.Loader, host_in: int, room: Room, deadline: float
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
                census.abandon(room, started.pid)
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


def _serve_one(cell: Cell) -> None:
    received = frames.read_header(cell.host[0])
    if received is None:
        census.abandon(cell.room, cell.loader.pid)
        return
    header, raw_bytes = received
    raw = bytearray(raw_bytes)
    if not frames.fill(cell.host[0], raw):
        census.abandon(cell.room, cell.loader.pid)
    cell.served += 1
    sources, position = [], 0
    for size in header["sizes"]:
        sources.append(memoryview(raw)[position : position + size])
        position += size
    trial = Trial(cell, header, sources)
    frames.wipe(raw)
    trial.run()


def _evaluator_hidden(room: Room, sieve: Filter) -> bool:
    """Whether no program reads of the evaluator's processes or reaches its abstract sockets."""
    processes = room.identities == NESTED or landlock.version() > 0
    sockets = landlock.has_scopes() or (room.identities == ONE and sieve.available)
    return processes and sockets


def _describe(room: Room, sieve: Filter) -> dict[str, Any]:
    return {
        "identities": room.identities,
        "own_processes": room.own_processes,
        "own_root": room.own_root,
        "network_closed": room.network_closed,
        "counted_memory": room.counted_memory,
        "filter": sieve.available,
        "bounded_by": room.bounded_by,
        "fence": landlock.version() > 0,
        "evaluator_hidden": _evaluator_hidden(room, sieve),
        "scopes": landlock.has_scopes(),
        "reasons": list(room.reasons),
    }
