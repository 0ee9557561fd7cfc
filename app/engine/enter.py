"""Entering: the children of cohorts get into the ledger, once, and their cohorts go on."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

from app.domain.evaluation import Failure
from app.domain.operator import Child, Offspring
from app.domain.program import fingerprint
from app.domain.run import Run
from app.domain.search.cohort import Cohort, Member, State
from app.engine.advance import Advance, advance, emit_cut, emit_failed
from app.engine.context import Context
from app.engine.enqueue import ring
from app.engine.sharing import taken
from app.ports.ledger import Transaction
from app.ports.records import MemberResult


@dataclass(frozen=True, slots=True)
class GeneratedCohort:
    """A cohort whose operator has spoken.

    Attributes:
      children: One a member.
      fingerprints: One a child; "" for a failure.
    """

    cohort: Cohort
    children: Sequence[Child]
    fingerprints: Sequence[str]

    @classmethod
    def of(cls, cohort: Cohort, children: Sequence[Child]) -> Self:
        """Takes the fingerprints now, while nothing is locked."""
        prints = [fingerprint(c.program) if isinstance(c, Offspring) else "" for c in children]
        return cls(cohort, children, prints)

    def claims(self, run: Run) -> Iterator[set[tuple[int, str]]]:
        """Yields what each child claims: its fingerprint, on each of its islands."""
        islands = range(run.islands) if self.cohort.founding else (self.cohort.island,)
        for digest in self.fingerprints:
            yield {(island, digest) for island in islands} if digest else set()


def enter(ctx: Context, bred: Sequence[GeneratedCohort]) -> None:
    """Enters the children of a run's cohorts, each once whoever else tries; lets them go on."""
    run_id = bred[0].cohort.run
    found = ctx.share(("enter", run_id), bred, partial(_enter, ctx))
    for run, came in taken(found, [run_id]):
        ring(ctx, run, came)


def _enter(ctx: Context, bred: Sequence[GeneratedCohort]) -> dict[int, tuple[Run, Advance]]:
    bred = list({one.cohort.id: one for one in bred}.values())
    offspring = [c for one in bred for c in one.children if isinstance(c, Offspring)]
    with ctx.store.begin() as tx:
        tx.programs.put([child.program for child in offspring])
        run, planned = tx.cohorts.lock_planned([one.cohort.id for one in bred])
        came = _entered(ctx, tx, run, [one for one in bred if one.cohort.id in planned])
        if run.reason:
            tx.runs.explain(run.id, "")
    return {run.id: (run, came)}


def _entered(ctx: Context, tx: Transaction, run: Run, bred: Sequence[GeneratedCohort]) -> Advance:
    if not bred:
        return Advance()
    wanted = {pair for one in bred for claims in one.claims(run) for pair in claims}
    free = tx.programs.claim_fingerprints(run.id, sorted(wanted))
    entries: list[MemberResult] = []
    going: list[Cohort] = []
    for one in bred:
        told = zip(one.cohort.members, one.children, one.claims(run), strict=True)
        mine = [_entry(tx, run, one.cohort, m, child, claims, free) for m, child, claims in told]
        entries += mine
        if not all(entry.state.final for entry in mine):
            paired = zip(one.cohort.members, mine, strict=True)
            members = tuple(replace(m, state=e.state, program=e.program) for m, e in paired)
            going.append(replace(one.cohort, members=members))
    tx.cohorts.enter([one.cohort for one in bred], entries)
    came = advance(ctx, tx, run, going) if going else Advance()
    ordinals = {member.id: member.ordinal for one in bred for member in one.cohort.members}
    settled = (ordinals[entry.proposal] for entry in entries if entry.state.final)
    return replace(came, settled=(*settled, *came.settled))


def _entry(
    tx: Transaction,
    run: Run,
    cohort: Cohort,
    member: Member,
    child: Child,
    claims: set[tuple[int, str]],
    free: set[tuple[int, str]],
) -> MemberResult:
    """Returns how a member enters; takes its child's claims out of those that are free."""
    if isinstance(child, Failure):
        emit_failed(tx, run, cohort, member, child.kind)
        return MemberResult(member.id, State.FAILED, failure=child)
    fresh = claims <= free
    free -= claims
    if not fresh:
        emit_cut(tx, run, cohort, member, "duplicate")
        return MemberResult(member.id, State.CUT, child.program.id, child.changes)
    return MemberResult(member.id, State.TESTING, child.program.id, child.changes)
