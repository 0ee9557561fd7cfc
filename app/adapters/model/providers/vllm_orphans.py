"""No engine outlives its worker: a worker that is killed takes vLLM's processes with it.

vLLM's core notices the end of a process that closes it, not of one that is killed: left alone it
would hold the accelerator's memory, and the next worker could not load its model.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psutil

# Ends when its standard input does: when whoever holds the other end closes it, or is no more.
_WATCH = 'read gone; kill -KILL "$@" 2>/dev/null'

_TRACKER = "multiprocessing.resource_tracker"
"""Spared: it ends once the others have, and removes the semaphores and memory that they shared."""


@dataclass(slots=True)
class Orphans:
    """A shell that waits for the end of this process, and then kills what it was told of.

    A worker that is killed while it loads is not covered: what it started is not known yet.
    """

    _watch: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)

    @contextmanager
    def adopted(self) -> Iterator[None]:
        """Takes in its charge the processes that are started within."""
        before = _children()
        yield
        self.release()
        pids = [str(pid) for pid in sorted(_children() - before)]
        self._watch = subprocess.Popen(
            ["sh", "-c", _WATCH, "watch", *pids],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a signal to the worker's group is not for it
        )

    def release(self) -> None:
        """Lets go of them: they have ended.  Idempotent."""
        if self._watch is not None:
            assert self._watch.stdin is not None
            self._watch.kill()
            self._watch.wait()
            self._watch.stdin.close()
            self._watch = None


def _children() -> set[int]:
    children = psutil.Process().children(recursive=True)
    return {child.pid for child in children if not _tracks(child)}


def _tracks(child: psutil.Process) -> bool:
    try:
        return any(_TRACKER in word for word in child.cmdline())
    except psutil.NoSuchProcess:
        return False
