"""What a run came to: counts, the best program, and the baselines it is compared with."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.domain.evaluation import merged_metrics
from app.domain.events import EventKind
from app.domain.problem import Problem
from app.domain.program import ProgramId
from app.domain.run import Run
from app.domain.search.cohort import State
from app.ports.ledger import Transaction
from app.ports.protocols import Store
from app.ports.records import Settled
from app.reports.costs import Costs, costs, costs_document
from app.reports.pressure import Stages, stages

MOST_NOTICES = 20


@dataclass(frozen=True, slots=True)
class Measured:
    """A program of the run with what was measured of it.

    Attributes:
      fitness: None where it never reached the final stage.
      verified: Whether evaluator and program were separate processes in every trial.
    """

    program: ProgramId
    fitness: float | None
    metrics: Mapping[str, float]
    verified: bool


@dataclass(frozen=True, slots=True)
class Best:
    """The fittest program of a run.

    Attributes:
      settled: Its proposal; a negative ordinal says that it is a seed.
    """

    measured: Measured
    source: str
    settled: Settled


@dataclass(frozen=True, slots=True)
class Summary:
    """A run in one look.

    Attributes:
      iterations: Settled proposals of the budget.
      failures: Failed proposals by kind.
      best: None when nothing was ever measured.
      baselines: Named seeds, in the problem's order; those that failed have no fitness.
      seconds: From the run's creation to its last event.
      notices: What was noticed on the way, one text each.
      costs: What it took.
      stages: What is in flight; None once the run has ended.
    """

    run: Run
    iterations: int
    admitted: int
    cut: int
    failures: Mapping[str, int]
    best: Best | None
    baselines: Mapping[str, Measured] = field(default_factory=dict)
    seconds: float = 0.0
    notices: tuple[str, ...] = ()
    costs: Costs = field(default_factory=Costs)
    stages: Stages | None = None


def summarise(store: Store, run: int, problem: Problem) -> Summary:
    """Reads a run's summary in one transaction."""
    with store.begin() as tx:
        known = tx.run(run)
        states, failures = tx.states(run), tx.failures(run)
        admitted = states.get(State.ADMITTED, 0)
        last = tx.events(run, after=known.events - 1, limit=1) if known.events else []
        return Summary(
            run=known,
            iterations=sum(n for state, n in states.items() if state.final),
            admitted=admitted,
            cut=states.get(State.CUT, 0),
            failures=failures,
            best=_best(tx, run),
            baselines=_baselines(tx, run, problem),
            seconds=last[0].seconds if last else 0.0,
            notices=notices(tx, run),
            costs=costs(tx, known, admitted),
            stages=None if known.state.final else stages(tx, known, tx.backlog(run)),
        )


def notices(tx: Transaction, run: int) -> tuple[str, ...]:
    """Returns what a person should know of a run, oldest first, the first few."""
    found = tx.events(run, limit=MOST_NOTICES, kinds=(EventKind.NOTICED,))
    return tuple(str(event.data["text"]) for event in found)


def _best(tx: Transaction, run: int) -> Best | None:
    found = tx.best(run)
    if found is None or found.program is None:
        return None
    source = tx.programs([found.program])[found.program].source
    return Best(_measured(tx, run, found.program, found.fitness, found.verified), source, found)


def _baselines(tx: Transaction, run: int, problem: Problem) -> dict[str, Measured]:
    """Returns the named seeds as the founding cohort measured them; it settles before all else."""
    founders = {
        one.program: one
        for one in tx.settled(run, limit=len(problem.seeds))
        if one.ordinal < 0 and one.program is not None
    }
    return {
        name: _measured(tx, run, program, found.fitness, found.verified)
        for name, program in problem.baselines.items()
        if (found := founders.get(program)) is not None
    }


def _measured(
    tx: Transaction, run: int, program: ProgramId, fitness: float | None, verified: bool
) -> Measured:
    metrics = merged_metrics(program, tx.evaluations(run, program))
    return Measured(program, fitness, metrics, verified)


def document(summary: Summary, out: str | None) -> dict[str, Any]:
    """Returns the summary as JSON values.

    Args:
      summary: The run's.
      out: The folder its files were written to; None when there are none.
    """
    run, best = summary.run, summary.best
    return {
        "run": run.name,
        "id": run.id,
        "problem": run.problem_name,
        "state": run.state.value,
        "reason": run.reason,
        "seed": run.seed,
        "operators": dict(run.operators),
        "budget": run.budget.proposals,
        "iterations": summary.iterations,
        "admitted": summary.admitted,
        "cut": summary.cut,
        "failures": dict(summary.failures),
        "in_flight": summary.stages.document() if summary.stages else None,
        "tokens": run.tokens,
        "costs": costs_document(summary.costs),
        "best": best_document(best) if best else None,
        "baselines": {name: _shown(one) for name, one in summary.baselines.items()},
        "verified": best.measured.verified if best else None,
        "notices": list(summary.notices),
        "wall_seconds": round(summary.seconds, 3),
        "out": out,
    }


def best_document(best: Best) -> dict[str, Any]:
    """Returns the best program as JSON values; `program` is its id and `source` its text."""
    return {
        **_shown(best.measured),
        "ordinal": best.settled.ordinal,
        "generation": best.settled.generation,
        "operator": best.settled.operator,
        "island": best.settled.island,
        "source": best.source,
    }


def _shown(one: Measured) -> dict[str, Any]:
    return {
        "program": one.program,
        "fitness": one.fitness,
        "metrics": dict(one.metrics),
        "verified": one.verified,
    }
