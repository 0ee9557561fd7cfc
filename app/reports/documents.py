"""Documents of the read model as JSON, and the document of a run.

A document is a frozen dataclass that one bounded read fills.  Commands, pages and `/api` share its
type.  `to_json` is the only function whose result is for a program outside.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol, TypeAlias

from app.adapters.model.congestion.status import EndpointStatus
from app.domain.problem import Problem
from app.domain.remedies import Explanation
from app.domain.run import Run
from app.ports.protocols import Store
from app.reports.costs import Costs
from app.reports.measured import MeasuredProgram
from app.reports.program import ProgramDocument, files_of
from app.reports.ratings import RatedProgram, read_ratings
from app.reports.summary import BestProgram, Summary, ValidatedProgram, read_summary
from app.reports.waiting import QueueState, endpoints_of, waiting_of

Json: TypeAlias = dict[str, Any]


class Document(Protocol):
    """A dataclass whose fields are JSON values, or of a class that `to_json` has a shape for."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class RunDocument:
    """A run as `evoq show`, `evoq run`, `/api/runs/RUN` and the page of the run show it.

    Attributes:
      summary: Counts, costs and programs, of one moment of the ledger.
      out: Folder of the run's files on this machine; None where there is none.
      worked_on: Whether a command of this machine works on it; None where that is not known.
      waiting: What it waits for; "" for nothing.
      models: The endpoints that it uses; () once it has ended.
      ratings: Of a game, the highest first; None for other problems, and where nobody asked.
      unreadable: Why this version cannot read its problem, so that no baseline is named; "" where
        it can.
    """

    summary: Summary
    out: str | None = None
    worked_on: bool | None = None
    waiting: str = ""
    models: tuple[EndpointStatus, ...] = ()
    ratings: tuple[RatedProgram, ...] | None = None
    unreadable: str = ""


def read_run(
    store: Store,
    run: Run,
    problem: Problem | None,
    queue: QueueState,
    worked_on: Callable[[Run], bool | None] = lambda _: None,
    *,
    ratings: bool = True,
) -> RunDocument:
    """Reads the document of a run in one transaction.

    Args:
      store: The ledger.
      run: The run.
      problem: Its problem; None where this version cannot read it.
      queue: What the queue's server shows.
      worked_on: Returns whether a command of this machine works on the run; None where that is not
        known.
      ratings: Whether the programs of a game are rated, which reads every game.
    """
    with store.begin(snapshot=True) as tx:
        summary = read_summary(tx, run.id, problem)
        at_work = worked_on(summary.run)
        rated = problem is not None and problem.players > 1 and ratings
        return RunDocument(
            summary,
            worked_on=at_work,
            waiting="" if at_work is False else waiting_of(tx, summary.run, queue),
            models=tuple(endpoints_of(summary.run, queue.endpoints)),
            ratings=tuple(read_ratings(tx, run.id)) if rated else None,
        )


def to_json(document: Document) -> Json:
    """Returns a document as JSON values: its fields, or the shape of its class."""
    match document:
        case RunDocument():
            return _run(document)
        case BestProgram():
            return _best(document)
        case ProgramDocument():
            return _program(document)
        case Costs():
            return _costs(document)
        case _:
            return asdict(document)


def _run(document: RunDocument) -> Json:
    summary = document.summary
    run, best, ratings = summary.run, summary.best, document.ratings
    return {
        "run": run.name,
        "id": run.id,
        "seq": summary.seq,
        "problem": run.problem_name,
        "state": run.state.value,
        "reason": run.reason,
        "seed": run.seed,
        "operators": dict(run.operators),
        "budget": run.budget.proposals,
        **_counts(summary),
        "in_flight": asdict(summary.load) if summary.load else None,
        "places": asdict(summary.places) if summary.places else None,
        "inside": asdict(summary.inside),
        "funnel": asdict(summary.funnel),
        "tokens": run.tokens,
        "costs": _costs(summary.costs),
        "best": _best(best) if best else None,
        "start": summary.start,
        "baselines": {name: _measurements(seed) for name, seed in summary.baselines.items()},
        "validated": [_validated(program) for program in summary.validated],
        "verified": best.measured.verified if best else None,
        "notices": list(summary.notices),
        "wall_seconds": round(summary.seconds, 3),
        "elapsed_seconds": round(run.elapsed_seconds, 3),
        "out": document.out,
        "worked_on": document.worked_on,
        "waiting": document.waiting,
        "models": [asdict(endpoint) for endpoint in document.models],
        "ratings": None if ratings is None else [asdict(rating) for rating in ratings],
        "unreadable": document.unreadable,
    }


def _counts(summary: Summary) -> Json:
    return {
        "iterations": summary.iterations,
        "measured": summary.measured,
        "entered": summary.entered,
        "admitted": summary.measured,
        "cut": sum(summary.cuts.values()),
        "cuts": dict(summary.cuts),
        "failures": dict(summary.failures),
        "commonest_failure": _explanation(summary.explanation),
        "savings": {**summary.savings.programs, "reused": asdict(summary.savings.reused)},
    }


def _explanation(explanation: Explanation | None) -> Json | None:
    return {**asdict(explanation), "text": explanation.text} if explanation else None


def _best(best: BestProgram) -> Json:
    """Returns the best program; `program` is its id, `source` its text, `files` several texts."""
    return {
        **_measurements(best.measured),
        "validation": _measurements(best.validation) if best.validation else None,
        "ordinal": best.settled.ordinal,
        "generation": best.settled.generation,
        "operator": best.settled.operator,
        "island": best.settled.island,
        "source": best.source,
        **_several(files_of(best.program)),
    }


def _program(document: ProgramDocument) -> Json:
    """Returns a program; only one of several files has `files`."""
    values = asdict(document)
    del values["files"]
    return {**values, **_several(document.files)}


def _several(files: dict[str, str]) -> Json:
    return {"files": files} if files else {}


def _validated(validated: ValidatedProgram) -> Json:
    """Returns a validated program; `search_fitness` is its fitness in the search."""
    failure, admitted = validated.failure, validated.admitted
    return {
        **_measurements(validated.measured),
        "names": list(validated.names),
        "search_fitness": admitted.fitness if admitted else None,
        "ordinal": admitted.ordinal if admitted else None,
        "failure": {"kind": failure.kind.value, "detail": failure.shown} if failure else None,
    }


def _measurements(measured: MeasuredProgram) -> Json:
    return {
        "program": measured.program,
        "fitness": measured.fitness,
        "fitness_names": list(measured.fitness_names),
        "metrics": dict(measured.metrics),
        "verified": measured.verified,
    }


def _costs(costs: Costs) -> Json:
    """Returns the costs; an amount is null where there is no price."""
    return {
        "completions": costs.completions,
        "reused": costs.reused,
        "unpriced": sum(account.unpriced for account in costs.models),
        "prompt_tokens": costs.prompt_tokens,
        "completion_tokens": costs.completion_tokens,
        "booked_tokens": costs.booked_tokens,
        "booked_usd": costs.booked_usd,
        "prefix_hit_rate": costs.prefix_hit_rate,
        "models_usd": costs.models_usd,
        "workers_usd": costs.workers_usd,
        "cost_usd": costs.cost_usd,
        "per_admitted_usd": costs.per_admitted_usd,
        "models": [asdict(account) for account in costs.models],
        "workers": [asdict(time) for time in costs.workers],
        "written": {
            role: {name: asdict(each) for name, each in models.items()}
            for role, models in costs.written.items()
        },
    }
