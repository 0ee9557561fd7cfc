"""A run on real queues, whose only worker is killed in the middle and followed by another."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import psycopg
from celery import Celery

from app.adapters.queue.celery import CeleryExecutor
from app.adapters.queue.inline import InlineExecutor
from app.celery import configuration
from app.domain.run import Run, RunState
from app.engine import steps
from app.engine.context import Context
from app.ports.protocols import Executor, Step
from tests.engine.conftest import table
from tests.integration.worker_double import until

ROOT = Path(__file__).resolve().parents[2]
WORKERS = """
import os, sys
from app.embedded.forks import Imports, run_celery

assert Imports().can_fork(os.environ)
victim = os.fork()
if victim:
    with os.fdopen(int(sys.argv[1]), "w") as number:
        print(victim, file=number)
    sys.stdin.readline()
run_celery(["celery", "-A", "app", "worker", "-Q", "cpu,gpu"])
"""
"""Forks a worker, writes its number to a pipe, and is the next one after a line of input: they
share their imports, which take as long as many a step."""
OVERDUE = """
    UPDATE trials SET leased_until = now(), visible_at = now() WHERE evaluation IS NULL;
    UPDATE proposals SET leased_until = now(), visible_at = now()
        WHERE state = 'planned' AND visible_at IS NOT NULL
"""
"""As when the leases of a killed worker have run out."""


class Workers:
    """A worker, and the one that follows it.

    Attributes:
      victim: The process of the first; it stays a zombie until the other ends.
    """

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        """Starts the first in a folder, which gets the log of both."""
        reading, writing = os.pipe()
        with (folder / "workers.log").open("wb") as log, open(reading) as number:
            self._next = subprocess.Popen(
                [sys.executable, "-c", WORKERS, str(writing)],
                cwd=folder,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[writing],
            )
            os.close(writing)
            self.victim = int(number.readline())

    def follow(self) -> None:
        """Starts the second."""
        assert self._next.stdin is not None
        self._next.stdin.close()

    def close(self) -> None:
        """Kills both."""
        os.kill(self.victim, signal.SIGKILL)
        self._next.kill()
        if self._next.stdin is not None:
            self._next.stdin.close()
        self._next.wait()


class _Queued:
    """An executor that sends the steps of workers to the queue; planning stays in this process."""

    def __init__(self, queue: Executor) -> None:
        self._queue, self.here = queue, InlineExecutor()

    def submit(
        self, step: Step, subjects: Sequence[int], *, together: int = 1, fleet: str = ""
    ) -> None:
        chosen = self.here if step == "produce" else self._queue
        chosen.submit(step, subjects, together=together)

    def queued(self, step: Step, fleet: str = "") -> int:
        return self._queue.queued(step, fleet)


class QueuedRuns:
    """Runs whose steps workers take from real queues, but for planning.

    Attributes:
      ctx: Sends the steps there.
      variables: Those of a worker.
    """

    def __init__(self, ctx: Context, queue: Executor, folder: Path, redis: str, database: str):
        self._executor = _Queued(queue)
        self.ctx = replace(ctx, executor=self._executor)
        self._folder, self._database = folder, database
        self._workers: Workers | None = None
        self.variables = {
            "PYTHONPATH": str(ROOT),
            "EVOQ_REDIS_URL": redis,
            "EVOQ_DATABASE_URL": database,
            "EVOQ_SANDBOX__BACKEND": "process",
            "EVOQ_EVALUATE_CONCURRENCY": "2",
            "EVOQ_GENERATE_CONCURRENCY": "2",
        }

    def end(self, runs: Sequence[Run], in_progress: str) -> int:
        """Brings runs to their end, and kills the worker once.

        Args:
          runs: Their planning, and that of runs inside them, happens here.
          in_progress: A query for whether the worker is where it is to be killed.

        Returns:
          How often a trial was begun at most.
        """
        with psycopg.connect(self._database.replace("+psycopg", ""), autocommit=True) as ledger:
            self._workers = Workers(self._folder, {**os.environ, **self.variables})
            victim = self._workers.victim

            def killed() -> bool:
                assert not self._ended(runs), "the runs ended before the worker was killed"
                os.kill(victim, signal.SIGSTOP)
                [(begun,)] = ledger.execute(in_progress).fetchall()
                os.kill(victim, signal.SIGKILL if begun else signal.SIGCONT)
                return bool(begun)

            until(killed, what="steps in progress", pause_seconds=0.2)
            until(lambda: psutil.Process(victim).status() == psutil.STATUS_ZOMBIE, what="its end")
            ledger.execute(OVERDUE)
            self._workers.follow()
            until(lambda: self._ended(runs), what="the end of the runs", pause_seconds=1.0)
            [(attempts,)] = ledger.execute("SELECT max(attempts) FROM trials").fetchall()
            return int(attempts)

    def close(self) -> None:
        """Kills the workers that are left."""
        if self._workers is not None:
            self._workers.close()

    def _ended(self, runs: Sequence[Run]) -> bool:
        """Plans what is due, and returns whether all runs have ended."""
        self._executor.here.drain(table(self.ctx), lambda: False)
        steps.produce_all(self.ctx)
        steps.reap_all(self.ctx)
        with self.ctx.store.begin() as tx:
            found = [tx.runs.get(run.id) for run in runs]
        states = {run.state for run in found}
        assert states <= {RunState.RUNNING, RunState.FINISHED}, [run.reason for run in found]
        return states == {RunState.FINISHED}


@contextmanager
def queued_runs(ctx: Context, folder: Path, redis: str, database: str) -> Iterator[QueuedRuns]:
    """Yields runs of a context on the queues of a Redis; no worker is left after the block."""
    application = Celery("test", set_as_current=False)
    application.conf.update(configuration({"EVOQ_REDIS_URL": redis}))
    runs = QueuedRuns(ctx, CeleryExecutor(application), folder, redis, database)
    try:
        yield runs
    finally:
        runs.close()
        application.close()
