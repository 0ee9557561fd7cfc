"""One open transaction: the repositories of the ledger on one connection."""

from collections.abc import Callable

from sqlalchemy import Connection

from app.adapters.store.archive import SqlArchive
from app.adapters.store.cohorts import SqlCohorts
from app.adapters.store.completions import SqlCompletions
from app.adapters.store.copies import SqlCopies
from app.adapters.store.events import SqlEvents
from app.adapters.store.history import SqlHistory
from app.adapters.store.leases import SqlLeases
from app.adapters.store.outcomes import SqlOutcomes
from app.adapters.store.programs import SqlPrograms
from app.adapters.store.proposals import SqlProposals
from app.adapters.store.runs import SqlProblems, SqlRuns
from app.adapters.store.trials import SqlTrials
from app.adapters.store.worker_time import SqlWorkers
from app.ports import ledger
from app.ports.history import History


class SqlTransaction:
    """See `app.ports.ledger.Transaction`.

    Writes to the run's row are postponed and done last (completions, which it accounts for, limits,
    events, which it numbers), so that its lock is the last taken and the shortest held.
    """

    def __init__(self, connection: Connection) -> None:
        self._last: list[Callable[[], object]] = []
        self._events = SqlEvents(connection)
        self.problems: ledger.Problems = SqlProblems(connection)
        self.runs: ledger.Runs = SqlRuns(connection, self._last.append)
        self.programs: ledger.Programs = SqlPrograms(connection)
        self.cohorts: ledger.Cohorts = SqlCohorts(connection)
        self.proposals: ledger.Proposals = SqlProposals(connection)
        self.trials: ledger.Trials = SqlTrials(connection)
        self.leases: ledger.Leases = SqlLeases(connection)
        self.archive: ledger.Archive = SqlArchive(connection)
        self.completions: ledger.Completions = SqlCompletions(connection, self._last.append)
        self.outcomes: ledger.Outcomes = SqlOutcomes(connection)
        self.copies: ledger.Copies = SqlCopies(connection)
        self.events: ledger.Events = self._events
        self.workers: ledger.Workers = SqlWorkers(connection)
        self.history: History = SqlHistory(connection)

    @property
    def postponed(self) -> bool:
        """Whether there is anything left to write."""
        return bool(self._last or self._events.buffered)

    def write_last(self) -> None:
        """Writes what was postponed; called once, right before the commit."""
        for write in self._last:
            write()
        self._last.clear()
        self._events.write()
