"""Breeding: parents are drawn once the model of the run has a place for the prompt."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

import psycopg

from app.adapters.store.sql import SqlStore
from app.domain.operator import Completion, Prompt
from app.domain.program import Program
from app.domain.run import Run
from app.domain.search.archive import Cell
from app.domain.search.recipes.map_elites import default_patience
from app.engine import steps
from app.engine.context import Context
from app.ports.protocols import NEVER, Stop
from tests.engine.conftest import with_process
from tests.engine.executors import Numbers, RecordedMessages, planned


def drafted(database: str, run: int) -> int:
    """Returns how many proposals of a run have parents."""
    with psycopg.connect(database.replace("+psycopg", "")) as connection:
        [(drawn,)] = connection.execute(
            "SELECT count(*) FROM proposals WHERE run = %s AND parents IS NOT NULL AND NOT seed",
            (run,),
        ).fetchall()
    return int(drawn)


def children(database: str, run: int) -> Counter[str]:
    """Returns how many children each program of a run has in the ledger."""
    with psycopg.connect(database.replace("+psycopg", "")) as connection:
        drawn = connection.execute(
            "SELECT parents[1] FROM proposals WHERE run = %s AND NOT seed", (run,)
        ).fetchall()
    return Counter(parent for (parent,) in drawn)


def test_parents_are_drawn_behind_the_place_which_is_free_once_the_model_has_answered(
    ctx: Context, store: SqlStore, database: str
) -> None:
    free, waiting = threading.Event(), threading.Event()
    asked_when_given: list[int] = []

    @contextmanager
    def wait() -> Iterator[Callable[[], None]]:
        waiting.set()
        free.wait(30)
        yield lambda: asked_when_given.append(model.asked)

    def place(run: Run) -> AbstractContextManager[Callable[[], None]]:
        return wait()

    model = Numbers()
    ctx = replace(ctx, model=lambda run: model, executor=RecordedMessages())
    ctx = with_process(ctx, take_place=place)
    run, proposals = planned(ctx, 1, "asked")
    with ThreadPoolExecutor(1) as pool:
        bred = pool.submit(steps.generate, ctx, *proposals)
        assert waiting.wait(30)
        assert drafted(database, run.id) == 0
        assert model.asked == 0
        free.set()
        bred.result(30)
    assert drafted(database, run.id) == len(proposals)
    assert asked_when_given[0] == 1, "the place is given back after the model's first answer"


class Held(Numbers):
    """Answers all conversations when as many as expected wait; `next` is free after each."""

    def __init__(self, conversations: int) -> None:
        super().__init__()
        self.next = threading.Semaphore(1)
        self.all = threading.Barrier(conversations)

    def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
        self.next.release()
        self.all.wait(30)
        return super().complete(prompts)


def test_children_at_the_model_count_for_the_patience_with_their_parent(
    ctx: Context, store: SqlStore, database: str
) -> None:
    patience, more = default_patience(12), 2
    model = Held(patience + more)
    ctx = replace(ctx, model=lambda run: model, executor=RecordedMessages())
    run, proposals = planned(ctx, patience + more, "asked")
    other = Program("x = -3.0\n")
    with store.begin() as tx:
        [seed] = tx.archive.island(run.id, 0).best(9)
        tx.programs.put([other])
        worse = replace(seed, program=other.id, fitness=seed.fitness - 1, cell=(0,))
        for island in range(run.islands):
            tx.archive.put_cell(run.id, island, Cell((0,), (worse,)))
    with ThreadPoolExecutor(len(proposals)) as pool:
        conversations = []
        # A draw that explores pays no attention to the patience: it must not be the last.
        for proposal in proposals:
            assert model.next.acquire(timeout=30)
            conversations.append(pool.submit(steps.generate, ctx, proposal))
        for bred in conversations:
            bred.result(60)
    assert 0 < children(database, run.id)[seed.program] <= patience  # a few draws explore
    assert ctx.drawn.children(run.id, seed.program) == 0


def test_a_seed_is_no_child_of_itself(ctx: Context, store: SqlStore) -> None:
    ctx = replace(ctx, executor=RecordedMessages())
    run, _ = planned(ctx, 1, "asked")
    toy = ctx.problem(run.problem)

    with store.begin() as tx:
        bred = tx.archive.island(run.id, 0).bred(4, 10)
        children = tx.programs.children(run.id, toy.seeds[0].id, 10)
        [settled] = tx.history.of_program(run.id, toy.seeds[0].id, 10)
        births = tx.history.ancestry(run.id, [toy.seeds[0].id])

    assert [each.children for each in bred] == [0]
    assert children == ()
    assert settled.parents == ()
    assert [(birth.parent, birth.children) for birth in births] == [(None, 0)]
