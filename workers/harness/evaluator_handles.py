"""The zygote's handles on the evaluator's zygote, and on a process of it that is kept."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

MESSAGE_BYTES = 131_072
MOST_DESCRIPTORS = 5
"""Most bytes, and descriptors, of a message between them."""
DONE = struct.Struct("=dQ")
"""CPU seconds and peak memory in KiB, which a kept process reports after a trial."""


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
            message = self.channel.recv(MESSAGE_BYTES, 0 if wait else socket.MSG_DONTWAIT)
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
            message = self.channel.recv(DONE.size)
        except OSError:
            return None
        if len(message) != DONE.size:
            return None
        cpu_seconds, peak_kib = DONE.unpack(message)
        self.cpu_seconds += cpu_seconds
        return {"status": 0, "cpu": cpu_seconds, "peak_kib": peak_kib}
