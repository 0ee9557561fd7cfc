"""Reads of a run that changes meanwhile."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from app.adapters.queue.inline import InlineExecutor
from app.client.following import ProgressReader
from app.domain.evaluation import Failure, FailureKind
from app.domain.operator import Brief, Conversation, Offspring, Operator
from app.domain.operators.seed import SEED
from app.domain.problem import Job, Outcome
from app.domain.program import Program
from app.engine import lifecycle, steps
from app.engine.context import Context
from app.ports.protocols import NEVER, Stop, Store
from app.reports.summary import summarise
from tests.engine.conftest import new_run, table
from tests.engine.executors import RecordedMessages, planned
from tests.engine.toy import ToySandbox, problem


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


def test_a_run_whose_proposals_fail_alike_says_what_is_wrong_with_them(ctx: Context) -> None:
    class Strict(ToySandbox):
        def run(self, job: Job, stop: Stop = NEVER) -> Outcome:
            outcome = super().run(job)
            if self.runs == 1:
                return outcome
            detail = "comparators must be pairs, not token=abc123" if self.runs % 4 else "no list"
            return Outcome(None, Failure(FailureKind.INVALID_RESULT, f"{detail}\nline 2"))

    def other(brief: Brief) -> Conversation:
        yield from ()
        return [Offspring(Program(f"x = {draft.ordinal}.5\n")) for draft in brief.drafts]

    operators = {"seed": SEED, "nudge": Operator("nudge", other, asks_model=False)}
    ctx = replace(ctx, sandbox=Strict(), operators=operators)
    texts: list[tuple[int, str]] = []
    run = lifecycle.start(ctx, problem(), new_run(problem(), budget=60))
    reader = ProgressReader(ctx.store, run.id)

    def read() -> bool:
        progress = reader.read().progress
        texts[:] = [*texts, *((progress.done, text) for text in progress.notices[len(texts) :])]
        return False

    assert isinstance(ctx.executor, InlineExecutor)
    ctx.executor.drain(table(ctx), read)

    assert [done for done, _ in texts] == [3, 25, 50], "the third, as no child was measured yet"
    assert "25 of 25 proposals ended as invalid_result" in texts[1][1]
    assert "19 of them: comparators must be pairs, not token=<REDACTED>" in texts[1][1]
    assert "line 2" not in texts[1][1]
    explanation = summarise(ctx.store, run.id, problem()).explanation
    assert explanation is not None
    assert "60 of 60 proposals ended as invalid_result" in explanation.text
