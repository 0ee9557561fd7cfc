"""Following a run: bounded reads of the ledger until the run stops."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from app.domain.remedies import LEAST
from app.domain.run import Run, RunState
from app.domain.search.cohort import State
from app.engine.quotas import quota_reason
from app.ports.ledger import Transaction
from app.ports.proposals import Backlog
from app.ports.protocols import Store, Unavailable
from app.ports.workers import Presence
from app.reports.explanations import read_explanation
from app.reports.progress import Progress, fold
from app.reports.summary import notices
from app.reports.waiting import QueueState, waits_for

PAGE = 1000
POLL_SECONDS = 0.25
LEDGER_SECONDS = 60.0
"""How long a ledger that does not answer is waited for."""
SETTLING_SECONDS = 10.0
"""How long steps in progress of a paused run are waited for."""
FRUITLESS = 25
"""Failures of one kind without a gain after which a notice quotes the commonest."""


class Deadline:
    """Returns, when called, whether a number of seconds have passed since it was created."""

    def __init__(self, seconds: float) -> None:
        """Starts the clock."""
        self._ends = time.monotonic() + seconds

    def __call__(self) -> bool:
        return time.monotonic() > self._ends


@dataclass(frozen=True, slots=True)
class RunStatus:
    """A run at one moment.

    Attributes:
      waiting: What it waits for; "" for nothing.
      held: Steps in progress of a paused run.
      validating: Programs that are to be measured on validation data still, after the last
        proposal.
    """

    run: Run
    progress: Progress
    backlog: Backlog
    waiting: str = ""
    held: int = 0
    validating: int = 0

    @property
    def stopped(self) -> bool:
        """Whether the run ended, or is paused with no step in progress."""
        return self.run.state.final or (self.run.state is RunState.PAUSED and not self.held)


class StopCondition:
    """Decides when a run need not be followed any longer.

    Attributes:
      stuck: Whether the reason is that nothing settled for `patience_seconds`, while the run waits
        for a service that does not answer.
    """

    def __init__(self, patience_seconds: float | None = None) -> None:
        """Has seen nothing yet; a patience of None never ends."""
        self._paused: Deadline | None = None
        self._patience_seconds = patience_seconds
        self._done = -1
        self._moving = Deadline(patience_seconds or 0.0)
        self.stuck = False

    def reached(self, status: RunStatus | None) -> bool:
        """Returns whether the run has stopped, is stuck, or has been paused for long enough."""
        if status is None:
            return False
        if status.run.state is not RunState.PAUSED:
            self._paused = None
        elif self._paused is None:
            self._paused = Deadline(SETTLING_SECONDS)
        self.stuck = self._patience_ends(status)
        return status.stopped or self.stuck or (self._paused is not None and self._paused())

    def _patience_ends(self, status: RunStatus) -> bool:
        waits = status.run.state is RunState.RUNNING and bool(status.run.reason)
        if self._patience_seconds is None:
            return False
        if not waits or status.progress.done != self._done:
            self._done = status.progress.done
            self._moving = Deadline(self._patience_seconds)
        return self._moving()


class ProgressReader:
    """Reads a run's progress: its state at the first read, then each further event once.

    Args:
      store: The ledger.
      run: The run.
      queue: Returns the state of the queue; None for a run without workers.
    """

    def __init__(
        self, store: Store, run: int, queue: Callable[[], QueueState] | None = None
    ) -> None:
        """Reads nothing yet."""
        self._store = store
        self._run = run
        self._queue = queue
        self._progress: Progress | None = None
        self._fruitless = FRUITLESS
        self._explained = False

    def read(self) -> RunStatus:
        """Reads the status with all events since the last read.

        One snapshot holds counts and events: a proposal that settled between two reads would be
        counted twice, in the counts and by its event.
        """
        queue = QueueState() if self._queue is None else self._queue()
        with self._store.begin(snapshot=True) as tx:
            run = tx.runs.get(self._run)
            if self._progress is None:
                self._progress = _first_progress(tx, run)
            while page := tx.events.read(run.id, after=self._progress.seq, limit=PAGE):
                self._progress = fold(self._progress, page)
                if len(page) < PAGE:
                    break
            self._progress = self._with_explanation(tx, run, self._progress)
            backlog = tx.proposals.backlog(run.id)
            here = self._queue is None
            presence = Presence(True, True) if here else tx.workers.presence()
            demand = tx.workers.demand(run.id)
            quota = "" if here else quota_reason(tx.projects, run)
            waiting = waits_for(run, demand, presence, queue, quota)
            held = tx.leases.held(run.id) if run.state is RunState.PAUSED else 0
            validating = 0
            if run.state is RunState.RUNNING and not (backlog.generating or backlog.evaluating):
                validating = sum(bool(one.waiting) for one in tx.history.validations(run.id))
            return RunStatus(run, self._progress, backlog, waiting, held, validating)

    def _with_explanation(self, tx: Transaction, run: Run, progress: Progress) -> Progress:
        """Adds a notice once so many proposals failed alike without a gain, and at each doubling.

        The first comes sooner while no child has been measured.  It quotes the commonest detail, in
        which the reason is found that no count shows, and names a remedy.
        """
        since_best = progress.failures_since_best
        kind = max(since_best, key=since_best.__getitem__, default=None)
        if kind is None:
            self._fruitless = FRUITLESS
            return progress
        failed = since_best[kind]
        soon = not (progress.measured or self._explained)
        least = LEAST if soon else self._fruitless
        if failed < least:
            return progress
        explanation = read_explanation(tx, run, since_best, {}, progress.done)
        if explanation is None:
            return progress
        self._explained = True
        while self._fruitless <= failed:
            self._fruitless *= 2
        text = f"none was better than the best: {explanation.text}"
        return replace(progress, notices=(*progress.notices, text))


def _first_progress(tx: Transaction, run: Run) -> Progress:
    """Reads a run's progress from its counts, up to its last event."""
    states = tx.history.states(run.id)
    best = tx.history.best_quality(run)
    return Progress(
        seq=run.events,
        done=sum(n for state, n in states.items() if state.final),
        measured=states.get(State.ADMITTED, 0),
        entered=tx.history.entered(run.id),
        cuts=tx.history.cuts(run.id),
        failures=tx.history.failures(run.id),
        best=best.fitness if best else None,
        start=tx.history.start(run.id),
        validated=sum(not one.waiting for one in tx.history.validations(run.id)),
        notices=notices(tx, run.id),
    )


class Follower:
    """Polls a run and shows its status.

    Args:
      reader: Reads the run.
      show: Receives every status.
      check: Raises when the servers or workers behind the run no longer work.
      note: Shows a notice.
      until: When to stop; None waits for the end of the run.
      work: Works on the run between two looks at it; None waits for workers.
    """

    def __init__(
        self,
        reader: ProgressReader,
        show: Callable[[RunStatus], None],
        *,
        check: Callable[[], None],
        note: Callable[[str], None],
        until: StopCondition | None = None,
        work: Callable[[Callable[[], bool]], None] | None = None,
    ) -> None:
        """Reads nothing yet."""
        self._until = until or StopCondition()
        self._work = work or _wait_for_workers
        self._reader = reader
        self._show = show
        self._check = check
        self.note = note
        self._silent_since: float | None = None
        self._noted = 0

    @property
    def stuck(self) -> bool:
        """Whether the run is followed no longer because it waits for a service that is silent."""
        return self._until.stuck

    def statuses(self, halted: Callable[[], bool] = lambda: False) -> Iterator[RunStatus]:
        """Yields the statuses of a run until it stops or `halted()`.

        Raises:
          Unavailable: The ledger did not answer for a minute.
        """
        while not halted():
            self._check()
            status = self.poll()
            if status is not None:
                yield status
            if self._until.reached(status):
                return
            self._work(halted)

    def follow(self, halted: Callable[[], bool]) -> RunStatus | None:
        """Follows a run until it stops or `halted()`; returns the last status, if any.

        Raises:
          Unavailable: The ledger did not answer for a minute.
        """
        last: RunStatus | None = None
        for status in self.statuses(halted):
            last = status
        return last

    def poll(self) -> RunStatus | None:
        """Reads the status once and shows it; None while the ledger does not answer.

        Raises:
          Unavailable: It has not answered for a minute.
        """
        try:
            status = self._reader.read()
        except Unavailable as error:
            now = time.monotonic()
            if self._silent_since is None:
                self._silent_since = now
                self.note(f"the ledger does not answer, waiting for it: {error}")
            if now - self._silent_since > LEDGER_SECONDS:
                raise
            return None
        self._silent_since = None
        for text in status.progress.notices[self._noted :]:
            self.note(f"notice: {text}")
        self._noted = len(status.progress.notices)
        self._show(status)
        return status


def _wait_for_workers(halted: Callable[[], bool]) -> None:  # noqa: ARG001
    time.sleep(POLL_SECONDS)
