"""Entering: the children of cohorts enter the ledger, once, and their cohorts advance."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

from app.domain.evaluation import Failure
from app.domain.operator import Child, Offspring
from app.domain.program import fingerprint
from app.domain.run import Run
from app.domain.search.cohort import Cohort, CohortId, Member, State
from app.engine.advance import Advance, advance, closes, emit_cut, emit_failed
from app.engine.context import Context
from app.engine.enqueue import enqueue
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


def enter(ctx: Context, run: Run, generated: Sequence[GeneratedCohort]) -> None:
    """Enters the children of a run's cohorts, each once, and advances the cohorts."""
    ctx.share(("enter", run.id), generated, partial(_enter, ctx), partial(enqueue, ctx))


def _enter(ctx: Context, generated: Sequence[GeneratedCohort]) -> list[Advance | None]:
    distinct = {cohort.cohort.id: cohort for cohort in generated}
    children = [child for cohort in distinct.values() for child in cohort.children]
    with ctx.store.begin() as tx:
        tx.programs.put([child.program for child in children if isinstance(child, Offspring)])
        run, planned = tx.cohorts.lock_planned(list(distinct))
        new = [cohort for cohort in distinct.values() if cohort.cohort.id in planned]
        entered = _entered(ctx, tx, run, new)
        if run.reason:
            tx.runs.explain(run.id, "")
    return [entered.pop(cohort.cohort.id, None) for cohort in generated]


def _entered(
    ctx: Context, tx: Transaction, run: Run, generated: Sequence[GeneratedCohort]
) -> dict[CohortId, Advance]:
    if not generated:
        return {}
    wanted = {pair for cohort in generated for claims in cohort.claims(run) for pair in claims}
    free = tx.programs.claim_fingerprints(run.id, sorted(wanted))
    entries: dict[CohortId, list[MemberResult]] = {}
    going: list[Cohort] = []
    for one in generated:
        rows = zip(one.cohort.members, one.children, one.claims(run), strict=True)
        mine = [_entry(tx, run, one.cohort, m, child, claims, free) for m, child, claims in rows]
        entries[one.cohort.id] = mine
        if not all(entry.state.final for entry in mine):
            pairs = zip(one.cohort.members, mine, strict=True)
            members = tuple(replace(m, state=e.state, program=e.program) for m, e in pairs)
            going.append(replace(one.cohort, members=members))
    tx.cohorts.enter(
        [one.cohort for one in generated], [entry for mine in entries.values() for entry in mine]
    )
    advances = advance(ctx, tx, run, going) if going else {}
    return {
        one.cohort.id: _with_settled(
            advances.get(one.cohort.id) or _settled_at_once(ctx, run, one.cohort),
            one.cohort,
            entries[one.cohort.id],
        )
        for one in generated
    }


def _settled_at_once(ctx: Context, run: Run, cohort: Cohort) -> Advance:
    """Returns the advance of a cohort none of whose members is to be tested."""
    ids = [member.id for member in cohort.members]
    return Advance(run, closed=closes(ctx.strategy(run), cohort, ids))


def _with_settled(before: Advance, cohort: Cohort, entries: Sequence[MemberResult]) -> Advance:
    """Returns an advance with the members that settled as they entered."""
    pairs = zip(cohort.members, entries, strict=True)
    ordinals = tuple(member.ordinal for member, entry in pairs if entry.state.final)
    return replace(before, settled=(*ordinals, *before.settled))


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
