"""Steps in many threads at once, duplicated, lost and out of order, leave a consistent ledger."""

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from app.domain.events import SETTLING, EventKind
from app.domain.problem import Axis
from app.domain.run import RunState
from app.engine import lifecycle, steps
from app.engine.context import Context, Pace
from app.ports import Step
from tests.engine.conftest import new_run, table
from tests.engine.toy import problem


class Careless:
    """An executor that forgets one bell in ten, rings one in five twice, and keeps no order.

    Attributes:
      shared: How many bells named more than one subject.
    """

    def __init__(self, seed: int) -> None:
        self._waiting: list[tuple[Step, list[int]]] = []
        self.shared = 0
        self._lock = threading.Lock()
        self._rng = random.Random(seed)

    def submit(self, step: Step, subjects: Sequence[int], *, together: int = 1) -> None:
        with self._lock:
            shuffled = self._rng.sample(subjects, len(subjects))
            for n in range(0, len(shuffled), together):
                bell = shuffled[n : n + together]
                self.shared += len(bell) > 1
                luck = self._rng.random()
                copies = 0 if luck < 0.1 else 2 if luck < 0.3 else 1
                self._waiting += [(step, bell)] * copies

    def take(self) -> tuple[Step, list[int]] | None:
        with self._lock:
            if not self._waiting:
                return None
            return self._waiting.pop(self._rng.randrange(len(self._waiting)))

    def serve(
        self,
        answers: Mapping[Step, Callable[..., None]],
        stop: threading.Event,
        errors: list[str],
        borne: tuple[type[Exception], ...] = (),
    ) -> None:
        """Answers bells until told to stop, as a worker does; what is borne is no error."""
        while not stop.is_set():
            bell = self.take()
            if bell is None:
                stop.wait(0.005)
                continue
            try:
                answers[bell[0]](*bell[1])
            except borne:
                continue
            except Exception as error:
                errors.append(repr(error))


RANGED = (Axis("x", 12, -4.0, 8.0),)
OPEN = (Axis("x", 10), Axis("length", 3, 0.0, 40.0))
"""Its grid is learnt on the way, and everybody placed anew."""


@pytest.mark.parametrize(("seed", "axes"), [(1, RANGED), (2, RANGED), (3, OPEN)])
def test_many_careless_workers_lose_nothing_and_count_nothing_twice(
    ctx: Context, seed: int, axes: tuple[Axis, ...]
) -> None:
    queue = Careless(seed)
    ctx = replace(ctx, executor=queue, pace=Pace(2.0, 0.2, 0.1))
    toy = problem(axes=axes)
    run = lifecycle.start(
        ctx, toy, new_run(toy, budget=300, in_flight=64, islands=3, migration_interval=3)
    )
    stop, errors = threading.Event(), list[str]()
    told = (table(ctx), stop, errors)
    threads = [threading.Thread(target=queue.serve, args=told) for _ in range(8)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 240
    state = RunState.RUNNING
    while state is RunState.RUNNING and time.monotonic() < deadline:
        stop.wait(0.1)
        steps.reap_all(ctx)
        steps.produce_all(ctx)
        with ctx.store.begin() as tx:
            state = tx.run(run.id).state
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors, (len(errors), errors[:3])
    with ctx.store.begin() as tx:
        final, events = tx.run(run.id), tx.events(run.id, limit=10_000)
    assert final.state is RunState.FINISHED
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    settled = sorted(e.data["proposal"] for e in events if e.kind in SETTLING)
    assert settled == list(range(300))
    assert queue.shared > 10
    best: dict[tuple[int, tuple[int, ...]], float] = {}
    for event in events:
        if event.kind is EventKind.REGRIDDED:
            best.clear()
        if event.kind is EventKind.ADMITTED:
            cell = (event.data["island"], tuple(event.data["cell"]))
            assert event.data["fitness"] > best.get(cell, float("-inf"))
            best[cell] = event.data["fitness"]
