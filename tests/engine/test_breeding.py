"""Breeding: parents are drawn once the model of the run has a place for the prompt."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

import psycopg

from app.adapters.store.sql import SqlStore
from app.domain.run import Run
from app.engine import steps
from app.engine.context import Context
from tests.engine.executors import Numbers, RecordedMessages, planned


def drafted(database: str, run: int) -> int:
    """Returns how many proposals of a run have parents."""
    with psycopg.connect(database.replace("+psycopg", "")) as connection:
        [(drawn,)] = connection.execute(
            "SELECT count(*) FROM proposals WHERE run = %s AND parents IS NOT NULL AND NOT seed",
            (run,),
        ).fetchall()
    return int(drawn)


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
    ctx = replace(ctx, model=lambda run: model, place=place, executor=RecordedMessages())
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
