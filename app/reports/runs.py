"""The list of runs, as `evoq list-runs`, `/api/runs` and the first page show it."""

from collections.abc import Callable
from dataclasses import dataclass

from app.domain.run import Run, RunState
from app.engine.back_pressure import pressure
from app.ports.ledger import Transaction
from app.ports.protocols import Store
from app.ports.runs import InsideRun
from app.reports.waiting import QueueState, waiting_of


@dataclass(frozen=True, slots=True)
class InsideRow:
    """A run inside a run of the list; see `RunRow`.

    Attributes:
      proposal: Ordinal of the proposal whose child it finds.
      proposals: How many it has planned.
    """

    run: str
    id: int
    proposal: int
    state: str
    proposals: int
    budget: int
    best: float | None
    start: float | None
    age_seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run in the list of runs.

    Attributes:
      worked_on: Whether a command of this machine works on it; None where that is not known.
      waiting: What it waits for; "" for nothing.
      iterations: Settled proposals of the budget.
      best: Fitness of its best program; None before one was measured.
      start: The highest fitness of a seed; None before one was measured.
      rate: Newest proposals settled per second; None while too few have settled, and after the end.
      inside: The newest runs inside it, at most a thousand.
    """

    run: str
    id: int
    problem: str
    strategy: str
    state: str
    reason: str
    worked_on: bool | None
    waiting: str
    iterations: int
    budget: int
    best: float | None
    start: float | None
    rate: float | None
    cost_usd: float
    tokens: int
    age_seconds: float
    inside: tuple[InsideRow, ...]


def read_runs(
    store: Store,
    queue: QueueState,
    worked_on: Callable[[Run], bool | None] = lambda _: None,
    *,
    inside: bool = True,
) -> list[RunRow]:
    """Returns the newest hundred runs, newest first, read in one transaction.

    Args:
      store: The ledger.
      queue: What the queue's server shows.
      worked_on: Returns whether a command of this machine works on a run; None where that is not
        known.
      inside: Whether the runs inside are read, too.
    """
    with store.begin() as tx:
        return [
            _row(tx, run, queue, worked_on(run), inside and run.rules.nested is not None)
            for run in tx.runs.newest()
        ]


def _row(
    tx: Transaction, run: Run, queue: QueueState, worked_on: bool | None, nested: bool
) -> RunRow:
    best = tx.history.best_quality(run)
    backlog = tx.proposals.backlog(run.id)
    flow = pressure(tx.proposals, run, backlog).flow if run.state is RunState.RUNNING else None
    inside = tx.runs.inside(run.id, reserving=False) if nested else []
    return RunRow(
        run=run.name,
        id=run.id,
        problem=run.problem_name,
        strategy=run.strategy,
        state=run.state.value,
        reason=run.reason,
        worked_on=worked_on,
        waiting="" if worked_on is False else waiting_of(tx, run, queue),
        iterations=run.proposals - backlog.unspent,
        budget=run.budget.proposals,
        best=best.fitness if best else None,
        start=tx.history.start(run.id),
        rate=flow.per_second if flow else None,
        cost_usd=run.cost_usd,
        tokens=run.tokens,
        age_seconds=round(run.elapsed_seconds, 1),
        inside=tuple(_inside(tx, one, one.run) for one in inside if one.run is not None),
    )


def _inside(tx: Transaction, inside: InsideRun, run: Run) -> InsideRow:
    best = tx.history.best_quality(run)
    return InsideRow(
        run=run.name,
        id=run.id,
        proposal=inside.ordinal,
        state=run.state.value,
        proposals=run.proposals,
        budget=run.budget.proposals,
        best=best.fitness if best else None,
        start=tx.history.start(run.id),
        age_seconds=round(run.elapsed_seconds, 1),
        reason=run.reason,
    )
