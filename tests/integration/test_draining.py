"""A worker that is asked to end gives its leases back, so that another begins its steps at once."""

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import psutil
import psycopg
import pytest
import redis

from app.adapters.problems import load
from app.engine import lifecycle
from app.engine.context import Context
from tests.engine.conftest import ctx, new_run  # noqa: F401  ctx is a fixture
from tests.integration.cli import EVALUATOR, problem_folder
from tests.integration.killed_workers import Workers, queued_runs
from tests.integration.worker_double import until

pytestmark = pytest.mark.timing

TRIAL_SECONDS, DRAIN_SECONDS = 240, 2
SLOW = EVALUATOR.replace("    spec =", f"    time.sleep({TRIAL_SECONDS})\n    spec =")
LEASES = "SELECT leased_until > now(), attempts FROM trials"


def test_a_worker_that_is_asked_to_end_gives_back_the_leases_of_steps_that_take_longer(
    ctx: Context,  # noqa: F811
    tmp_path: Path,
    valkey: str,
    broker: redis.Redis,
    database: str,
) -> None:
    folder = problem_folder(
        tmp_path / "slow",
        evaluator=f"import time\n\n{SLOW}",
        config=f"evaluator: {{timeout: {TRIAL_SECONDS}}}",
    )
    slow = load([folder])
    ctx = replace(ctx, problem=lambda digest: slow)
    with (
        queued_runs(ctx, tmp_path, valkey, database) as queued,
        psycopg.connect(database.replace("+psycopg", ""), autocommit=True) as ledger,
    ):
        lifecycle.start(queued.ctx, slow, replace(new_run(slow, islands=1), axes=()))
        drained = {"EVOQ_DRAIN_SECONDS": str(DRAIN_SECONDS)}
        workers = Workers(tmp_path, {**os.environ, **queued.variables, **drained})
        try:
            taken = [(True, 1)]
            until(lambda: ledger.execute(LEASES).fetchall() == taken, what="a trial in progress")
            asked = time.monotonic()
            os.kill(workers.victim, signal.SIGTERM)
            until(lambda: ledger.execute(LEASES).fetchall() == [(None, 0)], what="a free trial")
            seconds = time.monotonic() - asked
            victim = psutil.Process(workers.victim)
            until(lambda: victim.status() == psutil.STATUS_ZOMBIE, what="the end of the worker")
        finally:
            workers.close()

    assert DRAIN_SECONDS - 1 < seconds < ctx.pace.lease_seconds
