"""The events of a problem that is a game: candidates, their tests, their games, the podium."""

from collections.abc import Sequence

from app.domain.evaluation import Trial, fitness
from app.domain.events import Closed, Entered, GateTested, Played, Scored
from app.domain.problem import Problem
from app.domain.program import ProgramId
from app.domain.run import Run
from app.domain.search.cohort import Cohort
from app.domain.search.recipes.tournament import PODIUM
from app.ports.events import Events
from app.ports.ledger import Transaction


def emit_recorded(events: Events, run: Run, problem: Problem, cohort: Cohort) -> None:
    """Emits what was recorded just now: a candidate was tested, or a game was played."""
    if problem.players == 1:
        return
    for trial in cohort.recorded:
        evaluation = cohort.trials[trial]
        assert evaluation is not None
        failure = evaluation.failure
        kind = failure.kind if failure else None
        if trial.stage != problem.final_stage:
            [program] = trial.players
            tested = GateTested(cohort=cohort.id, program=program, stage=trial.stage, failure=kind)
            events.emit(run.id, tested)
            continue
        first, second = trial.players
        played = Played(
            cohort=cohort.id,
            first=first,
            second=second,
            game=int(trial.cases[0]),
            score=fitness(first, [evaluation]),
            moves=tuple(evaluation.artifacts.get("moves", "").split()),
            termination=evaluation.artifacts.get("termination", ""),
            failure=kind,
            culprit=failure.culprit if failure else None,
        )
        events.emit(run.id, played)


def emit_entered(
    events: Events, run: Run, problem: Problem, tests: Sequence[tuple[Cohort, Trial]]
) -> None:
    """Emits each child whose first test is planned just now."""
    if problem.players == 1:
        return
    for cohort, trial in tests:
        member = cohort.member(trial.players[0])
        if member is None or trial.stage != problem.stages[0]:
            continue
        entered = Entered(
            cohort=cohort.id,
            island=cohort.island,
            proposal=member.ordinal,
            program=trial.players[0],
            parents=member.draft.parents if member.draft else (),
        )
        events.emit(run.id, entered)


def emit_closed(tx: Transaction, run: Run, problem: Problem, cohort: Cohort) -> None:
    """Emits the points of a generation whose last member settles just now, and the podium."""
    if problem.players == 1:
        return
    points: dict[ProgramId, float] = {}
    games: dict[ProgramId, int] = {}
    for trial, evaluation in cohort.trials.items():
        if evaluation is None or trial.stage != problem.final_stage:
            continue
        for player in evaluation.scores:
            score = fitness(player, [evaluation])
            points[player] = points.get(player, 0.0) + (score or 0.0)
            games[player] = games.get(player, 0) + 1
    scored = Scored(cohort=cohort.id, island=cohort.island, points=points, games=games)
    tx.events.emit(run.id, scored)
    podium = tx.archive.island(run.id, cohort.island).best(PODIUM)
    closed = Closed(
        cohort=cohort.id, island=cohort.island, podium=tuple(elite.program for elite in podium)
    )
    tx.events.emit(run.id, closed)
