"""What reports read of the ledger.  Every answer is bounded, or as long as what it is asked for."""

from collections.abc import Sequence
from typing import Protocol

from app.domain.evaluation import Evaluation
from app.domain.events import Event, EventKind
from app.domain.program import ProgramId
from app.domain.run import Run
from app.domain.search.archive import Elite
from app.domain.search.cohort import State
from app.ports.records import Account, Settled, Spent, WorkerTime


class History(Protocol):
    """The reading side of a transaction."""

    def runs(self, limit: int = 100) -> list[Run]:
        """Returns the newest runs, newest first."""
        ...

    def accounts(self, run: int) -> list[Account]:
        """Returns what a run's completions came to, by role and model."""
        ...

    def shifts(self, run: int) -> list[WorkerTime]:
        """Returns what workers spent on a run, by kind."""
        ...

    def busy_shifts(self) -> list[WorkerTime]:
        """Returns what workers spent on all runs together, by kind."""
        ...

    def idle_shifts(self) -> list[WorkerTime]:
        """Returns what workers spent on no run, by kind."""
        ...

    def spent(self) -> Spent:
        """Returns what the completions of all runs together took."""
        ...

    def events(
        self, run: int, after: int = 0, limit: int = 1000, kinds: Sequence[EventKind] = ()
    ) -> list[Event]:
        """Returns events with `seq` > `after`, in order; of `kinds` only, if any are given."""
        ...

    def best(self, run: int) -> Settled | None:
        """Returns the admitted proposal of the best quality, seeds included; None if none.

        Ties: the older.
        """
        ...

    def settled(self, run: int, after: int = 0, limit: int = 1000) -> list[Settled]:
        """Returns settled proposals in order of settling, skipping the first `after`."""
        ...

    def states(self, run: int) -> dict[State, int]:
        """Returns how many proposals of the budget are in each state."""
        ...

    def failures(self, run: int) -> dict[str, int]:
        """Returns how many proposals of the budget failed, by failure kind."""
        ...

    def elites(self, run: int) -> list[tuple[int, Elite]]:
        """Returns every (island, elite), by island, then cell, then rank."""
        ...

    def evaluations(self, run: int, program: ProgramId) -> list[Evaluation]:
        """Returns a program's evaluations in this run, in order."""
        ...

    def placed(self, run: int, limit: int) -> list[tuple[Settled, list[Evaluation]]]:
        """Returns the first `limit` admitted proposals with their evaluations, in order of id."""
        ...

    def programs_named(self, run: int, beginning: str) -> list[ProgramId]:
        """Returns a run's programs whose ids begin so; two at most."""
        ...
