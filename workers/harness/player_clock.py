"""The clock of a player, on the evaluator's side of a game.

The stand-in for a program imports this module in processes of the evaluator, where a file beside
the script may have the name of a module of the standard library: it imports few of them.
"""

from __future__ import annotations

import socket
import time

from .errors import ClockExpired, blamed

GRANTED = b"."
_LEAST_SECONDS = 0.001


class PlayerClock:
    """The clock of one player, kept by the evaluator's side.

    Attributes:
      seat: The player's, 0 for whoever is first.
    """

    def __init__(self, seat: int, address: str, move_seconds: float, game_seconds: float) -> None:
        self.seat = seat
        self._address = address
        self._move_seconds = move_seconds
        self._left_seconds = game_seconds
        self._channel: socket.socket | None = None
        self._started = self._deadline = 0.0
        self._requests = 0

    def begin(self, *, loads: bool) -> None:
        """Asks for the turn and starts the clock, which a request within a request leaves as it is.

        Args:
          loads: Whether the player's module is being loaded, which takes time of the game alone.
        """
        if self._channel is None:
            self._channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._channel.connect(self._address)
        self._channel.send(bytes((self.seat,)))
        if self._channel.recv(1) != GRANTED:
            raise RuntimeError("the sandbox has ended the game")
        self._requests += 1
        if self._requests > 1:
            return
        most = self._left_seconds if loads else min(self._left_seconds, self._move_seconds)
        self._started = time.monotonic()
        self._deadline = self._started + most

    def left_seconds(self) -> float:
        """Returns the time that is left of this move.

        Raises:
          TimeoutError: None is left.
        """
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return max(left, _LEAST_SECONDS)

    def end(self) -> None:
        """Stops the clock, unless it was started by a request around this one."""
        self._requests -= 1
        if not self._requests:
            self._left_seconds -= time.monotonic() - self._started

    def expired(self) -> Exception:
        """Returns the error of a player whose time is used up."""
        whole = self._left_seconds <= _LEAST_SECONDS
        what = "the game" if whole else f"a move of {self._move_seconds:g} s"
        error = ClockExpired(f"player {self.seat + 1} has used all time of {what}")
        return blamed(error, "timeout", self.seat)
