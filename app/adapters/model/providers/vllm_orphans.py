"""The processes of vLLM end with their worker, also when the worker is killed.

vLLM's core ends with a process that closes it, and does not notice that a process was killed: it
would hold the accelerator's memory, and the next worker could not load its model.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psutil

# `read` returns when the other end of standard input is closed, as it is when its process ends.
_WATCH = 'read gone; kill -KILL "$@" 2>/dev/null'

_TRACKER = "multiprocessing.resource_tracker"
"""Not killed: it ends after the others, and removes the semaphores and memory that they shared."""


@dataclass(slots=True)
class Orphans:
    """A shell that waits for the end of this process, and then kills the processes it was given.

    A worker that is killed while it loads is not covered: its processes are not known yet.
    """

    _watch: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)

    @contextmanager
    def adopted(self) -> Iterator[None]:
        """Adds the processes that the block starts."""
        before = _children()
        yield
        self.release()
        pids = [str(pid) for pid in sorted(_children() - before)]
        self._watch = subprocess.Popen(
            ["sh", "-c", _WATCH, "watch", *pids],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # A signal to the worker's process group does not reach the watch.
            start_new_session=True,
        )

    def release(self) -> None:
        """Ends the shell: the processes have ended.  Idempotent."""
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
