"""Generate: a cohort's parents are drawn, its operator speaks, its children enter the ledger."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from app.domain.budget import booked
from app.domain.cohort import Cohort, CohortId, Member, State
from app.domain.evaluation import Failure
from app.domain.events import EventKind
from app.domain.imports import ImportPolicy
from app.domain.operator import Brief, Child, Completion, Draft, Offspring, Prompt
from app.domain.program import fingerprint
from app.domain.refining import assigned, scheduled
from app.domain.run import Run
from app.engine.advance import Advance, advance, settle_event
from app.engine.briefing import brief_of
from app.engine.budget import tariff
from app.engine.context import Context
from app.engine.faults import broken, misconfigured
from app.engine.ring import ring
from app.entries import Child as Entry
from app.ledger import Exhausted, Transaction
from app.model_settings import refining
from app.ports import Misconfigured, Unavailable


def generate(ctx: Context, cohort_id: CohortId) -> None:
    """Breeds one cohort: idempotent, and harmless when another worker is at it.

    Raises:
      Unavailable: The model or the ledger could not be reached; the lease has been given back.
    """
    try:
        claimed = _claim(ctx, cohort_id)
    except Exhausted as error:
        broken(ctx, "cohort", cohort_id, error)
        return
    if claimed is None:
        return
    with ctx.work(claimed.run.id):
        _breed(ctx, claimed)


def _breed(ctx: Context, claimed: "Claimed") -> None:
    run, cohort_id = claimed.run, claimed.cohort.id
    try:
        with ctx.keep("cohort", cohort_id):
            children = converse(ctx, claimed)
    except Unavailable as error:
        with ctx.store.begin() as tx:
            tx.release([cohort_id], [], ctx.pace.retry_seconds)
            tx.explain(run.id, f"waiting: {error}")
        if isinstance(error, Misconfigured):
            misconfigured(ctx, run, error)
            return
        raise
    if not claimed.cohort.founding:
        imports = ctx.problem(run.problem).imports
        children = [_importable(imports, child) for child in children]
    with ctx.store.begin() as tx:
        tx.put_programs([child.program for child in children if isinstance(child, Offspring)])
        came = _enter(ctx, tx, claimed, children)
        if run.reason:
            tx.explain(run.id, "")
    ring(ctx, run, came)


@dataclass(frozen=True, slots=True)
class Claimed:
    """A cohort this worker has leased, with all its operator is told.

    Attributes:
      heard: What a model answered when this step ran before, by turn.
    """

    run: Run
    cohort: Cohort
    brief: Brief
    heard: Mapping[int, list[Completion]]


def _claim(ctx: Context, cohort_id: CohortId) -> Claimed | None:
    with ctx.store.begin() as tx:
        found = tx.claim_cohort(cohort_id, ctx.pace.lease_seconds, attempts=ctx.pace.attempts)
        if found is None:
            return None
        run, cohort = found
        again = all(member.draft is not None for member in cohort.members)
        drafts = _drafts(ctx, tx, run, cohort)
        problem, operator = ctx.problem(run.problem), ctx.operators[cohort.operator]
        brief = brief_of(tx, run, problem, operator, drafts)
        if operator.asks_model and not again:
            brief = scheduled(brief, refining(run.settings["llm"]))
        return Claimed(run, cohort, brief, tx.completions(cohort_id) if again else {})


def _drafts(ctx: Context, tx: Transaction, run: Run, cohort: Cohort) -> tuple[Draft, ...]:
    """Returns the cohort's drafts, drawing parents now if that was not done before."""
    drawn = tuple(member.draft for member in cohort.members if member.draft is not None)
    if len(drawn) == len(cohort.members):
        return drawn
    island = tx.island(run.id, cohort.island)
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
    heard = claimed.heard.get(turn)
    if heard is not None and len(heard) == len(prompts):
        return heard
    run = claimed.run
    replies = ctx.model(run).complete(prompts)
    with ctx.store.begin() as tx:
        account = booked(run.budget, tariff(run), prompts, replies)
        drafts = () if turn else claimed.brief.drafts
        tx.save_completions(claimed.cohort, drafts, turn, prompts, replies, account)
    return replies


def _importable(policy: ImportPolicy, child: Child) -> Child:
    if isinstance(child, Failure):
        return child
    return policy.refusal(child.program) or child


def _enter(ctx: Context, tx: Transaction, claimed: Claimed, children: Sequence[Child]) -> Advance:
    run = tx.planned(claimed.cohort.id)
    if run is None:
        return Advance()
    drafted = zip(claimed.cohort.members, claimed.brief.drafts, strict=True)
    cohort = replace(claimed.cohort, members=tuple(replace(m, draft=d) for m, d in drafted))
    entries = [
        _entry(tx, run, cohort, member, child)
        for member, child in zip(cohort.members, children, strict=True)
    ]
    tx.enter(cohort, entries)
    settled = tuple(
        member.ordinal
        for member, entry in zip(cohort.members, entries, strict=True)
        if entry.state.final
    )
    if len(settled) == len(entries):
        return Advance((), settled)
    members = tuple(
        replace(member, state=entry.state, program=entry.program)
        for member, entry in zip(cohort.members, entries, strict=True)
    )
    came = advance(ctx, tx, run, replace(cohort, members=members))
    return replace(came, settled=(*settled, *came.settled))


def _entry(tx: Transaction, run: Run, cohort: Cohort, member: Member, child: Child) -> Entry:
    if isinstance(child, Failure):
        settle_event(tx, run, cohort, member, EventKind.FAILED, failure=child.kind)
        return Entry(member.id, State.FAILED, failure=child)
    digest = fingerprint(child.program)
    islands = range(run.islands) if cohort.founding else (cohort.island,)
    claims = [tx.claim_fingerprint(run.id, island, digest) for island in islands]
    if not all(claims):
        settle_event(tx, run, cohort, member, EventKind.CUT, reason="duplicate")
        return Entry(member.id, State.CUT, child.program.id, child.changes)
    return Entry(member.id, State.TESTING, child.program.id, child.changes)
