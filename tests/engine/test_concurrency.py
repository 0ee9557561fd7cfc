"""Steps in many threads at once, duplicated, lost and out of order, leave a consistent ledger."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from app.adapters.queue.inline import InlineExecutor
from app.domain.events import SETTLING, EventKind
from app.domain.operator import Completion, Prompt
from app.domain.problem import Axis, Job, Outcome
from app.domain.run import RunState
from app.engine import lifecycle
from app.engine.context import Context, Pace
from app.ports.ledger import Transaction
from app.ports.protocols import NEVER, Stop, Store
from tests.engine.conftest import new_run, run_to_the_end
from tests.engine.executors import UnreliableQueue, served
from tests.engine.toy import ToySandbox, problem

RANGED = (Axis("x", 12, -4.0, 8.0),)
PROPOSALS = 100
OPEN = (Axis("x", 10), Axis("length", 3, 0.0, 40.0))
"""Its grid is learnt on the way, and everybody placed anew."""


@pytest.mark.parametrize(("seed", "axes"), [(1, RANGED), (3, OPEN)])
def test_many_careless_workers_lose_nothing_and_count_nothing_twice(
    ctx: Context, seed: int, axes: tuple[Axis, ...]
) -> None:
    queue = UnreliableQueue(seed)
    # On a busy machine leases run out under work, time and again.
    ctx = replace(ctx, executor=queue, pace=Pace(2.0, 0.2, 0.1, attempts=10_000))
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


class Watched(InlineExecutor):
    """The four ports of a run, which record how many transactions are open when they are used."""

    name = "watched"

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store, self._sandbox = store, ToySandbox()
        self._open = 0
        self.seen: dict[str, Counter[int]] = {
            port: Counter() for port in ("model", "sandbox", "queue")
        }

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @contextmanager
    def begin(self, *, snapshot: bool = False) -> Iterator[Transaction]:
        with self._store.begin(snapshot=snapshot) as tx:
            self._open += 1
            try:
                yield tx
            finally:
                self._open -= 1

    def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
        self.seen["model"][self._open] += 1
        return [Completion(f"x = {prompt.sample}.5\n", "watched") for prompt in prompts]

    def run(self, job: Job, stop: Stop = NEVER) -> Outcome:
        self.seen["sandbox"][self._open] += 1
        return self._sandbox.run(job)

    def submit(self, *message: Any, **options: Any) -> None:
        self.seen["queue"][self._open] += 1
        super().submit(*message, **options)


def test_no_transaction_is_open_while_a_model_a_sandbox_or_the_queue_is_used(ctx: Context) -> None:
    ports: Any = Watched(ctx.store)
    ctx = replace(ctx, store=ports, model=lambda run: ports, sandbox=ports, executor=ports)
    new = replace(new_run(problem(), budget=12, in_flight=4), operators={"asked": 1.0})

    run = run_to_the_end(ctx, problem(), new)

    with ctx.store.begin() as tx:
        assert tx.runs.get(run).state is RunState.FINISHED
    assert {port: list(opened) for port, opened in ports.seen.items()} == {
        "model": [0],
        "sandbox": [0],
        "queue": [0],
    }
