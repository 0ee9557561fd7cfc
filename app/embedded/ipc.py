"""What a stack's keeper and its clients say to each other: JSON objects, one a line."""

import json
import socket
from collections.abc import Mapping
from typing import Any

CHUNK_BYTES = 65_536


class Line:
    """One end of a conversation over a connected socket."""

    def __init__(self, connection: socket.socket):
        """Takes the socket over."""
        self._connection = connection
        self._pending = b""

    def fileno(self) -> int:
        """Returns the socket's descriptor, for a selector."""
        return self._connection.fileno()

    def say(self, message: Mapping[str, Any]) -> None:
        """Sends one message.

        Raises:
          OSError: The other side is gone.
        """
        self._connection.sendall(json.dumps(message).encode() + b"\n")

    def hear(self, timeout_seconds: float | None = None) -> dict[str, Any] | None:
        """Waits for one message; None when the other side has gone.

        Raises:
          TimeoutError: Nothing was said in time.
        """
        self._connection.settimeout(timeout_seconds)
        while b"\n" not in self._pending:
            try:
                received = self._connection.recv(CHUNK_BYTES)
            except ConnectionError:
                return None
            if not received:
                return None
            self._pending += received
        line, self._pending = self._pending.split(b"\n", 1)
        message: dict[str, Any] = json.loads(line)
        return message

    def close(self) -> None:
        """Hangs up."""
        self._connection.close()
