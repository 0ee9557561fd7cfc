"""Asking: models are asked within a run's budget, and replies are saved before they are read."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from app.domain.operator import Completion
from app.domain.run import Run
from app.domain.search.budget import NOTHING, Charge, Price, charge
from app.engine.budget import lost, price_ceiling, set_aside
from app.engine.context import Context
from app.engine.lease import Postponed, outlast
from app.ports.completions import Turn
from app.ports.protocols import NEVER, Stop, Stopped, Unavailable, Unwritable

TRIES = 15
"""How often saving a reply is attempted.  In a worker each attempt waits up to 20 s for Postgres:
five minutes in all, because a paid reply cannot be obtained again."""
_ROOM_SECONDS = 300.0
"""How long saving a reply waits for room in the ledger, for the same reason."""


class Unaffordable(Exception):
    """A conversation may not go on: what it asks next could exceed the run's budget."""


class Overtaken(Postponed):
    """Another worker saved a reply to this turn first; ours is charged and discarded.

    The lease had run out.  The second worker leaves the step to the first, because otherwise both
    would pay for every later turn.  If the first one ends, the step is enqueued again as after any
    worker's end.
    """


def ask(
    ctx: Context,
    run: Run,
    turn: Turn,
    answers: Mapping[int, Completion],
    on_answer: Callable[[], None] = lambda: None,
    stop: Stop = NEVER,
) -> list[Completion]:
    """Asks the prompts of a turn; returns an answer each, in order.

    Args:
      ctx: The world.
      run: Whose model is asked, and whose account pays.
      turn: With at least one prompt, and nothing booked.
      answers: What was answered when this step ran before, by place; it is not asked again.
      on_answer: Called once the model has answered, before the answers are saved.
      stop: Drops what is not answered yet.

    Raises:
      Stopped: It was; what was answered is saved, and what may be billed is booked.
      Unaffordable: A prompt is longer than was foreseen, and the budget has no room for it.
      Overtaken: Other answers to this turn are stored.
      PromptTooLong: A prompt is longer than its model takes.
      Unavailable: The model cannot be reached; what it answered all the same is saved, by its place
        in `answered`, and what may be billed is booked.  Or the ledger cannot be reached, `TRIES`
        times in a row: the answers are lost.
    """
    prompts = turn.prompts
    missing = [place for place in range(len(prompts)) if place not in answers]
    if missing:
        if stop.asked:
            raise Stopped("the proposal was withdrawn before its model was asked")
        unanswered = [prompts[place] for place in missing]
        reason = set_aside(ctx, run, replace(turn, prompts=unanswered, drafts=()))
        if reason:
            raise Unaffordable(reason)
        turn = replace(turn, logged_chars=run.rules.prompts.logged_chars)
        proposals = [member.id for member in turn.cohort.members]
        asker, number, asked = turn.asker, turn.number, len(missing)
        try:
            with ctx.tracing.span(
                "ask", run, proposals=proposals, asker=asker, turn=number, prompts=asked
            ) as note:
                completions = ctx.model(run).complete(unanswered, stop)
                fresh = dict(zip(missing, completions, strict=True))
                note(
                    model=completions[0].model,
                    prompt_tokens=sum(reply.prompt_tokens for reply in completions),
                    completion_tokens=sum(reply.completion_tokens for reply in completions),
                )
            on_answer()
        except Unavailable as error:
            answered = {missing[place]: completion for place, completion in error.answered.items()}
            unheard = [prompts[place] for place in missing if place not in answered]
            _save(ctx, _with_answers(run, turn, answered, lost(run, unheard, error.unanswered)))
            error.answered = answered
            raise
        _save(ctx, _with_answers(run, turn, fresh))
        answers = {**answers, **fresh}
    return [answers[place] for place in range(len(prompts))]


def _with_answers(
    run: Run, turn: Turn, answered: Mapping[int, Completion], lost: Price = NOTHING
) -> Turn:
    """Returns a turn with its answers, by place, and with what they and others may have taken."""
    paid = [turn.prompts[place] for place in answered], list(answered.values())
    account = charge(run.budget, price_ceiling(run), *paid)
    tokens, usd = account.tokens + lost.tokens, account.cost_usd + lost.cost_usd
    completions = [answered.get(place) for place in range(len(turn.prompts))]
    return replace(
        turn, booked=replace(account, tokens=tokens, cost_usd=usd), completions=completions
    )


def _save(ctx: Context, turn: Turn) -> None:
    if not any(turn.completions) and turn.booked == Charge():
        return
    kind, work = ("save", turn.cohort.run), partial(_save_turns, ctx)
    saving = partial(_save_at_last, partial(ctx.process.share, kind, [turn], work))
    [overtaken] = outlast(ctx, saving, _ROOM_SECONDS)
    if overtaken:
        raise Overtaken(f"turn {turn.number} of cohort {turn.cohort.id} was answered before")


def _save_at_last(save: Callable[[], list[bool]]) -> list[bool]:
    """Saves, again and again while the ledger cannot be reached: a paid reply is not lost."""
    for _ in range(TRIES - 1):
        try:
            return save()
        except Unwritable:
            raise
        except Unavailable:
            continue
    return save()


def _save_turns(ctx: Context, turns: Sequence[Turn]) -> list[bool]:
    """Saves turns; returns for each whether another worker's replies to it were stored first."""
    with ctx.store.begin() as tx:
        late = tx.completions.save(turns)
    return [any(other is turn for other in late) for turn in turns]
