"""A cgroup in which a test runs fork bombs: whatever fails, the machine keeps its processes."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

_MOST = 600
"""More than an honest sandbox and a bounded bomb need, and far less than a machine has."""
_HIERARCHIES = (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup"))
_LOOKING_SECONDS = 0.01
_SWEEPS = 50


class Box:
    """Attributes:
    folder: The cgroup's directory.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def tasks(self) -> int:
        """Returns how many processes and threads are in the box, this process's among them."""
        return int((self.folder / "pids.current").read_text())

    @contextlib.contextmanager
    def peak(self) -> Iterator[list[int]]:
        """Gives a list whose one entry is the largest number of tasks seen inside the block."""
        seen, done = [self.tasks()], threading.Event()

        def look() -> None:
            while not done.wait(_LOOKING_SECONDS):
                seen[0] = max(seen[0], self.tasks())

        looking = threading.Thread(target=look)
        looking.start()
        try:
            yield seen
        finally:
            done.set()
            looking.join()

    def empty(self) -> None:
        """Ends all that is in the box: stops first, so that nothing forks meanwhile."""
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for _ in range(_SWEEPS):
                pids = (self.folder / "cgroup.procs").read_text().split()
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(pid), number)
                if not pids:
                    break
                time.sleep(_LOOKING_SECONDS)


@contextlib.contextmanager
def pids_box() -> Iterator[Box]:
    """Holds this process, and what it starts inside the block, in a cgroup of few processes.

    It skips the test where this user may make no such cgroup.
    """
    hierarchy, home = _own_pids_cgroup()
    folder = hierarchy / f"evoq-test-box-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / "pids.max").write_text(str(_MOST))
    except OSError as error:
        with contextlib.suppress(OSError):
            folder.rmdir()
        pytest.skip(f"a fork bomb needs a pids cgroup around it, which cannot be made: {error}")
    box = Box(folder)
    try:
        (folder / "cgroup.procs").write_text(str(os.getpid()))
        yield box
    finally:
        (home / "cgroup.procs").write_text(str(os.getpid()))
        box.empty()
        folder.rmdir()


def _own_pids_cgroup() -> tuple[Path, Path]:
    """Returns where boxes can be made, and the cgroup that this process is in."""
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    paths = {controllers: path for _, controllers, path in lines}
    for hierarchy, controllers in zip(_HIERARCHIES, ("pids", ""), strict=True):
        if controllers in paths and (hierarchy / "cgroup.procs").exists():
            return hierarchy, hierarchy / paths[controllers].lstrip("/")
    pytest.skip("a fork bomb needs a pids cgroup around it, and none is mounted")
