"""Pressure: the load of a run's two stages in the ledger, and the limits that follow from it."""

from dataclasses import dataclass, replace

from app.domain.run import Run
from app.domain.search.back_pressure import Caps, Flow, sized, window
from app.ports.ledger import Transaction
from app.ports.records import Backlog


@dataclass(frozen=True, slots=True)
class Pressure:
    """The load of a run's two stages.

    Attributes:
      caps: The limits that the settings fix.
      flow: None where nothing was measured: too little has settled.
    """

    caps: Caps
    flow: Flow | None


def pressure(tx: Transaction, run: Run, backlog: Backlog) -> Pressure:
    """Measures a run: one bounded read."""
    caps = run.rules.queue
    wanted = window(0 if caps.fixed else backlog.unsettled)
    settled = min(run.proposals - backlog.unsettled, wanted)
    return Pressure(caps, tx.proposals.flow(run.id, settled))


def resized(tx: Transaction, run: Run, measures: Pressure, *, least: int) -> Run:
    """Returns the run with the limits that hold now; stores them where they differ."""
    limits = sized(measures.flow, measures.caps, run.limits, least=least)
    if limits == run.limits:
        return run
    tx.runs.set_limits(run.id, limits)
    return replace(run, limits=limits)
