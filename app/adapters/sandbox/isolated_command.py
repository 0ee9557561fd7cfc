"""One command apart from this process: its own folder, limits, and one way to the network.

The command sees none of the worker's processes, files and environment.  In its network there is
one address, at which it reaches what this process serves it.
"""

import contextlib
import errno
import json
import math
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.adapters.isolated import SYSTEM_PATH, IsolatedCommand, NotIsolated, Overdue
from app.adapters.sandbox import cgroup
from app.adapters.sandbox.bundle import COMMAND_BOOTSTRAP, ENVIRONMENT, harness_frame
from app.adapters.snapshots import walk
from app.ports.protocols import NEVER, Stop, Stopped

_LEVELS = ("privileged", "unprivileged")
_LEAST_FREE_BYTES = 256 << 20
_LOOKING_SECONDS = 1.0
_LINE_BYTES = 4096
_BLOCK_BYTES = 4096


def run_isolated(isolated: IsolatedCommand, stop: Stop = NEVER) -> int:
    """Runs a command apart from this process; see `app.adapters.isolated.RunIsolated`."""
    scratch = str(isolated.scratch or tempfile.mkdtemp(prefix="evoq-command-"))
    try:
        return _Running(isolated, scratch).end(stop)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _header(isolated: IsolatedCommand, scratch: str, channel: int) -> dict[str, Any]:
    """Returns what the isolating process reads first; see `workers.harness.command`."""
    limits = isolated.limits
    seconds = max(1.0, isolated.deadline - time.monotonic())
    return {
        "channel": channel,
        "writable": [str(folder) for folder in isolated.writable],
        "folder": str(isolated.folder),
        "readable": list(isolated.readable),
        "command": list(isolated.command),
        "environment": dict(isolated.environment),
        "addresses": dict(isolated.addresses),
        "limits": {
            "memory_mib": limits.memory_mib,
            "file_bytes": limits.file_bytes,
            "open_files": limits.open_files,
            "processes": limits.processes,
            "cpu_seconds": seconds * (os.cpu_count() or 1),
        },
        "scratch": scratch,
        "levels": _LEVELS,
        "offset": random.randrange(200_000),
        "unisolated": isolated.unisolated,
    }


class _Running:
    """A command at work, with the threads that serve and watch it."""

    def __init__(self, isolated: IsolatedCommand, scratch: str) -> None:
        self._isolated, self._scratch = isolated, scratch
        self._most = _bytes_below(isolated.writable) + isolated.limits.all_bytes
        self._over = threading.Event()
        self._refused = self._overdue = ""

    def end(self, stop: Stop) -> int:
        ours, theirs = socket.socketpair()
        memory = self._isolated.limits.memory_mib << 20
        parent = cgroup.parent()
        if parent is not None:
            cgroup.remove_empty(parent)
        group = None if parent is None else cgroup.make(parent, memory)
        try:
            with ours, theirs:
                status = self._status(ours, theirs, group, stop)
        finally:
            if group is not None:
                group.remove()
        if stop.asked:
            raise Stopped("the command was asked to stop")
        if self._refused:
            raise NotIsolated(self._refused)
        if self._overdue:
            raise Overdue(self._overdue)
        return status

    def _status(
        self,
        ours: socket.socket,
        theirs: socket.socket,
        group: cgroup.Cgroup | None,
        stop: Stop,
    ) -> int:
        text = json.dumps(_header(self._isolated, self._scratch, theirs.fileno())).encode()
        with subprocess.Popen(
            [self._isolated.python, "-B", "-s", "-c", COMMAND_BOOTSTRAP],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**ENVIRONMENT, "PATH": SYSTEM_PATH},
            cwd="/",
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        ) as process:
            theirs.close()
            if group is not None:
                group.take(process.pid)
            assert process.stdin is not None
            assert process.stdout is not None
            with contextlib.suppress(BrokenPipeError), process.stdin:
                process.stdin.write(harness_frame() + struct.pack(">IQ", len(text), 0) + text)
            helpers = [
                threading.Thread(target=self._answer, args=(ours,)),
                threading.Thread(target=self._watch, args=(process.pid,)),
            ]
            for helper in helpers:
                helper.start()
            try:
                with stop.then(lambda: _end(process.pid)):
                    while line := process.stdout.readline(_LINE_BYTES):
                        self._isolated.show(line)
                    return process.wait()
            finally:
                self._over.set()
                _end(process.pid)
                for helper in helpers:
                    helper.join()

    def _answer(self, ours: socket.socket) -> None:
        """Serves the address of the command, or keeps the reason of its refusal."""
        data, descriptors, _, _ = socket.recv_fds(ours, _LINE_BYTES, 1)
        if not descriptors:
            self._refused = data.decode("utf-8", "replace")
            return
        listener = socket.socket(fileno=descriptors[0])
        server = threading.Thread(target=self._isolated.serve, args=(listener,), daemon=True)
        server.start()
        self._over.wait()
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        server.join()

    def _watch(self, group: int) -> None:
        """Ends the command at its deadline, or when it has written too much."""
        folders, most = self._isolated.writable, self._most
        while not self._over.wait(_LOOKING_SECONDS):
            if time.monotonic() > self._isolated.deadline:
                self._overdue = "it takes too long"
            elif shutil.disk_usage(folders[0]).free < _LEAST_FREE_BYTES:
                self._overdue = f"the disk of {folders[0]} is full"
            elif _bytes_below(folders, most) > most:
                mib = self._isolated.limits.all_bytes >> 20
                self._overdue = f"it wrote more than {mib} MiB, or nested folders too deep"
            if self._overdue:
                _end(group)
                return


def _bytes_below(folders: Sequence[Path], most: float = math.inf) -> int:
    """Returns the bytes below folders, or a number above `most`.

    Each file counts as a block at least, since a machine has a bounded number of them; folders that
    are nested too deep to be read count as too much, since anything may be in them.
    """
    total, unreadable = 0, dict[str, OSError]()
    for folder in folders:
        for _, entry in walk(folder, unreadable=unreadable):
            with contextlib.suppress(OSError):
                size = entry.stat(follow_symlinks=False).st_blocks * 512
                total += max(_BLOCK_BYTES, size)
            if total > most:
                return total
    too_long = any(error.errno == errno.ENAMETOOLONG for error in unreadable.values())
    return int(most) + 1 if too_long and most < math.inf else total


def _end(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
