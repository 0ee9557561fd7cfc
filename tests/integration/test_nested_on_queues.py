"""A run inside a run on real queues, whose worker is killed in the middle of it."""

from dataclasses import replace
from pathlib import Path

import pytest
import redis

from app.adapters.problems import load
from app.config.settings import NestedSettings, RunSettings
from app.domain.operators.mutate import MUTATE
from app.domain.operators.search import SEARCH
from app.domain.operators.seed import SEED
from app.engine import lifecycle
from app.engine.context import Context
from tests.engine.conftest import ctx, new_run  # noqa: F401  ctx is a fixture
from tests.engine.test_nested import check_accounts
from tests.integration.cli import EVALUATOR, problem_folder
from tests.integration.killed_workers import queued_runs

pytestmark = pytest.mark.timing

SLICE = 3
IN_PROGRESS = """
    SELECT count(*) FILTER (WHERE evaluation IS NOT NULL) >= 2
        AND count(*) FILTER (WHERE evaluation IS NULL AND leased_until > now()) >= 1
    FROM trials JOIN runs ON runs.id = trials.run WHERE runs.parent IS NOT NULL
"""
SLOW = EVALUATOR.replace("    spec =", "    time.sleep(0.2)\n    spec =")


def test_a_killed_worker_costs_no_proposal_of_a_run_inside(
    ctx: Context,  # noqa: F811
    tmp_path: Path,
    valkey: str,
    broker: redis.Redis,
    database: str,
) -> None:
    assert SLOW != EVALUATOR
    slow = load([problem_folder(tmp_path / "sum", evaluator=f"import time\n\n{SLOW}")])
    operators = {one.name: one for one in (SEED, MUTATE, SEARCH)}
    ctx = replace(ctx, problem=lambda digest: slow, operators=operators)
    budget = 2 * (1 + SLICE)
    new = new_run(slow, islands=1, budget=budget, in_flight=8)
    nested = NestedSettings(strategy="reflexion", proposals=SLICE, operators={"mutate": 1.0})
    stored = RunSettings.model_validate(new.settings)
    stored = stored.model_copy(update={"nested": nested, "strategy": {"n": 2}})
    settings = stored.model_dump(mode="json")
    new = replace(new, strategy="best_of_n", settings=settings, operators={"search": 1.0}, axes=())

    with queued_runs(ctx, tmp_path, valkey, database) as queued:
        started = lifecycle.start(queued.ctx, slow, new)
        attempts = queued.end([started], IN_PROGRESS)

    with ctx.store.begin() as tx:
        run = tx.runs.get(started.id)
    inside = check_accounts(ctx, run)
    assert attempts >= 2, "no trial was begun again"
    assert run.proposals == budget
    assert [each.run.proposals for each in inside if each.run] == [SLICE] * 2
