"""A command that runs apart from this machine: its record, and what it prints."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from socket import socket
from typing import TypeAlias

from app.ports.protocols import Stop

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
NAMESPACES = (
    "start {} as root, or permit user namespaces (sysctl kernel.unprivileged_userns_clone=1, "
    "kernel.apparmor_restrict_unprivileged_userns=0)"
)
"""The remedy of a machine that isolates nothing, for what is started as root."""


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
      all_bytes: Bytes that it may add to what it may change.
    """

    memory_mib: int = 4096
    file_bytes: int = 256 << 20
    all_bytes: int = 1 << 30
    open_files: int = 1024
    processes: int = 256


def serve_nothing(listener: socket) -> None:
    """Closes each connection of a command that has no network."""
    with listener:
        while True:
            try:
                listener.accept()[0].close()
            except OSError:
                return


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolatedCommand:
    """A command to run, and all that it may have.

    Attributes:
      command: The program, by its path, and its arguments.
      writable: Folders that it sees and may change.
      folder: Where the command starts.
      scratch: An empty folder, of which it sees nothing; None for a new one.
      deadline: In `time.monotonic` seconds.
      environment: Its variables; it has no others.
      readable: Files and folders of this machine that it sees beside the system's.
      addresses: Variables that lead to the only address of its network: name to a text in which
        `{address}` stands for `http://HOST:PORT`.
      serve: Serves the connections at that address until its listening socket is shut down.
      show: Gets each line of the output, of at most 4 KiB.
      python: The interpreter that isolates it.
      unisolated: Whether it runs also where this machine gives no isolation.
    """

    command: Sequence[str]
    writable: tuple[Path, ...]
    folder: Path
    deadline: float
    environment: Mapping[str, str]
    show: Callable[[bytes], None]
    scratch: Path | None = None
    readable: tuple[str, ...] = ()
    addresses: Mapping[str, str] = field(default_factory=dict)
    serve: Callable[[socket], None] = serve_nothing
    limits: CommandLimits = field(default_factory=CommandLimits)
    python: str = sys.executable
    unisolated: bool = False


RunIsolated: TypeAlias = Callable[[IsolatedCommand, Stop], int]
"""Runs a command to its end, ends all that it has started, and returns its status.

Raises:
  Stopped: It was asked to stop.
  NotIsolated: This machine isolates no command.
  Overdue: The command was ended.
"""


def plain_environment(home: Path, places: Sequence[str] = ()) -> dict[str, str]:
    """Returns variables for a command: no secret, and nothing of this process.

    Args:
      home: Its folder for settings and temporary files.
      places: Folders of its programs, before those of the system.
    """
    return {
        **dict.fromkeys(("HOME", "TMPDIR"), str(home)),
        "PATH": ":".join([*places, SYSTEM_PATH]),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "NO_COLOR": "1",
    }


def places_of_programs(program: str, visible: Sequence[str]) -> list[str]:
    """Returns where a command finds programs: in its own folder, and in each `bin`."""
    own = [os.path.dirname(program)] if "/" in program else []
    return [*own, *(f"{folder}/bin" for folder in visible)]


class Tail:
    """The end of an output that grows."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._whole = bytearray()
        self._cut = False

    def add(self, part: bytes) -> None:
        self._whole += part
        if len(self._whole) > 2 * self._most:
            del self._whole[: -self._most]
            self._cut = True

    @property
    def text(self) -> str:
        """At most so many bytes; a cut is marked."""
        cut = self._cut or len(self._whole) > self._most
        text = self._whole[-self._most :].decode("utf-8", "replace")
        return f"[...]\n{text}" if cut else text
