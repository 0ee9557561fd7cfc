"""Advance: a cohort takes the step its strategy's promotion decides, in one transaction."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from app.domain.evaluation import Failure, FailureKind, Trial
from app.domain.events import Cut, Failed, Noticed
from app.domain.program import ProgramId
from app.domain.run import Run
from app.domain.search.archive import Entrant
from app.domain.search.cohort import Cohort, CohortId, CutReason, Member, ProposalId, State, Verdict
from app.domain.search.promotion import at_deadline, shortfall
from app.domain.search.strategy import Barrier, Strategy
from app.engine.admission import Offer, admit
from app.engine.context import Context
from app.engine.games import emit_closed, emit_entered, emit_recorded
from app.engine.probing import Probed, probed
from app.ports.ledger import Transaction
from app.ports.records import MemberResult, WaitingTrial


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
    ctx: Context, tx: Transaction, run: Run, cohorts: Sequence[Cohort]
) -> dict[CohortId, Advance]:
    """Applies the strategy's verdict on each of a run's cohorts; this transaction has locked them.

    Programs are offered to the archive last, one island after the other.
    """
    strategy, problem = ctx.strategy(run), ctx.problem(run.problem)
    children: list[MemberResult] = []
    offers: list[Offer] = []
    tests: list[tuple[Cohort, Trial]] = []
    seen = probed(tx, run, problem, cohorts)
    for cohort, probe in zip(cohorts, seen, strict=True):
        emit_recorded(tx, run, problem, cohort)
        verdict = _verdict(tx, run, strategy, cohort, probe)
        entrants = [_entrant(ctx, tx, run, cohort, player) for player in verdict.admit]
        children += _alike(tx, run, cohort, probe.alike)
        children += _admitted(cohort, entrants)
        children += _cut(ctx, tx, run, cohort, verdict)
        children += _failed(ctx, tx, run, cohort, verdict)
        tests += [(cohort, trial) for trial in verdict.test]
        if cohort.seeding:
            _notice_shortfalls(ctx, tx, run, entrants)
        if entrants:
            offers.append(Offer(cohort, entrants))
    if children:
        tx.cohorts.enter(cohorts, children)
    if returned := sum(child.cut is CutReason.RETURNED for child in children):
        run = replace(run, proposals=run.proposals - returned)
    if offers:
        admit(ctx, tx, run, offers)
    added = tx.trials.add(tests, redeliver_seconds=ctx.pace.redeliver_seconds) if tests else []
    emit_entered(tx, run, problem, tests)
    settled = {child.proposal for child in children}
    if unwanted := [cohort.id for cohort in cohorts if cohort.in_flight(settled)]:
        tx.leases.withdraw(unwanted)
    for cohort in cohorts:
        last = any(member.id in settled for member in cohort.members)
        if last and closes(strategy, cohort, settled):
            emit_closed(tx, run, problem, cohort)
    if returned:
        tx.runs.give_back(run.id, returned)
    return {
        cohort.id: Advance(
            run,
            tuple(trial for trial in added if trial.cohort == cohort.id),
            tuple(member for member in cohort.members if member.id in settled),
            closes(strategy, cohort, settled),
        )
        for cohort in cohorts
    }


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


def _entrant(ctx: Context, tx: Transaction, run: Run, cohort: Cohort, player: ProgramId) -> Entrant:
    fitness, left = rated(ctx, run, cohort, player)
    if fitness is None:
        raise ValueError(f"program {player[:8]} of cohort {cohort.id} was admitted unmeasured")
    member = cohort.member(player)
    if member is None or member.draft is None:
        length = member.length if member else tx.programs.lengths([player])[player]
        island = tx.archive.island(run.id, cohort.island)
        elite = island.elite(player)
        generation = elite.generation if elite else 0
    else:
        length, generation = member.length, member.draft.generation
    return Entrant(player, fitness, length, generation, cohort.evaluations(player), left)


def rated(ctx: Context, run: Run, cohort: Cohort, player: ProgramId) -> tuple[float | None, int]:
    """Returns a program's fitness, and at how many stages it was not measured.

    Fitness is made of the scores of the strategy's rated stages; of a program that stopped before
    all of them, of whatever was measured.
    """
    stages, strategy = ctx.stages(run), ctx.strategy(run)
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


def _admitted(cohort: Cohort, entrants: Sequence[Entrant]) -> list[MemberResult]:
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


def _notice_shortfalls(ctx: Context, tx: Transaction, run: Run, seeds: Sequence[Entrant]) -> None:
    """Emits a notice for each seed that is admitted although it stayed below a threshold."""
    gates, stages = ctx.gates(run), ctx.stages(run)
    for entrant in seeds:
        index = len(stages) - entrant.stages_left - 1
        if short := shortfall(stages, gates, index, entrant.fitness):
            text = (
                f"the seed {entrant.program[:12]} {short}: the run begins with the metrics it "
                f"reached, and any program measured at every stage ranks above it"
            )
            tx.events.emit(run.id, Noticed(text=text))


def _cut(
    ctx: Context, tx: Transaction, run: Run, cohort: Cohort, verdict: Verdict
) -> list[MemberResult]:
    """Returns how members settle that are not promoted, with the fitness that was measured.

    Those that are cut before their end are withdrawn; what was never begun costs no budget.
    """
    by_id = {member.id: member for member in (*cohort.living, *cohort.pending)}
    results = []
    for proposal in (*verdict.cut, *verdict.withdraw):
        program = by_id[proposal].program
        why, reason = CutReason.BELOW_THRESHOLD, "not promoted"
        if by_id[proposal] in cohort.pending and not by_id[proposal].begun:
            why, reason = CutReason.RETURNED, "not begun"
        elif proposal in verdict.withdraw:
            why, reason = CutReason.WITHDRAWN, "deadline"
        elif cohort.in_flight([proposal]):
            why, reason = CutReason.WITHDRAWN, "withdrawn"
        emit_cut(tx, run, cohort, by_id[proposal], why, reason)
        fitness, left = rated(ctx, run, cohort, program) if program else (None, 0)
        results.append(
            MemberResult(
                proposal,
                State.CUT,
                program,
                cut=why,
                fitness=fitness,
                stages_left=left,
            )
        )
    return results


def _alike(
    tx: Transaction, run: Run, cohort: Cohort, alike: Sequence[ProposalId]
) -> list[MemberResult]:
    """Returns how members settle whose probe gave what that of another program gave."""
    results = []
    for member in (member for member in cohort.living if member.id in alike):
        emit_cut(tx, run, cohort, member, CutReason.SAME_BEHAVIOUR, "same behaviour")
        why = CutReason.SAME_BEHAVIOUR
        results.append(MemberResult(member.id, State.CUT, member.program, cut=why))
    return results


def _failed(
    ctx: Context, tx: Transaction, run: Run, cohort: Cohort, verdict: Verdict
) -> list[MemberResult]:
    by_id = {member.id: member for member in cohort.living}
    children = []
    for proposal in verdict.fail:
        member = by_id[proposal]
        failure = _failure(ctx, run, cohort, member)
        emit_failed(tx, run, cohort, member, failure.kind)
        children.append(MemberResult(proposal, State.FAILED, member.program, failure=failure))
    return children


def _failure(ctx: Context, run: Run, cohort: Cohort, member: Member) -> Failure:
    player = member.program or ""
    for stage in (ctx.problem(run.problem).probe, *ctx.stages(run)):
        failure = cohort.failure(player, stage)
        if failure is not None:
            return failure
    raise ValueError(f"proposal {member.id} of cohort {cohort.id} failed without a failure")


def emit_cut(
    tx: Transaction, run: Run, cohort: Cohort, member: Member, why: CutReason, reason: str
) -> None:
    """Emits the event with which a member settles that is cut; `reason` is a text for people."""
    fact = Cut(
        proposal=member.ordinal,
        island=cohort.island,
        operator=cohort.operator,
        program=member.program,
        role=member.role,
        why=why,
        reason=reason,
    )
    tx.events.emit(run.id, fact)


def emit_failed(
    tx: Transaction, run: Run, cohort: Cohort, member: Member, failure: FailureKind
) -> None:
    """Emits the event with which a member settles that failed."""
    fact = Failed(
        proposal=member.ordinal,
        island=cohort.island,
        operator=cohort.operator,
        program=member.program,
        role=member.role,
        failure=failure,
    )
    tx.events.emit(run.id, fact)
