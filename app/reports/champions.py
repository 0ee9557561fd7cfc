"""Fitness of the champion of a run whose programs play each other, generation by generation."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from app.domain.events import Closed, Crowned, Event, EventKind, Rerated
from app.domain.run import Run
from app.domain.search.cohort import CohortId
from app.domain.search.strategy import Ranking
from app.ports.ledger import Transaction

PAGE = 1000
"""Events that are read at once."""


@dataclass(frozen=True, slots=True)
class Champions:
    """Fitness of the champion.

    Attributes:
      after: By cohort, when it had ended: each is a generation of one island.
      now: By the last event; None before there is a champion.
    """

    after: Mapping[CohortId, float | None]
    now: float | None

    def of(self, cohort: CohortId) -> float | None:
        """Returns the fitness after a cohort; of one that has not ended, the present one."""
        return self.after.get(cohort, self.now)


def champions(events: Iterable[Event]) -> Champions:
    """Returns the champions by a run's events of the kinds crowned, rerated and closed."""
    after: dict[CohortId, float | None] = {}
    now: float | None = None
    for event in events:
        match event.fact:
            case Crowned(fitness=fitness) | Rerated(fitness=fitness):
                now = fitness
            case Closed(cohort=cohort):
                after[cohort] = now
            case _:
                pass
    return Champions(after, now)


def read_champions(tx: Transaction, run: Run) -> Champions | None:
    """Returns the champions of a run; None where fitness is comparable over the whole run."""
    if run.ranking is not Ranking.RELATIVE:
        return None
    kinds = (EventKind.CROWNED, EventKind.RERATED, EventKind.CLOSED)
    events: list[Event] = []
    while page := tx.events.read(
        run.id, after=events[-1].seq if events else 0, limit=PAGE, kinds=kinds
    ):
        events += page
    return champions(events)
