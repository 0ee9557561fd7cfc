"""Entering: children enter the ledger, each once, and their cohorts advance."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from app.ports.ledger import Transaction
from app.ports.records import LeasedProposals, MemberResult

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
class GeneratedChildren:
    """Proposals with their children.

    Attributes:
      leased: The proposals, with their drafts.
      children: One a member.
      fingerprints: One a child; "" where there is no program.
      near: By place, the programs that children are too similar to.
    """

    leased: LeasedProposals
    children: Sequence[Child | Unasked]
    fingerprints: Sequence[str]
    near: Mapping[int, Near] = field(default_factory=dict)

    @classmethod
    def of(cls, leased: LeasedProposals, children: Sequence[Child | Unasked]) -> Self:
        """Takes the fingerprints now, while nothing is locked."""
        prints = [fingerprint(c.program) if isinstance(c, Offspring) else "" for c in children]
        return cls(leased, children, prints)

    @property
    def members(self) -> tuple[Member, ...]:
        return self.leased.cohort.members

    @property
    def claims(self) -> list[Claim | None]:
        """What each child claims; None where there is no program."""
        return [
            (member.draft.epoch if member.draft else 0, digest) if digest else None
            for member, digest in zip(self.members, self.fingerprints, strict=True)
        ]


def enter_children(ctx: Context, run: Run, generated: Sequence[GeneratedChildren]) -> None:
    """Enters the children of proposals of a run, each once, and advances their cohorts."""
    proposals = [member.id for one in generated for member in one.members]
    entering, enqueueing = partial(_enter_once, ctx), partial(enqueue, ctx)
    with ctx.tracing.span("enter", run, proposals=proposals):
        save(ctx, run, ("enter", run.id), generated, entering, enqueueing)


def _enter_once(ctx: Context, generated: Sequence[GeneratedChildren]) -> list[Advance | None]:
    distinct = {proposals.leased.id: proposals for proposals in generated}
    children = [child for proposals in distinct.values() for child in proposals.children]
    with ctx.store.begin() as tx:
        tx.programs.put([child.program for child in children if isinstance(child, Offspring)])
        run, planned = tx.cohorts.lock_planned(
            [member.id for proposals in distinct.values() for member in proposals.members]
        )
        unsettled = [_unsettled(proposals, planned) for proposals in distinct.values()]
        entering = [proposals for proposals in unsettled if proposals.members]
        advances = _enter_unsettled(ctx, tx, run, entering) if entering else {}
        if run.reason:
            tx.runs.explain(run.id, "")
    return [advances.pop(proposals.leased.cohort.id, None) for proposals in generated]


def _unsettled(generated: GeneratedChildren, planned: set[int]) -> GeneratedChildren:
    """Returns the children of members that have none yet; the others were settled meanwhile."""
    kept = [place for place, member in enumerate(generated.members) if member.id in planned]
    if len(kept) == len(generated.members):
        return generated
    cohort = generated.leased.cohort
    members = tuple(cohort.members[place] for place in kept)
    return GeneratedChildren(
        replace(generated.leased, cohort=replace(cohort, members=members)),
        [generated.children[place] for place in kept],
        [generated.fingerprints[place] for place in kept],
        {n: generated.near[place] for n, place in enumerate(kept) if place in generated.near},
    )


def _enter_unsettled(
    ctx: Context, tx: Transaction, run: Run, generated: Sequence[GeneratedChildren]
) -> dict[CohortId, Advance]:
    wanted = {claim for proposals in generated for claim in proposals.claims if claim}
    free = tx.programs.claim_fingerprints(run.id, sorted(wanted))
    strategy = ctx.strategy(run)
    results: list[MemberResult] = []
    cohorts: dict[CohortId, Cohort] = {}
    sizes: dict[CohortId, int] = {}
    for proposals in generated:
        rows = zip(proposals.members, proposals.children, proposals.claims, strict=True)
        cohort = proposals.leased.cohort
        mine = [
            _enter_child(tx, run, cohort, m, child, claim, free, proposals.near.get(place))
            for place, (m, child, claim) in enumerate(rows)
        ]
        results += mine
        pairs = zip(proposals.members, mine, strict=True)
        members = tuple(_member(cohort, m, r) for m, r in pairs)
        before = cohorts[cohort.id].members if cohort.id in cohorts else ()
        cohorts[cohort.id] = replace(cohort, members=(*before, *members))
        sizes[cohort.id] = proposals.leased.size
    tx.cohorts.enter(list(cohorts.values()), results)
    complete = _complete(tx, cohorts, sizes)
    living = [cohort for cohort in complete.values() if cohort.living]
    advances = advance(ctx, tx, run, strategy, living) if living else {}
    for cohort in complete.values():
        if not cohort.living:
            closed = closes(strategy, cohort, ())
            advances[cohort.id] = Advance(run, closed=closed)
            if closed:
                emit_closed(tx, run, ctx.problem(run.problem), cohort)
    return {cohort.id: _with_settled(advances[cohort.id], cohort) for cohort in cohorts.values()}


def _member(cohort: Cohort, member: Member, result: MemberResult) -> Member:
    """Returns a member as it enters; a seed, whose draft names it, is no child of itself."""
    draft = member.draft
    if cohort.seeding and draft is not None:
        draft = replace(draft, parents=())
    return replace(member, state=result.state, program=result.program, draft=draft)


def _complete(
    tx: Transaction, cohorts: Mapping[CohortId, Cohort], sizes: Mapping[CohortId, int]
) -> dict[CohortId, Cohort]:
    """Returns cohorts with all their members and trials, read where only some members are here."""
    parts = [cohort for cohort in cohorts.values() if len(cohort.members) < sizes[cohort.id]]
    read = tx.cohorts.contents(parts) if parts else []
    return {**cohorts, **{cohort.id: cohort for cohort in read}}


def _with_settled(before: Advance, cohort: Cohort) -> Advance:
    """Returns an advance with the members that settled as they entered."""
    settled = tuple(member for member in cohort.members if member.state.final)
    return replace(before, settled=(*settled, *before.settled))


def _enter_child(
    tx: Transaction,
    run: Run,
    cohort: Cohort,
    member: Member,
    child: Child | Unasked,
    claim: Claim | None,
    free: set[Claim],
    near: Near | None,
) -> MemberResult:
    """Emits what a member settles by, if it does; removes its child's claim from the free ones."""
    if isinstance(child, Unasked):
        return emit_cut(tx, run, cohort, member, CutReason.CANCELLED, child.reason)
    if isinstance(child, Failure):
        return emit_failed(tx, run, cohort, member, child)
    entered = MemberResult(
        member.id, State.TESTING, child.program.id, child.changes, point=child.point
    )
    if claim not in free:
        emit_cut(tx, run, cohort, member, CutReason.DUPLICATE, "duplicate")
        return replace(entered, state=State.CUT, cut=CutReason.DUPLICATE)
    free.remove(claim)
    if near is not None:
        emit_cut(tx, run, cohort, member, CutReason.SIMILAR, str(near))
        return replace(entered, state=State.CUT, cut=CutReason.SIMILAR)
    return entered
