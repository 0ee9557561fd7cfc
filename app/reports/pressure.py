"""How much of a run is in flight, how much may be, and why."""

from dataclasses import asdict, dataclass
from typing import Any

from app.domain.run import Run
from app.domain.search.back_pressure import reason
from app.engine.back_pressure import pressure
from app.ports.ledger import Transaction
from app.ports.records import Backlog


@dataclass(frozen=True, slots=True)
class Stage:
    """One of the two stages of a run.

    Attributes:
      in_flight: Proposals in it now.
      limit: Beyond which nothing is planned.
      why: What the limit was taken from.
      batch: How many steps one message may name.
    """

    in_flight: int
    limit: int
    why: str
    batch: int = 1

    @property
    def text(self) -> str:
        """The stage in a line."""
        shared = f", {self.batch} a message" if self.batch > 1 else ""
        return f"{self.in_flight} of {self.limit} ({self.why}{shared})"


@dataclass(frozen=True, slots=True)
class Stages:
    """What waits for an operator, and what is under test."""

    generating: Stage
    evaluating: Stage

    def document(self) -> dict[str, Any]:
        """Returns the stages as JSON values."""
        return asdict(self)


def stages(tx: Transaction, run: Run, backlog: Backlog) -> Stages:
    """Reads a run's stages as the planner would, and changes nothing."""
    found = pressure(tx, run, backlog)
    flow, caps = found.flow, found.caps
    waits = reason(flow, evaluating=False, cap=caps.generating)
    tests = reason(flow, evaluating=True, cap=caps.evaluating)
    return Stages(
        Stage(backlog.generating, run.limits.generating, waits, run.limits.generate_batch),
        Stage(backlog.evaluating, run.limits.evaluating, tests, run.limits.evaluate_batch),
    )
