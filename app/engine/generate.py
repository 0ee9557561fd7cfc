"""Generate: a cohort's parents are drawn, its operator speaks, its children enter the ledger."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial

from app.domain.evaluation import Failure
from app.domain.operator import Brief, Child, Completion, Draft, Prompt
from app.domain.run import Run
from app.domain.search.cohort import Cohort, CohortId
from app.domain.search.refining import assigned, scheduled
from app.domain.source.imports import ImportPolicy
from app.engine.ask import Overtaken, Unaffordable, ask
from app.engine.briefing import brief_of
from app.engine.context import Context
from app.engine.enter import GeneratedCohort, enter
from app.engine.faults import broken, misconfigured
from app.engine.lifecycle import cut
from app.engine.sharing import taken
from app.ports.ledger import Exhausted, Transaction
from app.ports.protocols import Misconfigured, Unavailable


def generate(ctx: Context, *cohort_ids: CohortId) -> None:
    """Breeds cohorts of one run, one after the other, and enters their children together.

    Idempotent, and harmless when another worker is at it.

    Raises:
      Unavailable: The model or the ledger could not be reached; what was bred has been entered, and
        the leases of the rest have been given back.
    """
    try:
        found = ctx.share("lease cohorts", cohort_ids, partial(_lease, ctx))
    except Exhausted as error:
        broken(ctx, "cohort", error)
        return
    leased = taken(found, cohort_ids)
    if not leased:
        return
    run = leased[0][0]
    with ctx.work(run.id):
        _breed(ctx, run, [cohort for _, cohort in leased])


def _lease(ctx: Context, cohort_ids: Sequence[CohortId]) -> dict[CohortId, tuple[Run, Cohort]]:
    with ctx.store.begin() as tx:
        leased = tx.cohorts.claim(cohort_ids, ctx.pace.lease_seconds, attempts=ctx.pace.attempts)
    return {cohort.id: (run, cohort) for run, cohort in leased}


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


def _breed(ctx: Context, run: Run, leased: Sequence[Cohort]) -> None:
    """Converses until a port cannot be reached; enters what was bred, whatever came then."""
    bred: list[GeneratedCohort] = []
    left = [cohort.id for cohort in leased]
    fault: Unavailable | None = None
    with ExitStack() as kept:
        for cohort in leased:
            kept.enter_context(ctx.keep("cohort", cohort.id))
        try:
            for one in _briefed(ctx, run, leased):
                try:
                    with suppress(Overtaken):
                        bred.append(_bred(ctx, one))
                except Unaffordable as error:
                    cut(ctx, one.cohort.id, str(error))
                left.remove(one.cohort.id)
        except Unavailable as error:
            fault = error
        if bred:
            enter(ctx, bred)
    if fault is None:
        return
    with ctx.store.begin() as tx:
        tx.leases.release(left, [], ctx.pace.retry_seconds)
        tx.runs.explain(run.id, f"waiting: {fault}")
    if isinstance(fault, Misconfigured):
        misconfigured(ctx, run, fault)
        return
    raise fault


def _bred(ctx: Context, claimed: Claimed) -> GeneratedCohort:
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
