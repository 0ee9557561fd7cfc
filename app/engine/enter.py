"""Entering: children enter the ledger, each once, and their cohorts advance."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self, TypeAlias

from app.domain.evaluation import Failure
from app.domain.operator import Child, Offspring
from app.domain.program import ProgramId, fingerprint
from app.domain.run import Run
from app.domain.search.cohort import Cohort, CohortId, CutReason, Member, State
from app.engine.advance import Advance, advance, closes, emit_cut, emit_failed
from app.engine.context import Context
from app.engine.enqueue import enqueue
from app.engine.games import emit_closed
from app.engine.lease import save
from app.ports.cohorts import MemberResult
from app.ports.ledger import Transaction
from app.ports.proposals import LeasedProposals

Claim: TypeAlias = tuple[int, str]
"""An epoch, and the fingerprint of a program that no island of the run has had in it.

A program is thus evaluated once for all islands; elites that migrate claim nothing.  An island that
was reset may evaluate a program anew, because its cells may have lost it.
"""


@dataclass(frozen=True, slots=True)
class Unasked:
    """A member that has no child because its model was not asked: why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Near:
    """A program that a child is too similar to."""

    program: ProgramId
    similarity: float

    def __str__(self) -> str:
        return f"similarity {self.similarity:.2f} to {self.program[:12]}"


@dataclass(frozen=True, slots=True)
class GeneratedChild:
    """A member, with its draft, and its child.

    Attributes:
      claim: What the child claims; None where there is no program.
      near: A program that the child is too similar to, if any.
    """

    member: Member
    child: Child | Unasked
    claim: Claim | None
    near: Near | None = None


@dataclass(frozen=True, slots=True)
class GeneratedChildren:
    """Proposals with their children, one a member."""

    leased: LeasedProposals
    children: Sequence[GeneratedChild]

    @classmethod
    def of(cls, leased: LeasedProposals, children: Sequence[Child | Unasked]) -> Self:
        """Takes the fingerprints now, while nothing is locked."""
        pairs = zip(leased.cohort.members, children, strict=True)
        return cls(leased, [GeneratedChild(m, child, _claim(m, child)) for m, child in pairs])


def _claim(member: Member, child: Child | Unasked) -> Claim | None:
    if not isinstance(child, Offspring):
        return None
    return (member.draft.epoch if member.draft else 0, fingerprint(child.program))


def enter_children(ctx: Context, run: Run, generated: Sequence[GeneratedChildren]) -> None:
    """Enters the children of proposals of a run, each once, and advances their cohorts."""
    proposals = [entering.member.id for one in generated for entering in one.children]
    entering, enqueueing = partial(_enter_once, ctx), partial(enqueue, ctx)
    with ctx.tracing.span("enter", run, proposals=proposals):
        save(ctx, run, ("enter", run.id), generated, entering, enqueueing)


def _enter_once(ctx: Context, generated: Sequence[GeneratedChildren]) -> list[Advance | None]:
    distinct = {proposals.leased.id: proposals for proposals in generated}.values()
    children = [entering for proposals in distinct for entering in proposals.children]
    programs = [one.child.program for one in children if isinstance(one.child, Offspring)]
    with ctx.store.begin() as tx:
        tx.programs.put(programs)
        run, planned = tx.cohorts.lock_planned([entering.member.id for entering in children])
        # The others were settled meanwhile.
        new = [
            replace(one, children=[child for child in one.children if child.member.id in planned])
            for one in distinct
        ]
        advances = _enter_planned(ctx, tx, run, [one for one in new if one.children])
        if run.reason:
            tx.runs.explain(run.id, "")
    return [advances.pop(proposals.leased.cohort.id, None) for proposals in generated]


def _enter_planned(
    ctx: Context, tx: Transaction, run: Run, generated: Sequence[GeneratedChildren]
) -> dict[CohortId, Advance]:
    if not generated:
        return {}
    strategy = ctx.strategy(run)
    claims = {one.claim for proposals in generated for one in proposals.children if one.claim}
    free = tx.programs.claim_fingerprints(run.id, sorted(claims))
    results: list[MemberResult] = []
    cohorts: dict[CohortId, Cohort] = {}
    sizes: dict[CohortId, int] = {}
    for proposals in generated:
        cohort = proposals.leased.cohort
        members = list(cohorts[cohort.id].members) if cohort.id in cohorts else []
        for entering in proposals.children:
            result = _enter_child(tx, run, cohort, entering, free)
            results.append(result)
            members.append(_entered_member(cohort, entering.member, result))
        cohorts[cohort.id] = replace(cohort, members=tuple(members))
        sizes[cohort.id] = proposals.leased.size
    tx.cohorts.enter(list(cohorts.values()), results)
    parts = [cohort for cohort in cohorts.values() if len(cohort.members) < sizes[cohort.id]]
    # Of these cohorts only some members are here; they are read with all members and trials.
    read = tx.cohorts.contents(parts) if parts else []
    complete = {**cohorts, **{cohort.id: cohort for cohort in read}}
    living = [cohort for cohort in complete.values() if cohort.living]
    advances = advance(ctx, tx, run, strategy, living) if living else {}
    for cohort in complete.values():
        if not cohort.living:
            closed = closes(strategy, cohort, ())
            advances[cohort.id] = Advance(run, closed=closed)
            if closed:
                emit_closed(tx, run, ctx.problem(run.problem), cohort)
    for cohort in cohorts.values():
        before = advances[cohort.id]
        settled = tuple(member for member in cohort.members if member.state.final)
        advances[cohort.id] = replace(before, settled=(*settled, *before.settled))
    return advances


def _entered_member(cohort: Cohort, member: Member, result: MemberResult) -> Member:
    """Returns a member as it enters; a seed, whose draft names it, is no child of itself."""
    draft = member.draft
    if cohort.seeding and draft is not None:
        draft = replace(draft, parents=())
    return replace(member, state=result.state, program=result.program, draft=draft)


def _enter_child(
    tx: Transaction, run: Run, cohort: Cohort, entering: GeneratedChild, free: set[Claim]
) -> MemberResult:
    """Emits the event of a member that settles now; removes the claim of its child from `free`."""
    member, child = entering.member, entering.child
    if isinstance(child, Unasked):
        return emit_cut(tx.events, run, cohort, member, CutReason.CANCELLED, child.reason)
    if isinstance(child, Failure):
        return emit_failed(tx.events, run, cohort, member, child)
    entered = MemberResult(
        member.id,
        State.TESTING,
        child.program.id,
        child.changes,
        point=child.point,
        fleet=run.rules.fleets.trial(cohort.island),
    )
    if entering.claim not in free:
        emit_cut(tx.events, run, cohort, member, CutReason.DUPLICATE, "duplicate")
        return replace(entered, state=State.CUT, cut=CutReason.DUPLICATE)
    free.remove(entering.claim)
    if entering.near is not None:
        emit_cut(tx.events, run, cohort, member, CutReason.SIMILAR, str(entering.near))
        return replace(entered, state=State.CUT, cut=CutReason.SIMILAR)
    return entered
