"""The process of a worker: its threads, its leases and its places at models."""

import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from app.adapters.model.per_run import Models
from app.adapters.queue.live_moves import LiveMoves
from app.adapters.store.group_commit import GroupCommit
from app.adapters.store.leases import LeaseRenewer
from app.adapters.store.workers import WorkerTimeRecorder
from app.domain.run import Run
from app.engine.process import LeaseKind, Result, Subject, nothing
from app.ports.protocols import NEVER, Stop


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """A process whose threads run steps at once; see `app.engine.process.Process`.

    Attributes:
      groups: Let threads share a transaction.
      models: Have the places that conversations take; None where nothing limits them.
      leases: Renews leases; None where no other worker works.
      recorder: Records the time of the worker; None where the process is no worker.
      moves: Shows the moves of games; None where nobody can see them.
    """

    groups: GroupCommit
    models: Models | None = None
    leases: LeaseRenewer | None = None
    recorder: WorkerTimeRecorder | None = None
    moves: LiveMoves | None = None

    def keep_lease(self, kind: LeaseKind, subject: int) -> AbstractContextManager[Stop]:
        """See `Process.keep_lease`."""
        return nullcontext(NEVER) if self.leases is None else self.leases.keep(kind, subject)

    def drain(self) -> None:
        """Ends its steps, whose leases are given back."""
        if self.leases is not None:
            self.leases.drain()

    def count_work(self, run: int) -> AbstractContextManager[None]:
        """See `Process.count_work`."""
        return nullcontext() if self.recorder is None else self.recorder.work(run)

    def take_place(self, run: Run) -> AbstractContextManager[Callable[[], None]]:
        """See `Process.take_place`."""
        return nullcontext(lambda: None) if self.models is None else self.models.place(run)

    def wait(self, seconds: float) -> None:
        """See `Process.wait`."""
        time.sleep(seconds)

    def show_moves(self, trial: int, moves: Sequence[str]) -> None:
        """See `Process.show_moves`."""
        if self.moves is not None:
            self.moves.show(trial, moves)

    def share(
        self,
        kind: Hashable,
        subjects: Sequence[Subject],
        work: Callable[[Sequence[Subject]], Sequence[Result]],
        after: Callable[[Sequence[Result]], None] = nothing,
        /,
    ) -> list[Result]:
        """See `Process.share`."""
        return self.groups.share(kind, subjects, work, after)
