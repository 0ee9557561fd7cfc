"""Steps in many threads at once, duplicated, lost and out of order, leave a consistent ledger."""

from dataclasses import replace

import pytest

from app.domain.events import SETTLING, EventKind
from app.domain.problem import Axis
from app.domain.run import RunState
from app.engine import lifecycle
from app.engine.context import Context, Pace
from tests.engine.conftest import new_run
from tests.engine.executors import UnreliableQueue, served
from tests.engine.toy import problem

RANGED = (Axis("x", 12, -4.0, 8.0),)
PROPOSALS = 100
OPEN = (Axis("x", 10), Axis("length", 3, 0.0, 40.0))
"""Its grid is learnt on the way, and everybody placed anew."""


@pytest.mark.parametrize(("seed", "axes"), [(1, RANGED), (3, OPEN)])
def test_many_careless_workers_lose_nothing_and_count_nothing_twice(
    ctx: Context, seed: int, axes: tuple[Axis, ...]
) -> None:
    queue = UnreliableQueue(seed)
    ctx = replace(ctx, executor=queue, pace=Pace(2.0, 0.2, 0.1))
    toy = problem(axes=axes)
    run = lifecycle.start(
        ctx, toy, new_run(toy, budget=PROPOSALS, in_flight=64, islands=3, migration_interval=3)
    )
    served(queue, ctx, run, [ctx] * 8, seconds=240)
    with ctx.store.begin() as tx:
        final, events = tx.runs.get(run.id), tx.events.read(run.id, limit=10_000)
    assert final.state is RunState.FINISHED
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    settled = sorted(e.data["proposal"] for e in events if e.kind in SETTLING)
    assert settled == list(range(PROPOSALS))
    assert queue.shared > 0
    best: dict[tuple[int, tuple[int, ...]], float] = {}
    for event in events:
        if event.kind is EventKind.REGRIDDED:
            best.clear()
        if event.kind is EventKind.ADMITTED:
            cell = (event.data["island"], tuple(event.data["cell"]))
            assert event.data["fitness"] > best.get(cell, float("-inf"))
            best[cell] = event.data["fitness"]
