"""Turns of a game: only the player that is to move runs, and its clock alone goes down.

The evaluator's side asks the zygote for a turn before each request to a player.  The zygote stops
every process of the other player first, so that none can use up the time of its opponent.  What
the file systems of the sandbox gain in a turn is therefore the player's, which may fill a share of
them: no opponent finds a full disk.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Iterable, Sequence

from . import processes
from .player_clock import GRANTED
from .sandbox_layout import SHARED_MEMORY, UIDS, SandboxLayout

_MOST_FILLED = 0.3
"""The share of a file system that one player may fill; what is left is the referee's."""


class Turns:
    """Grants turns to the evaluator's process, on the zygote's side.

    Attributes:
      listener: Where the evaluator's side connects.
      moving: The seat of the player that has the turn; None before the first.
      hoarding: The seat of a player that has filled more than its share of a file system; None if
        none has.
    """

    def __init__(
        self, layout: SandboxLayout, uids: tuple[int, ...], listener: socket.socket
    ) -> None:
        self.listener = listener
        self._layout = layout
        self._uids = uids
        self._channels: dict[int, socket.socket] = {}
        self.moving: int | None = None
        self.hoarding: int | None = None
        self._places = (layout.work, SHARED_MEMORY) if layout.own_root else ()
        self._filled = _filled(self._places)
        self._gained = [[0.0] * len(self._filled) for _ in uids]

    def accept(self) -> int | None:
        """Returns the descriptor of a new connection, which `answer` serves; None without one."""
        try:
            channel, _ = self.listener.accept()
        except BlockingIOError:
            return None
        channel.setblocking(False)
        self._channels[channel.fileno()] = channel
        return channel.fileno()

    def listens(self, fd: int) -> bool:
        return fd in self._channels

    def answer(self, fd: int, children: dict[int, int]) -> bool:
        """Gives the turn that is asked for; returns whether the connection is still open.

        Args:
          fd: The connection's.
          children: The processes that the zygote has forked, with the seat of each.
        """
        channel = self._channels[fd]
        try:
            asked = channel.recv(1)
        except BlockingIOError:
            return True
        except OSError:
            asked = b""
        if not asked or asked[0] >= len(self._uids):
            del self._channels[fd]
            channel.close()
            return False
        self.look_at_files()
        if self.hoarding is None:
            self._give(asked[0], children)
            with contextlib.suppress(OSError):
                channel.send(GRANTED)
        return True

    def look_at_files(self) -> None:
        """Counts what the file systems have gained since the last look as the moving player's."""
        filled = _filled(self._places)
        if self.moving is not None:
            gained = self._gained[self.moving]
            for index, (before, now) in enumerate(zip(self._filled, filled, strict=True)):
                gained[index] += now - before
            if max(gained, default=0.0) > _MOST_FILLED:
                self.hoarding = self.moving
        self._filled = filled

    def _give(self, seat: int, children: dict[int, int]) -> None:
        if seat == self.moving:
            return
        for other in range(len(self._uids)):
            if other != seat:
                self._signal(other, children, signal.SIGSTOP)
        self._signal(seat, children, signal.SIGCONT)
        self.moving = seat

    def _signal(self, seat: int, children: dict[int, int], number: int) -> None:
        """Sends a signal to every process of a player."""
        if self._layout.identities == UIDS:
            _as_all_of(self._uids[seat], number)
            return
        roots = {pid for pid, of in children.items() if of == seat}
        sent: set[int] = set()
        while found := (roots | processes.descendants(roots)) - sent:
            for pid in found:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
            sent |= found

    def release(self, children: dict[int, int]) -> None:
        """Lets every player run again, so that one whose connection is closed ends by itself."""
        for seat in range(len(self._uids)):
            self._signal(seat, children, signal.SIGCONT)

    def close(self) -> None:
        """Closes all connections, and removes the address."""
        for channel in (*self._channels.values(), self.listener):
            if channel is self.listener:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(channel.getsockname())
            channel.close()
        self._channels.clear()


def _filled(places: Sequence[str]) -> list[float]:
    """Returns which share of each file system is in use, first of its bytes, then of its files."""
    shares = []
    for place in places:
        found = os.statvfs(place)
        shares.append(1.0 - found.f_bfree / found.f_blocks if found.f_blocks else 0.0)
        shares.append(1.0 - found.f_ffree / found.f_files if found.f_files else 0.0)
    return shares


def _as_all_of(uid: int, number: int) -> None:
    """Has the kernel send a signal to all processes of an identity but the sender, at once."""

    def send() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, number)

    processes.as_identity(uid, send)


def held_bytes(
    layout: SandboxLayout, uids: Iterable[int], children: dict[int, int], baseline_bytes: int
) -> list[int]:
    """Returns the memory of each player's processes, in the order of the seats."""
    held = []
    owners = processes.owners() if layout.identities == UIDS else {}
    for seat, uid in enumerate(uids):
        roots = {pid for pid, of in children.items() if of == seat}
        mine = {pid for pid, owner in owners.items() if owner == uid}
        pids = mine or roots | processes.descendants(roots)
        resident = processes.resident_bytes(sorted(pids), baseline_bytes)
        held.append(resident.private + resident.shared)
    return held
