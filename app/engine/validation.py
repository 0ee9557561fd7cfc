"""Validation: after the last proposal, the best programs are measured on data the search never saw.

Its trials are those of a cohort without members: no proposal, no budget, no archive.  A run that is
stopped meanwhile goes on with them when it is resumed, as with any other trial.
"""

from collections.abc import Sequence

from app.domain.evaluation import behaviour
from app.domain.events import Validated
from app.domain.program import ProgramId
from app.domain.run import Run
from app.domain.search.cohort import Cohort, CohortId
from app.domain.search.strategy import Ranking
from app.engine.advance import Advance
from app.engine.context import Context
from app.ports.cohorts import VALIDATE
from app.ports.events import Events
from app.ports.ledger import Transaction
from app.ports.trials import WaitingTrial

_READ = 10
"""Programs that are read for each that is wanted, because many behave alike."""


def validate(ctx: Context, tx: Transaction, run: Run) -> list[WaitingTrial] | None:
    """Adds the trials of programs to be validated; returns None where all have ended.

    The best programs are compared with the problem's baselines and references.  What an earlier end
    of the run has validated is not measured again.  Of a run whose ranking is relative nothing is
    validated: no order of all its programs is known.
    """
    problem, most = ctx.problem(run.problem), run.rules.search.validate_best
    if not problem.validation or not most or run.ranking is Ranking.RELATIVE:
        return None
    validations = tx.history.validations(run.id)
    if any(one.waiting for one in validations):
        return []
    references = list(problem.references.values())
    compared = (*problem.baselines.values(), *(program.id for program in references))
    validated = {one.program for one in validations}
    new = [one for one in dict.fromkeys((*_best(tx, run, most), *compared)) if one not in validated]
    if not new:
        return None
    tx.programs.put(references)
    cohort = tx.cohorts.add_without_members(run.id, VALIDATE)
    trials = [(cohort, t) for one in new for t in problem.trials_of(one, problem.validation)]
    pace, fleets = ctx.pace, run.rules.fleets
    return tx.trials.add(trials, redeliver_seconds=pace.redeliver_seconds, fleets=fleets)


def _best(tx: Transaction, run: Run, most: int) -> list[ProgramId]:
    """Returns the best programs of a run, best first; of those that measured alike the first."""
    first: dict[str, ProgramId] = {}
    for settled, evaluations in tx.history.fittest(run.id, _READ * most):
        if settled.program:
            first.setdefault(behaviour(settled.program, evaluations), settled.program)
    return list(first.values())[:most]


def emit_validated(events: Events, run: Run, cohorts: Sequence[Cohort]) -> dict[CohortId, Advance]:
    """Emits the outcome of each program whose last trial was recorded just now."""
    for cohort in cohorts:
        for player in dict.fromkeys(trial.players[0] for trial in cohort.recorded):
            mine = {t: e for t, e in cohort.trials.items() if player in t.players}
            if all(evaluation is not None for evaluation in mine.values()):
                events.emit(run.id, _outcome(cohort, player))
    return {cohort.id: Advance(run, closed=not cohort.running) for cohort in cohorts}


def _outcome(cohort: Cohort, player: ProgramId) -> Validated:
    stage = cohort.recorded[0].stage
    failure = cohort.failure(player, stage)
    if failure is not None:
        return Validated(program=player, fitness=None, failure=failure.kind)
    return Validated(program=player, fitness=cohort.fitness(player, (stage,)), failure=None)
