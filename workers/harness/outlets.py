"""The pipes a trial writes into: its result and the output of evaluator and programs."""

from __future__ import annotations

import os

from .capture import Capture, Collector

_RESULT, _EVALUATOR_OUT, _EVALUATOR_ERR, _PROGRAM_OUT, _PROGRAM_ERR = range(5)
_MOST_READS = 64


class Outlets:
    """Five pipes, from the moment they are made until what is left in them has been read.

    Attributes:
      sinks: What each pipe's reading end goes into.
    """

    def __init__(self, results: Collector, streams: tuple[Capture, ...]) -> None:
        self._pipes = [os.pipe() for _ in range(1 + len(streams))]
        self._results, self._streams = results, streams
        readers = [pipe[0] for pipe in self._pipes]
        self.sinks: dict[int, Capture | Collector] = dict(
            zip(readers, (results, *streams), strict=True)
        )
        for reader in readers:
            os.set_blocking(reader, False)

    def of_evaluator(self) -> list[int]:
        """Returns the writing ends for a result, output and errors."""
        return [self._pipes[which][1] for which in (_RESULT, _EVALUATOR_OUT, _EVALUATOR_ERR)]

    def of_programs(self) -> tuple[int, int]:
        """Returns the writing ends for output and errors."""
        return self._pipes[_PROGRAM_OUT][1], self._pipes[_PROGRAM_ERR][1]

    def close_evaluators(self) -> None:
        """Closes our copies of the evaluator's ends, so that its end is seen."""
        for fd in self.of_evaluator():
            os.close(fd)

    def read(self, fd: int) -> bool:
        """Reads what has come; returns whether more can come."""
        try:
            return bool(self.sinks[fd].read(fd))
        except BlockingIOError:
            return True

    def overflowing(self, output_bytes: int) -> bool:
        """Returns whether more was written than is allowed."""
        printed = sum(stream.total for stream in self._streams)
        return printed > output_bytes or self._results.overflowed

    def finish(self) -> None:
        """Reads what writers that are gone have left, and closes all."""
        for reader, sink in self.sinks.items():
            _read_rest(reader, sink)
            os.close(reader)
        for fd in self.of_programs():
            os.close(fd)


def _read_rest(fd: int, sink: Capture | Collector) -> None:
    try:
        for _ in range(_MOST_READS):
            if not sink.read(fd):
                return
    except BlockingIOError:
        pass
