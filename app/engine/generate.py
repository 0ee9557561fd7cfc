"""Generate: parents are drawn, the operator makes children of them, and they enter the ledger."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from app.domain.evaluation import Failure
from app.domain.operator import Brief, Child, Completion, Draft, Prompt
from app.domain.run import Run
from app.domain.search.cohort import Cohort, CohortId
from app.domain.search.refining import assigned, scheduled
from app.domain.source.imports import ImportPolicy
from app.engine.ask import Overtaken, Unaffordable, ask
from app.engine.attempt import attempt
from app.engine.briefing import brief_of
from app.engine.context import Context, Pace
from app.engine.enter import GeneratedCohort, enter
from app.engine.lifecycle import cut
from app.ports.ledger import Transaction


def generate(ctx: Context, *cohorts: CohortId) -> None:
    """Generates the children of cohorts of one run, one after the other, and enters them together.

    Idempotent, and harmless when another worker does the same.

    Raises:
      Unavailable: See `attempt`.
    """
    attempt(ctx, "cohort", cohorts, _claim, _children, enter)


def _claim(tx: Transaction, cohorts: Sequence[CohortId], pace: Pace) -> list[tuple[Run, Cohort]]:
    return tx.cohorts.claim(cohorts, pace.lease_seconds, attempts=pace.attempts)


@dataclass(frozen=True, slots=True)
class Claimed:
    """A cohort this worker has leased, with all its operator is told.

    Attributes:
      heard: What a model answered when this step ran before, by turn and place.
    """

    run: Run
    cohort: Cohort
    brief: Brief
    heard: Mapping[int, Mapping[int, Completion]]


def _children(ctx: Context, run: Run, leased: Sequence[Cohort]) -> Iterator[GeneratedCohort | None]:
    for claimed in _briefed(ctx, run, leased):
        try:
            yield _generated(ctx, claimed)
        except Overtaken:
            yield None
        except Unaffordable as error:
            cut(ctx, claimed.cohort.id, str(error))
            yield None


def _generated(ctx: Context, claimed: Claimed) -> GeneratedCohort:
    """Returns a cohort with the parents drawn, and the children that the import policy lets by."""
    cohort, children = claimed.cohort, converse(ctx, claimed)
    if not cohort.founding:
        policy = ctx.problem(claimed.run.problem).imports
        children = [_importable(policy, child) for child in children]
    drawn = zip(cohort.members, claimed.brief.drafts, strict=True)
    members = tuple(replace(member, draft=draft) for member, draft in drawn)
    return GeneratedCohort.of(replace(cohort, members=members), children)


def _importable(policy: ImportPolicy, child: Child) -> Child:
    if isinstance(child, Failure):
        return child
    return policy.refusal(child.program) or child


def _briefed(ctx: Context, run: Run, leased: Sequence[Cohort]) -> list[Claimed]:
    with ctx.store.begin() as tx:
        return [_claimed(ctx, tx, run, cohort) for cohort in leased]


def _claimed(ctx: Context, tx: Transaction, run: Run, cohort: Cohort) -> Claimed:
    again = all(member.draft is not None for member in cohort.members)
    drafts = _drafts(ctx, tx, run, cohort)
    problem, operator = ctx.problem(run.problem), ctx.operators[cohort.operator]
    brief = brief_of(tx, run, problem, operator, drafts)
    if operator.asks_model and not again:
        brief = scheduled(brief, run.rules.asking.refining)
    return Claimed(run, cohort, brief, tx.completions.of_cohort(cohort.id) if again else {})


def _drafts(ctx: Context, tx: Transaction, run: Run, cohort: Cohort) -> tuple[Draft, ...]:
    """Returns the cohort's drafts, drawing parents now if that was not done before."""
    drawn = tuple(member.draft for member in cohort.members if member.draft is not None)
    if len(drawn) == len(cohort.members):
        return drawn
    island = tx.archive.island(run.id, cohort.island)
    selection = ctx.strategy(run).selection
    drafts = tuple(
        selection(island, run.rng(member.ordinal, "selection")).draft(member.ordinal, island)
        for member in cohort.members
    )
    return drafts


def converse(ctx: Context, claimed: Claimed) -> list[Child]:
    """Lets the cohort's operator speak to the run's model until it has its children.

    Every turn's completions are saved before the operator sees them, and read back when the step
    runs again, so that none is paid for twice.
    """
    operator = ctx.operators[claimed.cohort.operator]
    conversation = operator.converse(claimed.brief)
    most = operator.most_completions(claimed.brief.repair_turns) * len(claimed.brief.drafts)
    turn, asked, replies = 0, 0, None
    while True:
        try:
            prompts = conversation.send(replies) if replies is not None else next(conversation)
        except StopIteration as finished:
            children: list[Child] = finished.value
            if len(children) != len(claimed.brief.drafts):
                raise ValueError(
                    f"operator {operator.name!r} returned {len(children)} children for "
                    f"{len(claimed.brief.drafts)} drafts"
                ) from None
            return children
        prompts = assigned(claimed.brief, prompts)
        asked += len(prompts)
        if asked > most:
            raise ValueError(
                f"operator {operator.name!r} asks for {asked} completions; it declares at most "
                f"{most} for its drafts, and budgets set aside no more"
            )
        replies = _turn(ctx, claimed, turn, prompts)
        turn += 1


def _turn(ctx: Context, claimed: Claimed, turn: int, prompts: list[Prompt]) -> list[Completion]:
    if not prompts:
        return []
    heard = claimed.heard.get(turn, {})
    drafts = () if turn else claimed.brief.drafts
    return ask(ctx, claimed.run, claimed.cohort, turn, prompts, heard, drafts)
