"""Reads of a run that changes meanwhile."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from app.cli.following import ProgressReader
from app.engine import steps
from app.engine.context import Context
from app.ports.protocols import Store
from tests.engine.executors import RecordedMessages, planned


class Meanwhile:
    """A ledger in which something happens at every read of the states of proposals."""

    def __init__(self, store: Store, happens: Callable[[], None]) -> None:
        self._store, self._happens = store, happens

    @contextmanager
    def begin(self, *, snapshot: bool = False) -> Iterator[Any]:
        with self._store.begin(snapshot=snapshot) as tx:
            states = tx.history.states

            def interrupted(run: int) -> Any:
                result = states(run)
                self._happens()
                return result

            tx.history.states = interrupted  # type: ignore[method-assign]
            yield tx


def test_a_proposal_that_settles_during_a_read_is_counted_once(ctx: Context) -> None:
    ctx = replace(ctx, executor=RecordedMessages())
    run, cohorts = planned(ctx, 2)
    left = list(cohorts)

    def settle() -> None:
        steps.generate(ctx, left.pop())
        _, trials, _ = ctx.executor.take()  # type: ignore[attr-defined]
        steps.evaluate(ctx, *trials)

    reader = ProgressReader(Meanwhile(ctx.store, settle), run.id)  # type: ignore[arg-type]
    first, second = reader.read(), reader.read()
    assert len(left) == 1
    with ctx.store.begin() as tx:
        final = sum(n for state, n in tx.history.states(run.id).items() if state.final)
    assert (first.progress.done, second.progress.done) == (final - 1, final)
