"""A run on real queues, whose only worker is killed in the middle and followed by another."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

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
COMMAND = (sys.executable, "-m", "celery", "-A", "app", "worker", "-Q", "cpu,gpu")
OVERDUE = """
    UPDATE trials SET leased_until = now(), visible_at = now() WHERE evaluation IS NULL;
    UPDATE proposals SET leased_until = now(), visible_at = now()
        WHERE state = 'planned' AND visible_at IS NOT NULL
"""
"""As when the leases of a killed worker have run out."""


class _Queued:
    """An executor that sends the steps of workers to the queue; planning stays in this process."""

    def __init__(self, queue: Executor) -> None:
        self._queue, self.here = queue, InlineExecutor()

    def submit(self, step: Step, subjects: Sequence[int], *, together: int = 1) -> None:
        chosen = self.here if step == "produce" else self._queue
        chosen.submit(step, subjects, together=together)


class QueuedRuns:
    """Runs whose steps workers take from real queues, but for planning.

    Attributes:
      ctx: Sends the steps there.
    """

    def __init__(self, ctx: Context, queue: Executor, folder: Path, redis: str, database: str):
        self._executor = _Queued(queue)
        self.ctx = replace(ctx, executor=self._executor)
        self._folder, self._database = folder, database
        self._running: list[subprocess.Popen[bytes]] = []
        self._variables = {
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
            victim = self._worker()

            def killed() -> bool:
                assert not self._ended(runs), "the runs ended before the worker was killed"
                victim.send_signal(signal.SIGSTOP)
                [(begun,)] = ledger.execute(in_progress).fetchall()
                victim.send_signal(signal.SIGKILL if begun else signal.SIGCONT)
                return bool(begun)

            until(killed, what="steps in progress", pause_seconds=0.2)
            victim.wait()
            ledger.execute(OVERDUE)
            self._worker()
            until(lambda: self._ended(runs), what="the end of the runs", pause_seconds=1.0)
            [(attempts,)] = ledger.execute("SELECT max(attempts) FROM trials").fetchall()
            return int(attempts)

    def close(self) -> None:
        """Kills the workers that are left."""
        for process in self._running:
            if process.poll() is None:
                process.kill()
                process.wait()

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

    def _worker(self) -> subprocess.Popen[bytes]:
        with (self._folder / f"worker{len(self._running)}.log").open("wb") as log:
            self._running.append(
                subprocess.Popen(
                    COMMAND,
                    cwd=self._folder,
                    env={**os.environ, **self._variables},
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            )
        return self._running[-1]


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
