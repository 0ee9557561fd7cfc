"""A run ends at its budget of tokens, money and time, and goes on with a larger one."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import pytest

from app.adapters.queue.inline import InlineExecutor
from app.cli.costs import cost_rows
from app.config.models import ModelSettings
from app.config.settings import QueueSettings, RunSettings, SearchSettings
from app.domain.events import EventKind
from app.domain.operator import Brief, Completion, Conversation, Offspring, Operator, Prompt, Role
from app.domain.program import Program
from app.domain.run import Run, RunState
from app.domain.search.budget import PROMPT_GROWTH, Budget
from app.domain.search.cohort import State
from app.engine import lifecycle, steps
from app.engine.context import Context
from app.ports.protocols import NEVER, Stop, Unavailable
from app.ports.runs import NewRun
from app.reports.costs import read_costs
from tests.engine.conftest import new_run, table
from tests.engine.toy import problem

MAX_TOKENS = 50
PROMPT_TOKENS = 40


class Metered:
    """A model whose completions differ in length, up to the longest allowed; $1 a 1,000 tokens."""

    name = "metered"

    def __init__(self, *, counts: bool = True) -> None:
        self.asked = 0
        self.counts = counts

    def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
        replies = []
        for prompt in prompts:
            self.asked += 1
            answer = 1 + (self.asked * 7) % MAX_TOKENS
            prompt_tokens = PROMPT_TOKENS if self.counts else 0
            replies.append(
                Completion(
                    f"x = {prompt.sample / 7}\n",
                    "metered",
                    prompt_tokens=prompt_tokens,
                    completion_tokens=answer if self.counts else 0,
                    cost_usd=(prompt_tokens + answer) / 1000,
                )
            )
        return replies


def asking(budget: Budget, *, in_flight: int = 4) -> NewRun:
    settings = RunSettings(
        queue=QueueSettings(generating=in_flight, evaluating=in_flight),
        search=SearchSettings(islands=2),
        llm=ModelSettings(
            model="metered",
            max_tokens=MAX_TOKENS,
            usd_per_million_prompt_tokens=1000,
            usd_per_million_completion_tokens=1000,
        ),
    )
    return replace(
        new_run(problem(), in_flight=in_flight),
        operators={"asked": 1.0},
        settings=settings.model_dump(mode="json"),
        budget=budget,
    )


def drained(ctx: Context, run: int) -> Run:
    assert isinstance(ctx.executor, InlineExecutor)
    ctx.executor.drain(table(ctx), lambda: False)
    steps.produce(ctx, run)
    ctx.executor.drain(table(ctx), lambda: False)
    with ctx.store.begin() as tx:
        return tx.runs.get(run)


def test_a_run_ends_within_its_tokens_and_goes_on_with_more(ctx: Context) -> None:
    model = Metered()
    ctx = replace(ctx, model=lambda run: model)
    started = lifecycle.start(ctx, problem(), asking(Budget(500, tokens=1500)))

    run = drained(ctx, started.id)

    assert run.state is RunState.FINISHED
    assert run.reason.startswith("budget of 1500 tokens spent")
    most = MAX_TOKENS + PROMPT_TOKENS * PROMPT_GROWTH
    assert 1500 - 2 * most < run.tokens <= 1500
    with ctx.store.begin() as tx:
        assert sum(tx.history.states(run.id).values()) == run.proposals < 500
        assert all(state.final for state in tx.history.states(run.id))
    assert lifecycle.resume(ctx, run.id, replace(run.budget, tokens=2500))
    longer = drained(ctx, run.id)
    assert longer.state is RunState.FINISHED
    assert 2500 - 2 * most < longer.tokens <= 2500
    assert not lifecycle.resume(ctx, run.id, replace(run.budget, proposals=longer.proposals))


def test_a_run_ends_within_its_money_and_goes_on_with_more(ctx: Context) -> None:
    model = Metered()
    ctx = replace(ctx, model=lambda run: model)
    started = lifecycle.start(ctx, problem(), asking(Budget(500, cost_usd=3.0)))

    run = drained(ctx, started.id)

    assert run.state is RunState.FINISHED
    assert run.reason.startswith("budget of $3 spent")
    assert 2.7 < run.cost_usd <= 3.0
    assert lifecycle.resume(ctx, run.id, replace(run.budget, cost_usd=4.0))
    assert 3.7 < drained(ctx, run.id).cost_usd <= 4.0


def test_a_first_conversation_goes_alone_and_then_as_many_as_there_is_room_for(
    ctx: Context,
) -> None:
    model = Metered()
    ctx = replace(ctx, model=lambda run: model)
    started = lifecycle.start(ctx, problem(), asking(Budget(500, tokens=3000), in_flight=16))
    most = []
    while (message := _next(ctx)) is not None:
        table(ctx)[message[0]](message[1])
        with ctx.store.begin() as tx:
            most.append(
                (tx.runs.get(started.id).longest_prompt_tokens, tx.proposals.backlog(started.id))
            )
    alone = [backlog.unsettled for longest, backlog in most if not longest]
    later = [backlog.unsettled for longest, backlog in most if longest]
    assert max(alone) == 1
    assert max(later) > 4


def test_a_run_whose_time_was_over_before_its_seeds_were_measured_says_so(ctx: Context) -> None:
    started = lifecycle.start(ctx, problem(), new_run(problem(), budget=10))
    with ctx.store.begin() as tx:
        tx.runs.set_budget(started.id, Budget(10, wall_seconds=0.001))

    steps.produce(ctx, started.id)

    assert drained(ctx, started.id).reason == "budget of 0.001 s spent"
    assert lifecycle.resume(ctx, started.id, Budget(10))
    again = drained(ctx, started.id)
    assert again.state is RunState.FAILED
    assert again.reason.startswith("the seeds of 'toy' were cut before they were measured")


def _next(ctx: Context) -> tuple[str, int] | None:
    waiting = ctx.executor._messages  # type: ignore[attr-defined]
    return waiting.popleft() if waiting else None


def test_an_endpoint_that_counts_no_tokens_cannot_exceed_a_cap(ctx: Context) -> None:
    model = Metered(counts=False)
    ctx = replace(ctx, model=lambda run: model)
    started = lifecycle.start(ctx, problem(), asking(Budget(500, tokens=2000)))

    run = drained(ctx, started.id)

    assert run.reason.startswith("budget of 2000 tokens spent")
    assert 0 < run.tokens <= 2000


def _growing(brief: Brief) -> Conversation:
    """Asks with prompts that grow by far more than is foreseen, every seventh time."""
    ordinal = brief.drafts[0].ordinal
    words = 4000 if ordinal % 7 == 6 else 20
    replies = yield [Prompt("", "word " * words, ordinal)]
    return [Offspring(Program(reply.text)) for reply in replies]


class Counting(Metered):
    """Counts a prompt's tokens as they are, and says the longest that is allowed."""

    def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
        return [
            replace(one, prompt_tokens=len(prompt.user.split()), completion_tokens=MAX_TOKENS)
            for prompt, one in zip(prompts, super().complete(prompts), strict=True)
        ]


@pytest.mark.parametrize("tokens", [300, 3000, 7000, 12_000])
def test_a_prompt_much_longer_than_all_before_exceeds_no_cap(ctx: Context, tokens: int) -> None:
    model = Counting()
    operators = {**ctx.operators, "asked": Operator("asked", _growing)}
    ctx = replace(ctx, model=lambda run: model, operators=operators)
    started = lifecycle.start(ctx, problem(), asking(Budget(500, tokens=tokens)))

    run = drained(ctx, started.id)

    assert run.state is RunState.FINISHED
    assert 0 < run.tokens <= tokens
    with ctx.store.begin() as tx:
        assert all(state.final for state in tx.history.states(run.id))
        cut = [one for one in tx.events.read(run.id) if one.kind is EventKind.CUT]
    if tokens == 3000:
        assert any("no room for a prompt of" in one.data["reason"] for one in cut)


class Judged(Counting):
    """Writes a program that is much longer than all before, every seventh time."""

    def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
        return [
            one if prompt.role is Role.JUDGE or prompt.sample % 7 != 6 else replace(one, text=LONG)
            for prompt, one in zip(prompts, super().complete(prompts), strict=True)
        ]


LONG = f"x = 1.0  # {'word ' * 4000}\n"


def judged(budget: Budget) -> NewRun:
    new = asking(budget)
    llm = {**new.settings["llm"], "feedback": True, "roles": {"judge": {"model": "metered"}}}
    return replace(new, settings={**new.settings, "llm": llm})


@pytest.mark.parametrize("tokens", [300, 3000, 9000, 20_000])
def test_a_judges_prompt_much_longer_than_all_before_exceeds_no_cap(
    ctx: Context, tokens: int
) -> None:
    model = Judged()
    ctx = replace(ctx, model=lambda run: model)
    started = lifecycle.start(ctx, problem(), judged(Budget(500, tokens=tokens)))

    run = drained(ctx, started.id)

    assert run.state is RunState.FINISHED
    assert 0 < run.tokens <= tokens
    with ctx.store.begin() as tx:
        assert all(state.final for state in tx.history.states(run.id))
        said = [
            one.artifacts.get("judges", "")
            for one in tx.history.evaluations(run.id, Program(LONG).id)
        ]
    if tokens == 3000:
        assert any("no room for a prompt of" in one for one in said)


def test_a_judge_that_never_answered_counts_as_paid(ctx: Context) -> None:
    class DeafJudge(Metered):
        def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
            if prompts[0].role is Role.JUDGE:
                raise Unavailable("no answer within 2 s", unanswered=1)
            return super().complete(prompts)

    model = DeafJudge()
    ctx = replace(ctx, model=lambda run: model)
    started = lifecycle.start(ctx, problem(), judged(Budget(500, tokens=3000)))
    with pytest.raises(Unavailable):
        drained(ctx, started.id)

    with ctx.store.begin() as tx:
        assert tx.runs.get(started.id).tokens >= MAX_TOKENS


def test_requests_that_nobody_answered_count_as_paid(ctx: Context) -> None:
    class Deaf(Metered):
        def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
            if self.asked == 3:
                self.asked += 1
                raise Unavailable("no answer within 2 s", unanswered=2)
            return super().complete(prompts)

    model = Deaf()
    ctx = replace(ctx, model=lambda run: model, pace=replace(ctx.pace, retry_seconds=0.0))
    started = lifecycle.start(ctx, problem(), asking(Budget(500, tokens=3000)))
    before = 0
    while model.asked < 4:
        with ctx.store.begin() as tx:
            before = tx.runs.get(started.id).tokens
        message = _next(ctx)
        assert message is not None
        with suppress(Unavailable):
            table(ctx)[message[0]](message[1])

    with ctx.store.begin() as tx:
        run = tx.runs.get(started.id)
        found = read_costs(tx, run, 0)
    assert run.tokens >= before + 2 * MAX_TOKENS
    assert found.booked_tokens == run.tokens
    assert found.uncounted_tokens >= 2 * MAX_TOKENS
    assert f"{found.uncounted_tokens:,} more booked" in cost_rows(found)["tokens"]


def _chatty(brief: Brief) -> Conversation:
    yield [Prompt("", "", brief.drafts[0].ordinal)] * 2
    raise AssertionError("it is not answered")


def test_an_operator_may_not_ask_for_more_than_it_declares(ctx: Context) -> None:
    model = Metered()
    operators = {**ctx.operators, "asked": Operator("asked", _chatty)}
    ctx = replace(ctx, model=lambda run: model, operators=operators)
    started = lifecycle.start(ctx, problem(), asking(Budget(5)))

    with pytest.raises(ValueError, match="'asked' asks for 2 completions; it declares at most 1"):
        drained(ctx, started.id)
    assert model.asked == 0


def test_what_is_in_flight_is_cut_when_the_time_is_over(ctx: Context) -> None:
    started = lifecycle.start(ctx, problem(), new_run(problem(), budget=100, in_flight=6))
    while (message := _next(ctx)) is not None:
        if message[0] == "evaluate":
            with ctx.store.begin() as tx:
                if tx.proposals.backlog(started.id).evaluating >= 4:
                    break
        table(ctx)[message[0]](message[1])
    ctx.executor._messages.clear()  # type: ignore[attr-defined]
    with ctx.store.begin() as tx:
        tx.runs.set_budget(started.id, Budget(100, wall_seconds=0.001))
    steps.produce(ctx, started.id)

    run = drained(ctx, started.id)

    assert (run.state, run.reason) == (RunState.FINISHED, "budget of 0.001 s spent")
    with ctx.store.begin() as tx:
        states, events = tx.history.states(run.id), tx.events.read(run.id)
    assert states[State.CUT] >= 4
    assert all(state.final for state in states)
    assert events[-1].kind is EventKind.FINISHED
    assert not lifecycle.resume(ctx, run.id)
    assert lifecycle.resume(ctx, run.id, Budget(run.proposals + 5))
    assert drained(ctx, run.id).proposals == run.proposals + 5
