"""How much of a run is in flight, how much may be, and why."""

from dataclasses import asdict, dataclass
from typing import Any

from app.domain.pressure import reason
from app.domain.run import Run
from app.engine.pressure import pressure
from app.entries import Backlog
from app.ledger import Transaction


@dataclass(frozen=True, slots=True)
class Stage:
    """One of the two stages of a run.

    Attributes:
      in_flight: Proposals in it now.
      limit: Beyond which nothing is planned.
      why: What the limit was taken from.
    """

    in_flight: int
    limit: int
    why: str

    @property
    def text(self) -> str:
        """The stage in a line."""
        return f"{self.in_flight} of {self.limit} ({self.why})"


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
    asked = flow.generating_seconds if flow else 0.0
    tested = flow.evaluating_seconds if flow else 0.0
    return Stages(
        Stage(backlog.generating, run.limits.generating, reason(flow, asked, caps.generating)),
        Stage(backlog.evaluating, run.limits.evaluating, reason(flow, tested, caps.evaluating)),
    )
