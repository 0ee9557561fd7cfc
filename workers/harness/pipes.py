"""The pipes a trial writes into: its result, the output of evaluator and programs, moves.

What is read goes into buffers of fixed size that are overwritten after the trial.
"""

from __future__ import annotations

import os

from . import frames

_RESULT, _EVALUATOR_OUT, _EVALUATOR_ERR, _FIRST_PROGRAM_OUT = range(4)
_PER_PROCESS = 2
MOVES_BYTES = 16_384
"""Moves of a game that are shown while it is played; all that it ever sends fits into a pipe."""
MOST_PROGRAMS = 2
"""Programs of a trial whose output is kept apart."""
_MOST_READS = 64
HEAD_BYTES, TAIL_BYTES = 8192, 24_576
_CUT = b"\n[... cut ...]\n"
_scratch_bytes = 65_536


class Capture:
    """The first and the last bytes of a stream.

    Attributes:
      total: Bytes read so far, kept or not.
    """

    def __init__(self) -> None:
        self.total = 0
        self._head = bytearray(HEAD_BYTES)
        self._tail = bytearray(TAIL_BYTES)
        self._scratch = bytearray(_scratch_bytes)

    def read(self, fd: int) -> int:
        """Returns how many bytes were read; 0 at the stream's end.

        Raises:
          BlockingIOError: Nothing is available at the moment.
        """
        count = os.readv(fd, [self._scratch])
        self._keep(memoryview(self._scratch)[:count])
        return count

    def _keep(self, view: memoryview) -> None:
        free = HEAD_BYTES - self.total
        if free > 0:
            part = view[:free]
            self._head[self.total : self.total + len(part)] = part
            self.total += len(part)
            view = view[free:]
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
        """Returns what was kept, in order, with a mark where bytes were dropped."""
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
      overflowed: Whether more bytes were read than fit.
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


class TrialPipes:
    """A pipe for the result, and two for the evaluator and for each program of a trial.

    A game has one more, for its moves so far.  Its writer never waits: what does not fit is lost.

    They exist from the moment they are made until what is left in them has been read.

    Attributes:
      sinks: What each pipe's reading end goes into.
      streams: The output and errors of the evaluator, then those of each program.
    """

    def __init__(
        self,
        results: Collector,
        streams: tuple[Capture, ...],
        programs: int,
        moves: Collector | None = None,
    ) -> None:
        kept = 1 if moves is None else min(programs, MOST_PROGRAMS)
        self.streams = streams[: _PER_PROCESS * (1 + max(1, kept))]
        self._pipes = [os.pipe() for _ in range(1 + len(self.streams))]
        self._results = results
        readers = [pipe[0] for pipe in self._pipes]
        self.sinks: dict[int, Capture | Collector] = dict(
            zip(readers, (results, *self.streams), strict=True)
        )
        self._moves: tuple[int, ...] = ()
        if moves is not None:
            reader, writer = os.pipe()
            os.set_blocking(writer, False)
            self.sinks[reader], self._moves = moves, (writer,)
        for reader in self.sinks:
            os.set_blocking(reader, False)

    def evaluator_writers(self) -> list[int]:
        """Returns the writing ends for a result, output, errors, and the moves of a game."""
        own = [self._pipes[which][1] for which in (_RESULT, _EVALUATOR_OUT, _EVALUATOR_ERR)]
        return [*own, *self._moves]

    def program_writers(self, index: int) -> tuple[int, int]:
        """Returns the writing ends for output and errors of a program."""
        place = min(_FIRST_PROGRAM_OUT + _PER_PROCESS * index, len(self.streams) - 1)
        return self._pipes[place][1], self._pipes[place + 1][1]

    def close_evaluator_writers(self) -> None:
        """Closes the zygote's copies of the evaluator's ends, so that end of file is seen."""
        for fd in self.evaluator_writers():
            os.close(fd)

    def read(self, fd: int) -> bool:
        """Reads what is available; returns whether the stream is still open."""
        try:
            return bool(self.sinks[fd].read(fd))
        except BlockingIOError:
            return True

    def overflowing(self, output_bytes: int) -> bool:
        """Returns whether more was written than is allowed."""
        printed = sum(stream.total for stream in self.streams)
        return printed > output_bytes or self._results.overflowed

    def printed(self, index: int) -> int:
        """Returns the bytes that a program whose output is kept apart has written."""
        start = _PER_PROCESS * (1 + index)
        return sum(stream.total for stream in self.streams[start : start + _PER_PROCESS])

    def finish(self) -> None:
        """Reads what ended writers have left, and closes all pipes."""
        for reader, sink in self.sinks.items():
            _read_rest(reader, sink)
            os.close(reader)
        for _, writer in self._pipes[_FIRST_PROGRAM_OUT:]:
            os.close(writer)


def _read_rest(fd: int, sink: Capture | Collector) -> None:
    try:
        for _ in range(_MOST_READS):
            if not sink.read(fd):
                return
    except BlockingIOError:
        pass
