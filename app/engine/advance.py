"""Advance: a cohort takes the step its strategy's promotion decides, in one transaction."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from app.domain.evaluation import Failure, Trial
from app.domain.events import Cut, Failed, Noticed
from app.domain.program import ProgramId
from app.domain.run import Run
from app.domain.search.archive import Entrant
from app.domain.search.cohort import Cohort, CohortId, CutReason, Member, ProposalId, State, Verdict
from app.domain.search.promotion import Gates, at_deadline, shortfall
from app.domain.search.strategy import Barrier, Strategy
from app.engine.admission import Offer, admit
from app.engine.context import Context
from app.engine.games import emit_closed, emit_entered, emit_recorded
from app.engine.probing import Probed, claim_behaviours
from app.ports.cohorts import MemberResult
from app.ports.events import Events
from app.ports.ledger import Transaction
from app.ports.trials import WaitingTrial

_Rate: TypeAlias = Callable[[Cohort, ProgramId], tuple[float | None, int]]
"""See `rating`."""


@dataclass(frozen=True, slots=True)
class Advance:
    """What a transaction did for a cohort.

    Attributes:
      run: The cohort's.
      trials: The trials it added.
      settled: The members it settled.
      closed: Whether it settled the last member of a cohort that others of the run wait for.
    """

    run: Run
    trials: tuple[WaitingTrial, ...] = ()
    settled: tuple[Member, ...] = ()
    closed: bool = False


def advance(
    ctx: Context, tx: Transaction, run: Run, strategy: Strategy, cohorts: Sequence[Cohort]
) -> dict[CohortId, Advance]:
    """Applies the strategy's verdict on each of a run's cohorts; this transaction has locked them.

    Programs are offered to the archive last, one island after the other.
    """
    problem, stages = ctx.problem(run.problem), ctx.stages(run)
    rate = partial(rating, strategy, stages)
    children: list[MemberResult] = []
    offers: list[Offer] = []
    tests: list[tuple[Cohort, Trial]] = []
    probes = claim_behaviours(tx.programs, run, problem, cohorts)
    for cohort, probe in zip(cohorts, probes, strict=True):
        emit_recorded(tx.events, run, problem, cohort)
        verdict = _verdict(tx, run, strategy, cohort, probe)
        entrants = [_entrant(tx, run, cohort, player, rate) for player in verdict.admit]
        children += _cut_alike(tx, run, cohort, probe.alike)
        children += _admissions(cohort, entrants)
        children += _cut_unpromoted(tx, run, cohort, verdict, rate)
        children += _fail(tx, run, cohort, verdict, (problem.probe, *stages))
        tests += [(cohort, trial) for trial in verdict.test]
        if cohort.seeding:
            _notice_shortfalls(tx, run, stages, ctx.gates(run), entrants)
        if entrants:
            offers.append(Offer(cohort, entrants))
    if children:
        tx.cohorts.enter(cohorts, children)
    if returned := sum(child.cut is CutReason.RETURNED for child in children):
        run = replace(run, proposals=run.proposals - returned)
    if offers:
        admit(ctx, tx, run, strategy, offers)
    again, fleets = ctx.pace.redeliver_seconds, run.rules.fleets
    added = tx.trials.add(tests, redeliver_seconds=again, fleets=fleets) if tests else []
    emit_entered(tx.events, run, problem, tests)
    settled = {child.proposal for child in children}
    if unwanted := [cohort.id for cohort in cohorts if cohort.in_flight(settled)]:
        tx.leases.withdraw(unwanted)
    advances = {}
    for cohort in cohorts:
        trials = tuple(trial for trial in added if trial.cohort == cohort.id)
        members = tuple(member for member in cohort.members if member.id in settled)
        closed = closes(strategy, cohort, settled)
        if members and closed:
            emit_closed(tx, run, problem, cohort)
        advances[cohort.id] = Advance(run, trials, members, closed)
    if returned:
        tx.runs.give_back(run.id, returned)
    return advances


def _verdict(
    tx: Transaction, run: Run, strategy: Strategy, cohort: Cohort, probe: Probed
) -> Verdict:
    """Returns the verdict of the strategy, and of the probe of its members, on one cohort."""
    island = tx.archive.island(run.id, cohort.island)
    if cohort.late:
        verdict = at_deadline(strategy.promotion, probe.cohort, island)
    else:
        verdict = strategy.promotion(probe.cohort, island)
        verdict = replace(verdict, test=(*probe.test, *verdict.test))
    return replace(verdict, fail=(*probe.fail, *verdict.fail))


def closes(strategy: Strategy, cohort: Cohort, settled: Collection[ProposalId]) -> bool:
    """Returns whether planning waits for a cohort, and its last members are those that settled."""
    awaited = strategy.barrier is not Barrier.NONE or len(cohort.members) > 1
    return awaited and all(m.state.final or m.id in settled for m in cohort.members)


def _entrant(tx: Transaction, run: Run, cohort: Cohort, player: ProgramId, rate: _Rate) -> Entrant:
    fitness, left = rate(cohort, player)
    if fitness is None:
        raise ValueError(f"program {player[:8]} of cohort {cohort.id} was admitted unmeasured")
    member = cohort.member(player)
    if member is None or member.draft is None:
        length = member.length if member else tx.programs.lengths([player])[player]
        elite = tx.archive.island(run.id, cohort.island).elite(player)
        generation = elite.generation if elite else 0
    else:
        length, generation = member.length, member.draft.generation
    return Entrant(player, fitness, length, generation, cohort.evaluations(player), left)


def rating(
    strategy: Strategy, stages: tuple[str, ...], cohort: Cohort, player: ProgramId
) -> tuple[float | None, int]:
    """Returns a program's fitness, and at how many stages it was not measured.

    Fitness is made of the scores of the strategy's rated stages; of a program that stopped before
    all of them, of whatever was measured.
    """
    rated = strategy.rated or stages
    # An incumbent that is rated anew was measured at the other stages in an earlier cohort.
    due = stages if cohort.member(player) else rated
    left = sum(not cohort.evaluations(player, stage) for stage in due)
    fitness = cohort.fitness(player, rated)
    if fitness is not None and strategy.placing is not None:
        fitness = strategy.placing(cohort, player)
    if fitness is None and left:
        fitness = cohort.fitness(player, stages)
    return fitness, left


def _admissions(cohort: Cohort, entrants: Sequence[Entrant]) -> list[MemberResult]:
    """Returns the results of members that are offered to the archive."""
    return [
        MemberResult(
            member.id,
            State.ADMITTED,
            entrant.program,
            fitness=entrant.fitness,
            verified=all(evaluation.verified for evaluation in entrant.evaluations),
            stages_left=entrant.stages_left,
        )
        for entrant in entrants
        if (member := cohort.member(entrant.program)) is not None
    ]


def _notice_shortfalls(
    tx: Transaction, run: Run, stages: Sequence[str], gates: Gates, seeds: Sequence[Entrant]
) -> None:
    """Emits a notice for each seed that is admitted although it stayed below a threshold."""
    for entrant in seeds:
        index = len(stages) - entrant.stages_left - 1
        if short := shortfall(stages, gates, index, entrant.fitness):
            text = (
                f"the seed {entrant.program[:12]} {short}: the run begins with the metrics it "
                f"reached, and any program measured at every stage ranks above it"
            )
            tx.events.emit(run.id, Noticed(text=text))


def _cut_unpromoted(
    tx: Transaction, run: Run, cohort: Cohort, verdict: Verdict, rate: _Rate
) -> list[MemberResult]:
    """Cuts members that are not promoted; their results have the fitness that was measured.

    Those that are cut before their end are withdrawn; what was never begun costs no budget.
    """
    by_id = {member.id: member for member in (*cohort.living, *cohort.pending)}
    results = []
    for proposal in (*verdict.cut, *verdict.withdraw):
        member = by_id[proposal]
        why, reason = CutReason.BELOW_THRESHOLD, "not promoted"
        if member in cohort.pending and not member.begun:
            why, reason = CutReason.RETURNED, "not begun"
        elif proposal in verdict.withdraw:
            why, reason = CutReason.WITHDRAWN, "deadline"
        elif cohort.in_flight([proposal]):
            why, reason = CutReason.WITHDRAWN, "withdrawn"
        cut = emit_cut(tx.events, run, cohort, member, why, reason)
        fitness, left = rate(cohort, member.program) if member.program else (None, 0)
        results.append(replace(cut, fitness=fitness, stages_left=left))
    return results


def _cut_alike(
    tx: Transaction, run: Run, cohort: Cohort, alike: Sequence[ProposalId]
) -> list[MemberResult]:
    """Cuts the members whose probe gave the same as the probe of another program."""
    return [
        emit_cut(tx.events, run, cohort, member, CutReason.SAME_BEHAVIOUR, "same behaviour")
        for member in cohort.living
        if member.id in alike
    ]


def _fail(
    tx: Transaction, run: Run, cohort: Cohort, verdict: Verdict, stages: Sequence[str]
) -> list[MemberResult]:
    """Settles the members that failed, by the failure at the first of these stages."""
    by_id = {member.id: member for member in cohort.living}
    results = []
    for proposal in verdict.fail:
        member = by_id[proposal]
        failures = (cohort.failure(member.program or "", stage) for stage in stages)
        failure = next((failure for failure in failures if failure is not None), None)
        if failure is None:
            raise ValueError(f"proposal {proposal} of cohort {cohort.id} failed without a failure")
        results.append(emit_failed(tx.events, run, cohort, member, failure))
    return results


def emit_cut(
    events: Events, run: Run, cohort: Cohort, member: Member, why: CutReason, reason: str
) -> MemberResult:
    """Emits the event by which a member is cut, and returns its result.

    Args:
      events: Of the transaction.
      run: The cohort's.
      cohort: The member's.
      member: The member; with its program, if it has one.
      why: The reason.
      reason: A text for people.
    """
    fact = Cut(
        proposal=member.ordinal,
        island=cohort.island,
        operator=cohort.operator,
        program=member.program,
        role=member.role,
        why=why,
        reason=reason,
    )
    events.emit(run.id, fact)
    return MemberResult(member.id, State.CUT, member.program, cut=why)


def emit_failed(
    events: Events, run: Run, cohort: Cohort, member: Member, failure: Failure
) -> MemberResult:
    """Emits the event by which a member fails, and returns its result."""
    fact = Failed(
        proposal=member.ordinal,
        island=cohort.island,
        operator=cohort.operator,
        program=member.program,
        role=member.role,
        failure=failure.kind,
    )
    events.emit(run.id, fact)
    return MemberResult(member.id, State.FAILED, member.program, failure=failure)
