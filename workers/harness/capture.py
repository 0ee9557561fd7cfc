"""Reads what a trial writes into buffers of fixed size that are overwritten afterwards."""

from __future__ import annotations

import os

from . import frames

HEAD_BYTES, TAIL_BYTES = 8192, 24_576
_CUT = b"\n[... cut ...]\n"
_scratch_bytes = 65_536


class Capture:
    """The first and the last bytes of a stream.

    Attributes:
      total: Bytes seen so far, kept or not.
    """

    def __init__(self) -> None:
        self.total = 0
        self._head = bytearray(HEAD_BYTES)
        self._tail = bytearray(TAIL_BYTES)
        self._scratch = bytearray(_scratch_bytes)

    def read(self, fd: int) -> int:
        """Returns how many bytes were read; 0 at the stream's end.

        Raises:
          BlockingIOError: Nothing is there at the moment.
        """
        count = os.readv(fd, [self._scratch])
        self._keep(memoryview(self._scratch)[:count])
        return count

    def _keep(self, view: memoryview) -> None:
        room = HEAD_BYTES - self.total
        if room > 0:
            part = view[:room]
            self._head[self.total : self.total + len(part)] = part
            self.total += len(part)
            view = view[room:]
        if len(view) > TAIL_BYTES:
            self.total += len(view) - TAIL_BYTES
            view = view[-TAIL_BYTES:]
        while len(view):
            start = (self.total - HEAD_BYTES) % TAIL_BYTES
            part = view[: TAIL_BYTES - start]
            self._tail[start : start + len(part)] = part
            self.total += len(part)
            view = view[len(part) :]

    def views(self) -> list[memoryview]:
        """Returns what was kept, in order, with a mark where something is missing."""
        head = memoryview(self._head)[: min(self.total, HEAD_BYTES)]
        beyond = self.total - HEAD_BYTES
        tail = memoryview(self._tail)
        if beyond <= 0:
            return [head]
        if beyond <= TAIL_BYTES:
            return [head, tail[:beyond]]
        start = beyond % TAIL_BYTES
        return [head, memoryview(_CUT), tail[start:], tail[:start]]

    def clear(self) -> None:
        if self.total:
            frames.wipe(self._head)
            frames.wipe(self._tail)
            frames.wipe(self._scratch)
            self.total = 0


class Collector:
    """The bytes of a result, up to a limit.

    Attributes:
      overflowed: Whether more came than fits.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.overflowed = False
        self._buffer = bytearray(limit_bytes + 1)
        self._used = 0

    def read(self, fd: int) -> int:
        if self.overflowed:
            return 0
        with memoryview(self._buffer) as view:
            count = os.readv(fd, [view[self._used :]])
        self._used += count
        self.overflowed = self._used == len(self._buffer)
        return count

    def view(self) -> memoryview:
        return memoryview(self._buffer)[: self._used]

    def clear(self) -> None:
        with memoryview(self._buffer) as view:
            view[: self._used] = bytes(self._used)
        self._used, self.overflowed = 0, False
