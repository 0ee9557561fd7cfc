"""One command apart from this process: its own folder, limits, and one way to the network.

The command sees none of the worker's processes, files and environment.  In its network there is
one address, at which it reaches what this process serves it.
"""

import contextlib
import errno
import json
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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.adapters.sandbox import cgroup
from app.adapters.sandbox.bundle import COMMAND_BOOTSTRAP, ENVIRONMENT, harness_frame
from app.ports.protocols import NEVER, Stop, Stopped

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
_LEVELS = ("privileged", "unprivileged")
_LEAST_FREE_BYTES = 256 << 20
_LOOKING_SECONDS = 1.0
_LINE_BYTES = 4096
_BLOCK_BYTES = 4096


class NotIsolated(Exception):
    """This machine isolates no command; the message says why."""


class Overdue(Exception):
    """The command was ended: it took too long, or wrote too much; the message says which."""


@dataclass(frozen=True, slots=True)
class CommandLimits:
    """What a command may use.

    Attributes:
      memory_mib: Memory of all its processes together, where cgroups can be made.
      file_bytes: Bytes of one file.
      all_bytes: Bytes below its folder.
    """

    memory_mib: int = 8192
    file_bytes: int = 8 << 30
    all_bytes: int = 20 << 30
    open_files: int = 1024
    processes: int = 512


@dataclass(frozen=True, slots=True)
class IsolatedCommand:
    """A command to run, and all that it may have.

    Attributes:
      python: The interpreter that isolates it.
      command: The program, by its path, and its arguments.
      home: The folder that it sees and may change.
      folder: Where in it the command starts.
      deadline: In `time.monotonic` seconds.
      environment: Its variables; it has no others.
      addresses: Variables that lead to the only address of its network: name to a text in which
        `{address}` stands for `http://HOST:PORT`.
      readable: Files and folders of this machine that it sees beside the system's.
      unisolated: Whether it runs also where this machine gives no isolation.
    """

    python: str
    command: tuple[str, ...]
    home: Path
    folder: str
    deadline: float
    environment: Mapping[str, str]
    addresses: Mapping[str, str]
    readable: tuple[str, ...] = ()
    limits: CommandLimits = field(default_factory=CommandLimits)
    unisolated: bool = False

    def run(
        self,
        serve: Callable[[socket.socket], None],
        show: Callable[[bytes], None],
        stop: Stop = NEVER,
    ) -> int:
        """Runs the command to its end, and ends all that it has started; returns its status.

        Args:
          serve: Serves the connections of a listening socket until it is shut down.
          show: Gets each line of the output, of at most 4 KiB.
          stop: Ends the command.

        Raises:
          Stopped: It was asked to stop.
          NotIsolated: This machine isolates no command.
          Overdue: The command was ended.
        """
        scratch = tempfile.mkdtemp(prefix="evoq-command-")
        try:
            return _Running(self, scratch, serve, show).end(stop)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def header(self, scratch: str, channel: int) -> dict[str, Any]:
        """Returns what the isolating process reads first; see `workers.harness.command`."""
        limits = self.limits
        seconds = max(1.0, self.deadline - time.monotonic())
        return {
            "channel": channel,
            "home": str(self.home),
            "folder": str(self.home / self.folder),
            "readable": list(self.readable),
            "command": list(self.command),
            "environment": dict(self.environment),
            "addresses": dict(self.addresses),
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
            "unisolated": self.unisolated,
        }


class _Running:
    """A command at work, with the threads that serve and watch it."""

    def __init__(
        self,
        isolated: IsolatedCommand,
        scratch: str,
        serve: Callable[[socket.socket], None],
        show: Callable[[bytes], None],
    ) -> None:
        self._isolated, self._scratch = isolated, scratch
        self._serve, self._show = serve, show
        self._over = threading.Event()
        self._refused = self._overdue = ""

    def end(self, stop: Stop) -> int:
        ours, theirs = socket.socketpair()
        memory = self._isolated.limits.memory_mib << 20
        parent = cgroup.parent()
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
        text = json.dumps(self._isolated.header(self._scratch, theirs.fileno())).encode()
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
                        self._show(line)
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
        server = threading.Thread(target=self._serve, args=(listener,), daemon=True)
        server.start()
        self._over.wait()
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        server.join()

    def _watch(self, group: int) -> None:
        """Ends the command at its deadline, or when it has written too much."""
        home, limits = self._isolated.home, self._isolated.limits
        while not self._over.wait(_LOOKING_SECONDS):
            if time.monotonic() > self._isolated.deadline:
                self._overdue = "it takes too long"
            elif shutil.disk_usage(home).free < _LEAST_FREE_BYTES:
                self._overdue = f"the disk of {home} is full"
            elif _bytes_below(home, limits.all_bytes) > limits.all_bytes:
                self._overdue = f"it wrote more than {limits.all_bytes >> 20} MiB"
            if self._overdue:
                _end(group)
                return


def _bytes_below(folder: Path, most: int) -> int:
    """Returns the bytes below a folder, or a number above `most`.

    Each file counts as a block at least, since a machine has a bounded number of them; and so does
    a path that is too long to be followed, below which anything may be.
    """
    total, waiting = 0, [str(folder)]
    while waiting and total <= most:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    with contextlib.suppress(FileNotFoundError):
                        size = entry.stat(follow_symlinks=False).st_blocks * 512
                        total += max(_BLOCK_BYTES, size)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return most + 1
    return total


def _end(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
