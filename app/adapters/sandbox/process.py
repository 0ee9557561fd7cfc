"""The process sandbox: cells as child processes of the worker, for a machine without Docker."""

import contextlib
import os
import random
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from app.adapters.sandbox.bundle import BOOTSTRAP
from app.adapters.sandbox.cell import Cell, CellLost, CellSettings, Overdue
from app.adapters.sandbox.pool import Pool, PoolSettings
from app.adapters.sandbox.protection import Protection, protections_of
from app.domain.problem import Evaluator, Job, Mode, Outcome
from app.ports import Unavailable

_LAST_WORDS_BYTES = 2000
_ENDING_SECONDS = 5.0
_LEVELS = ("privileged", "unprivileged", "bare")
_PROBE = Evaluator("probe", {"evaluator.py": b"def evaluate(path):\n    return {}\n"})


class ProcessSandbox:
    """Runs jobs in child processes behind whatever walls the kernel permits.

    Args:
      max_cells: Most cells alive at once; each holds about 30 MiB.
      python: The interpreter of the cells, with the problems' dependencies installed.
      max_trials: Trials after which a cell is replaced.
      max_age_seconds: Age after which a cell is replaced.
      boot_seconds: Longest time a boot, with the evaluator's import, may take.
      levels: Walls to try, strongest first; "bare" has none but limits.
    """

    def __init__(
        self,
        *,
        max_cells: int = 4,
        python: str = sys.executable,
        max_trials: int = 500,
        max_age_seconds: float = 1800.0,
        boot_seconds: float = 60.0,
        levels: tuple[str, ...] = _LEVELS,
    ) -> None:
        self._python = python
        self._boot_seconds = boot_seconds
        self._levels = levels
        self._walls: dict[str, Any] | None = None
        self._pool = Pool(self._start, PoolSettings(max_cells, max_trials, max_age_seconds))

    def run(self, job: Job) -> Outcome:
        return self._pool.run(job)

    def close(self) -> None:
        self._pool.close()

    def protections(self) -> list[Protection]:
        """Returns which walls stand around a program here, found out by booting a cell.

        Raises:
          Unavailable: No cell could be booted.
        """
        if self._walls is None:
            self._start(Job(_PROBE, "evaluate", ((".py", b""),), mode=Mode.GUARDED)).close()
        assert self._walls is not None
        return protections_of(self._walls)

    def _start(self, job: Job) -> Cell:
        scratch = tempfile.mkdtemp(prefix="evoq-cell-")
        settings = CellSettings(
            "process", scratch, self._levels, random.randrange(200_000), self._boot_seconds
        )
        channel = _Pipes(self._python, scratch)
        cell = Cell(channel, settings, job.evaluator, job.mode, job.limits)
        self._walls = cell.walls
        return cell


class _Pipes:
    """A cell at the other end of two pipes."""

    def __init__(self, python: str, scratch: str) -> None:
        self._scratch = scratch
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the cell
        try:
            self._child = subprocess.Popen(
                [python, "-B", "-s", "-c", BOOTSTRAP],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=_environment(),
                cwd="/",
                start_new_session=True,  # the terminal's interrupt is for the worker
                bufsize=0,
            )
        except OSError as error:
            self._remove()
            raise Unavailable(f"the sandbox's interpreter did not start: {error}") from error
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._to, self._from = self._child.stdin.fileno(), self._child.stdout.fileno()
        os.set_blocking(self._to, False)
        os.set_blocking(self._from, False)

    def send(self, parts: Sequence[bytes], deadline: float) -> None:
        for part in parts:
            view = memoryview(part)
            while view:
                _wait(self._to, select.POLLOUT, deadline)
                try:
                    view = view[os.write(self._to, view) :]
                except BlockingIOError:
                    continue
                except OSError as error:
                    raise CellLost("the cell has ended") from error

    def receive(self, size: int, deadline: float) -> bytes:
        received = bytearray()
        while len(received) < size:
            _wait(self._from, select.POLLIN, deadline)
            try:
                piece = os.read(self._from, min(size - len(received), 1 << 20))
            except BlockingIOError:
                continue
            if not piece:
                raise CellLost("the cell has ended")
            received += piece
        return bytes(received)

    def last_words(self) -> str:
        if self._errors.closed:
            return ""
        end = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, end - _LAST_WORDS_BYTES))
        return self._errors.read().decode("utf-8", "replace").strip()

    def close(self) -> None:
        if self._errors.closed:
            return
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        with contextlib.suppress(OSError):
            self._child.stdin.close()  # the zygote ends what it started, then itself
        try:
            self._child.wait(_ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._child.stdout.close()
        self._remove()

    def _remove(self) -> None:
        self._errors.close()
        shutil.rmtree(self._scratch, ignore_errors=True)


def _wait(fd: int, event: int, deadline: float) -> None:
    poll = select.poll()
    poll.register(fd, event)
    left = deadline - time.monotonic()
    if left <= 0 or not poll.poll(left * 1000):
        raise Overdue("the cell does not answer")


def _environment() -> dict[str, str]:
    """Returns the zygote's environment: nothing of the worker's, which may hold keys."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }
