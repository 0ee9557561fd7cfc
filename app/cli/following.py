"""Following a run: bounded reads of the ledger until it stands still."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from app.domain.run import Run, RunState
from app.domain.search.cohort import State
from app.ports.ledger import Transaction
from app.ports.protocols import Store, Unavailable
from app.ports.records import Backlog
from app.reports.progress import Progress, fold
from app.reports.summary import notices

PAGE = 1000
LOOK_SECONDS = 0.25
PATIENCE_SECONDS = 60.0
"""How long a ledger that does not answer is waited for."""
SETTLING_SECONDS = 10.0
"""How long a paused run is watched for what is still in flight."""


class Deadline:
    """Says whether so many seconds have passed since it was made."""

    def __init__(self, seconds: float) -> None:
        """Begins now."""
        self._ends = time.monotonic() + seconds

    def __call__(self) -> bool:
        return time.monotonic() > self._ends


@dataclass(frozen=True, slots=True)
class Look:
    """A run at one moment."""

    run: Run
    progress: Progress
    backlog: Backlog

    @property
    def still(self) -> bool:
        """Whether nothing more will come of the run by itself."""
        nothing_left = not self.backlog.unsettled and not self.backlog.founding
        return self.run.state.final or (self.run.state is RunState.PAUSED and nothing_left)


class Standstill:
    """Notices that nothing more is to be waited for.

    Attributes:
      stuck: Whether it was reached because nothing settled for long, while the run says that
        something it needs does not answer.
    """

    def __init__(self, patience_seconds: float | None = None) -> None:
        """Has seen nothing yet; a patience of None never ends."""
        self._paused: Deadline | None = None
        self._patience_seconds = patience_seconds
        self._done = -1
        self._moving = Deadline(patience_seconds or 0.0)
        self.stuck = False

    def reached(self, look: Look | None) -> bool:
        """Returns whether the run is at its end, or has been paused for long enough."""
        if look is None:
            return False
        if look.run.state is not RunState.PAUSED:
            self._paused = None
        elif self._paused is None:
            self._paused = Deadline(SETTLING_SECONDS)
        self.stuck = self._patience_ends(look)
        return look.still or self.stuck or (self._paused is not None and self._paused())

    def _patience_ends(self, look: Look) -> bool:
        waits = look.run.state is RunState.RUNNING and bool(look.run.reason)
        if self._patience_seconds is None:
            return False
        if not waits or look.progress.done != self._done:
            self._done = look.progress.done
            self._moving = Deadline(self._patience_seconds)
        return self._moving()


class Tail:
    """A run's progress as it grows: what was there, then each event once."""

    def __init__(self, store: Store, run: int) -> None:
        """Reads nothing yet."""
        self._store = store
        self._run = run
        self._progress: Progress | None = None

    def look(self) -> Look:
        """Reads what is new.

        All of one moment: what settled between two reads would be counted here, and once more by
        its event.
        """
        with self._store.begin(snapshot=True) as tx:
            run = tx.runs.get(self._run)
            if self._progress is None:
                self._progress = _standing(tx, run)
            while page := tx.events.read(run.id, after=self._progress.seq, limit=PAGE):
                self._progress = fold(self._progress, page)
                if len(page) < PAGE:
                    break
            return Look(run, self._progress, tx.proposals.backlog(run.id))


def _standing(tx: Transaction, run: Run) -> Progress:
    """Reads what a run has come to, and up to which event."""
    states = tx.history.states(run.id)
    best = tx.history.best_quality(run.id)
    return Progress(
        seq=run.events,
        done=sum(n for state, n in states.items() if state.final),
        admitted=states.get(State.ADMITTED, 0),
        cut=states.get(State.CUT, 0),
        failures=tx.history.failures(run.id),
        best=best.fitness if best else None,
        notices=notices(tx, run.id),
    )


class Follower:
    """Looks at a run now and then and shows it.

    Args:
      tail: The run.
      show: Called with every look.
      check: Raises when the machinery behind the run is beyond repair.
      note: Says something to the person.
      standstill: When to stop; None waits for the end of the run.
    """

    def __init__(
        self,
        tail: Tail,
        show: Callable[[Look], None],
        *,
        check: Callable[[], None],
        note: Callable[[str], None],
        standstill: Standstill | None = None,
    ) -> None:
        """Looks at nothing yet."""
        self._standstill = standstill or Standstill()
        self._tail = tail
        self._show = show
        self._check = check
        self._note = note
        self._silent_since: float | None = None
        self._told = 0

    def follow(self, halted: Callable[[], bool]) -> Look | None:
        """Follows until the run stands still or `halted()`; returns the last look, if any.

        Raises:
          Unavailable: The ledger did not answer for a minute.
        """
        look: Look | None = None
        while not halted():
            self._check()
            look = self.glance() or look
            if self._standstill.reached(look):
                break
            time.sleep(LOOK_SECONDS)
        return look

    def glance(self) -> Look | None:
        """Looks once and shows it; None while the ledger does not answer.

        Raises:
          Unavailable: It has not answered for a minute.
        """
        try:
            look = self._tail.look()
        except Unavailable as error:
            now = time.monotonic()
            if self._silent_since is None:
                self._silent_since = now
                self._note(f"the ledger does not answer, waiting for it: {error}")
            if now - self._silent_since > PATIENCE_SECONDS:
                raise
            return None
        self._silent_since = None
        for text in look.progress.notices[self._told :]:
            self._note(f"notice: {text}")
        self._told = len(look.progress.notices)
        self._show(look)
        return look
