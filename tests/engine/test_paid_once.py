"""What two workers were answered to the same: both answers are booked, the first one is used."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace

import psycopg
import pytest

from app.adapters.queue.inline import InlineExecutor
from app.cli.costs import cost_rows
from app.domain.operator import Completion, Draft, Prompt, Role
from app.domain.run import Run
from app.domain.search.budget import Charge
from app.domain.search.cohort import Cohort
from app.engine import lifecycle, steps
from app.engine.context import Context, Pace
from app.ports.completions import Asker, Turn
from app.ports.protocols import NEVER, Stop
from app.reports.costs import read_costs
from tests.engine.conftest import table
from tests.engine.executors import RecordedMessages, operator_replies, planned, settled
from tests.engine.test_judge import order
from tests.engine.test_lock_order import settles
from tests.engine.toy import problem

TOKENS = 7
USD = 0.5


@pytest.fixture
def ctx(ctx: Context) -> Context:
    return replace(ctx, executor=RecordedMessages(), pace=Pace(retry_seconds=0.0))


class Slow:
    """A model whose first answer takes as long as `meanwhile` does."""

    name = "slow"

    def __init__(self) -> None:
        self.asked = 0
        self.meanwhile: Callable[[], None] = lambda: None

    def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
        self.asked += 1
        mine = self.asked
        if mine == 1:
            self.meanwhile()
        return [
            Completion(
                f"x = {mine}\n",
                self.name,
                completion_tokens=TOKENS,
                cost_usd=USD,
                latency_seconds=float(mine),
            )
            for _ in prompts
        ]


def test_an_answer_that_another_worker_had_first_is_booked_and_makes_no_program(
    ctx: Context,
) -> None:
    model = Slow()
    late = replace(ctx, model=lambda run: model, pace=Pace(lease_seconds=0.0))
    run, cohorts = planned(late, 1, "asked")
    model.meanwhile = lambda: steps.generate(late, *cohorts)

    steps.generate(late, *cohorts)

    [(_, trials, _)] = ctx.executor.messages  # type: ignore[attr-defined]
    steps.evaluate(late, *trials)
    assert settled(ctx, run) == [0]
    with ctx.store.begin() as tx:
        turns = operator_replies(tx, *cohorts)
        found, spent = read_costs(tx, tx.runs.get(run.id), 1), tx.runs.get(run.id)
    texts = [one.text for turn in turns.values() for one in turn.values()]
    assert texts == ["x = 2\n", "x = 3\n"]  # its operator has two turns
    assert model.asked == 3
    assert (spent.tokens, spent.cost_usd) == (3 * TOKENS, 3 * USD)
    assert found.uncounted_tokens == TOKENS
    assert found.models_usd == 2 * USD
    shown = cost_rows(found)["tokens"]
    assert f"{TOKENS} more booked ($0.5) for what was answered twice" in shown


class TwoJudges:
    """A judge whose first opinion takes as long as `meanwhile` does; writes numbers."""

    name = "two"

    def __init__(self) -> None:
        self.opinions = 0
        self.meanwhile: Callable[[], None] = lambda: None

    def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
        if prompts[0].role is not Role.JUDGE:
            return [Completion(f"x = {one.sample}\n", self.name) for one in prompts]
        self.opinions += 1
        mine = self.opinions
        if mine == 1:
            self.meanwhile()
        text = f'{{"clear": {mine / 4}}}'
        return [Completion(text, self.name, completion_tokens=TOKENS) for _ in prompts]


def test_an_opinion_that_another_worker_had_first_is_booked_and_changes_nothing(
    ctx: Context,
) -> None:
    model = TwoJudges()
    late = replace(
        ctx, executor=InlineExecutor(), model=lambda run: model, pace=Pace(lease_seconds=0.0)
    )
    run = lifecycle.start(late, problem(), order())
    judging: list[int] = []

    def judge(trial: int) -> None:
        judging.append(trial)
        model.meanwhile = lambda: steps.judge(late, trial)
        steps.judge(late, trial)

    late.executor.drain(  # type: ignore[attr-defined]
        {**table(late), "judge": judge}, lambda: bool(judging)
    )

    with late.store.begin() as tx:
        spent = tx.runs.get(run.id).tokens
        [seed] = [one for one in tx.history.settled(run.id) if one.seed]
        judged = tx.history.evaluations(run.id, seed.program or "")[-1]
    assert model.opinions == 2
    assert spent == 4 * TOKENS  # each of two judges, twice
    weight = 0.5
    assert judged.scores[seed.program or ""]["llm_clear"] == weight * 2 / 4


def leased(ctx: Context, n: int) -> tuple[Run, list[Cohort]]:
    run, cohorts = planned(ctx, n, "asked")
    with ctx.store.begin() as tx:
        return run, [one.cohort for _, one in tx.proposals.claim(cohorts, 30, attempts=5)]


def answered(cohort: Cohort, text: str, parent: str = "a" * 64, number: int = 0) -> Turn:
    [member] = cohort.members
    drafts = [Draft(member.ordinal, cohort.island, 0, 1, (parent,))] if number == 0 else []
    said = [Completion(text, "small", completion_tokens=TOKENS)]
    prompts = [Prompt("", "", member.ordinal)]
    return Turn(cohort, Asker.OPERATOR, number, Charge(TOKENS), prompts, said, drafts)


def saved(ctx: Context, *turns: Turn) -> list[Turn]:
    with ctx.store.begin() as tx:
        return tx.completions.save(turns)


def texts(ctx: Context, cohort: Cohort) -> list[str]:
    with ctx.store.begin() as tx:
        return [
            one.text
            for turn in operator_replies(tx, cohort.members[0].id).values()
            for one in turn.values()
        ]


def booked(ctx: Context, run: Run) -> int:
    with ctx.store.begin() as tx:
        return tx.runs.get(run.id).tokens


def test_a_turn_that_was_overtaken_undoes_none_that_is_saved_with_it(ctx: Context) -> None:
    run, (one, other) = leased(ctx, 2)
    saved(ctx, answered(one, "first"))
    second = answered(one, "second")

    overtaken = saved(ctx, second, answered(other, "alone"))

    assert len(overtaken) == 1
    assert overtaken[0] is second
    assert texts(ctx, one) == ["first"]
    assert texts(ctx, other) == ["alone"]
    assert booked(ctx, run) == 3 * TOKENS


def test_of_two_answers_saved_in_one_transaction_the_first_is_used_and_both_are_booked(
    ctx: Context,
) -> None:
    run, [cohort] = leased(ctx, 1)
    first, second = answered(cohort, "first"), answered(cohort, "second")

    overtaken = saved(ctx, first, second)

    assert len(overtaken) == 1
    assert overtaken[0] is second
    assert texts(ctx, cohort) == ["first"]
    assert booked(ctx, run) == 2 * TOKENS


def test_the_parents_of_the_first_answer_stay_its_parents(ctx: Context) -> None:
    _, [cohort] = leased(ctx, 1)
    saved(ctx, answered(cohort, "first", "a" * 64))

    assert saved(ctx, answered(cohort, "second", "b" * 64))

    with ctx.store.begin() as tx:
        [member] = tx.cohorts.lock(cohort.id)[1].members
    assert member.draft is not None
    assert member.draft.parents == ("a" * 64,)


def test_an_answer_to_a_cohort_that_was_cut_meanwhile_is_stored(ctx: Context) -> None:
    run, [cohort] = leased(ctx, 1)
    lifecycle.cut_unsettled(ctx, run.id, "its time is spent")

    assert not saved(ctx, answered(cohort, "late"))

    assert texts(ctx, cohort) == ["late"]
    assert booked(ctx, run) == TOKENS


_INSERT = """
    INSERT INTO completions (cohort, proposal, asker, turn, place, text, model, finish,
        prompt_tokens, completion_tokens, latency_seconds, prompt, sample, parameters)
    VALUES (%s, %s, 'operator', 1, 0, 'first', 'small', 'stop', 0, 7, 1, '', 0, '{}')
"""


def rival(database: str) -> psycopg.Connection:
    return psycopg.connect(database.replace("+psycopg", ""))


def test_an_answer_that_another_worker_is_saving_is_waited_for_and_used(
    ctx: Context, database: str
) -> None:
    run, [cohort] = leased(ctx, 1)
    second = answered(cohort, "second", number=1)
    with rival(database) as c:
        c.execute(_INSERT, [cohort.id, cohort.members[0].id])
        saving: Future[list[Turn]] = settles(database, lambda: saved(ctx, second))
        assert not saving.done()

    assert saving.result(60) == [second]
    assert texts(ctx, cohort) == ["first"]
    assert booked(ctx, run) == TOKENS


def test_workers_that_save_answers_to_the_same_cohorts_wait_for_each_other_in_order(
    ctx: Context, database: str
) -> None:
    _, (one, other) = leased(ctx, 2)
    turns = [answered(cohort, "second", number=1) for cohort in (other, one)]
    with rival(database) as c:
        c.execute(_INSERT, [one.id, one.members[0].id])
        saving: Future[list[Turn]] = settles(database, lambda: saved(ctx, *turns))
        c.execute(_INSERT, [other.id, other.members[0].id])

    assert saving.result(60) == turns
