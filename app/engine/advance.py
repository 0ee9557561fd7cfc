"""Advance: a cohort takes the step its strategy's promotion decides, in one transaction."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.domain.archive import Entrant, IslandView, learnt
from app.domain.cohort import Cohort, Member, State, TrialId, Verdict
from app.domain.evaluation import Failure
from app.domain.events import EventKind
from app.domain.program import ProgramId
from app.domain.run import Run
from app.domain.strategy import Strategy
from app.engine.admit import admit
from app.engine.context import Context
from app.entries import Child
from app.ledger import Transaction


@dataclass(frozen=True, slots=True)
class Advance:
    """What came of it: trials to ring for, and the ordinals that settled."""

    trials: tuple[TrialId, ...] = ()
    settled: tuple[int, ...] = ()


def advance(ctx: Context, tx: Transaction, run: Run, cohort: Cohort) -> Advance:
    """Applies the strategy's verdict on a cohort this transaction has locked."""
    verdict = ctx.strategy(run).promotion(cohort, tx.island(run.id, cohort.island))
    children = [
        *_admitted(ctx, tx, run, cohort, verdict),
        *_cut(tx, run, cohort, verdict),
        *_failed(ctx, tx, run, cohort, verdict),
    ]
    if children:
        tx.enter(cohort, children)
    trials = (
        tx.add_trials(cohort, verdict.test, ring_again_seconds=ctx.pace.ring_again_seconds)
        if verdict.test
        else []
    )
    ordinals = {member.id: member.ordinal for member in cohort.members}
    return Advance(tuple(trials), tuple(ordinals[child.proposal] for child in children))


def _lock(tx: Transaction, run: Run, cohort: Cohort) -> Sequence[IslandView]:
    if cohort.founding:
        return tx.islands(run.id, lock=True)
    return (tx.island(run.id, cohort.island, lock=True),)


def _admitted(
    ctx: Context, tx: Transaction, run: Run, cohort: Cohort, verdict: Verdict
) -> list[Child]:
    if not verdict.admit:
        return []
    islands = _lock(tx, run, cohort)
    if any(axis.provisional or not axis.ranged for axis in run.axes):
        run = tx.run(run.id)  # the grid may have been learnt while we waited for the islands
    stages = ctx.problem(run.problem).stages
    members = {member.program: member for member in cohort.living}
    entrants = [
        _entrant(tx, cohort, islands[0], player, members.get(player), stages)
        for player in verdict.admit
    ]
    if any(not axis.ranged for axis in run.axes):
        seen = [entrant.features for entrant in entrants]
        tx.set_axes(run.id, learnt(run.axes, seen, provisional=True))
        run = tx.run(run.id)
    strategy = ctx.strategy(run)
    offered = [
        _offer(tx, run, strategy, cohort, islands, entrant, members.get(entrant.program))
        for entrant in entrants
    ]
    return [child for child in offered if child is not None]


def _entrant(
    tx: Transaction,
    cohort: Cohort,
    island: IslandView,
    player: ProgramId,
    member: Member | None,
    stages: tuple[str, ...],
) -> Entrant:
    fitness = cohort.fitness(player, stages)
    if fitness is None:
        raise ValueError(f"program {player[:8]} of cohort {cohort.id} was admitted unmeasured")
    length = member.length if member else tx.lengths([player])[player]
    draft = member.draft if member else None
    generation = draft.generation if draft else _incumbent_generation(island, player)
    return Entrant(player, fitness, length, generation, cohort.evaluations(player))


def _offer(
    tx: Transaction,
    run: Run,
    strategy: Strategy,
    cohort: Cohort,
    islands: Sequence[IslandView],
    entrant: Entrant,
    member: Member | None,
) -> Child | None:
    """Offers an entrant to its islands; returns how its proposal settles, None for an incumbent."""
    took = False
    for island in islands:
        draft = member.draft if member else None
        stale = draft is not None and draft.epoch != island.epoch
        elite = None if stale else admit(tx, run.id, island, strategy, entrant)
        took = took or elite is not None
        reached = EventKind.ADMITTED if elite else EventKind.REFUSED
        tx.emit(
            run.id,
            EventKind.FOUNDED if cohort.founding else reached,
            {
                "proposal": member.ordinal if member else None,
                "program": entrant.program,
                "island": island.index,
                "operator": cohort.operator,
                "fitness": entrant.fitness,
                "cell": list(elite.cell) if elite else None,
            },
        )
    if took:
        _announce_best(tx, run, entrant)
    if member is None:
        return None
    verified = all(evaluation.verified for evaluation in entrant.evaluations)
    return Child(
        member.id, State.ADMITTED, entrant.program, fitness=entrant.fitness, verified=verified
    )


def _announce_best(tx: Transaction, run: Run, entrant: Entrant) -> None:
    """Emits `improved` for a new best of the run; two islands at once may both claim it."""
    best = tx.best_fitness(run.id)
    if best is None or entrant.fitness > best:
        settled = run.proposals - tx.backlog(run.id).unsettled
        facts = {"program": entrant.program, "fitness": entrant.fitness, "settled": settled}
        tx.emit(run.id, EventKind.IMPROVED, facts)


def _incumbent_generation(island: IslandView, player: ProgramId) -> int:
    return next((e.generation for e in island.best(island.size) if e.program == player), 0)


def _cut(tx: Transaction, run: Run, cohort: Cohort, verdict: Verdict) -> list[Child]:
    by_id = {member.id: member for member in cohort.living}
    for proposal in verdict.cut:
        settle_event(tx, run, cohort, by_id[proposal], EventKind.CUT, reason="not promoted")
    return [Child(proposal, State.CUT, by_id[proposal].program) for proposal in verdict.cut]


def _failed(
    ctx: Context, tx: Transaction, run: Run, cohort: Cohort, verdict: Verdict
) -> list[Child]:
    by_id = {member.id: member for member in cohort.living}
    children = []
    for proposal in verdict.fail:
        member = by_id[proposal]
        failure = _failure(ctx, run, cohort, member)
        settle_event(tx, run, cohort, member, EventKind.FAILED, failure=failure.kind)
        children.append(Child(proposal, State.FAILED, member.program, failure=failure))
    return children


def _failure(ctx: Context, run: Run, cohort: Cohort, member: Member) -> Failure:
    player = member.program or ""
    for stage in ctx.problem(run.problem).stages:
        failure = cohort.failure(player, stage)
        if failure is not None:
            return failure
    raise ValueError(f"proposal {member.id} of cohort {cohort.id} failed without a failure")


def settle_event(
    tx: Transaction, run: Run, cohort: Cohort, member: Member, kind: EventKind, **facts: object
) -> None:
    """Emits the one event with which a proposal that reached no cell settles."""
    tx.emit(
        run.id,
        kind,
        {
            "proposal": member.ordinal,
            "island": cohort.island,
            "operator": cohort.operator,
            "program": member.program,
            **{name: str(value) for name, value in facts.items()},
        },
    )
