"""Following a run: bounded reads of the ledger until the run stops, shown as they come."""

import math
import os
import signal
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType, TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from app.cli.output import counted, counted_measured
from app.domain.digits import number_text
from app.domain.remedies import LEAST
from app.domain.run import Run, RunState
from app.domain.search.cohort import State
from app.ports.ledger import Transaction
from app.ports.protocols import Store, Unavailable
from app.ports.records import Backlog, Presence
from app.reports.explanations import read_explanation
from app.reports.progress import Progress, fold
from app.reports.summary import notices
from app.reports.text import duration
from app.reports.waiting import QueueState, waits_for

PAGE = 1000
POLL_SECONDS = 0.25
LEDGER_SECONDS = 60.0
"""How long a ledger that does not answer is waited for."""
SETTLING_SECONDS = 10.0
"""How long steps in progress of a paused run are waited for."""
EVERY_SECONDS = 5.0
"""Time between two plain lines while nothing improves."""
APART_SECONDS = 1.0
"""Shortest time between two plain lines."""
REFRESHES = 8
STALL_SECONDS = 30.0
OPENING_SECONDS = 5.0
"""Time for which a display does not say what a run waits for: workers may be starting."""
FRUITLESS = 25
"""Failures of one kind without a gain after which a notice quotes the commonest."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """Turns the first interrupt into a flag that loops read; the second interrupt raises."""

    def __init__(self) -> None:
        """Installs nothing yet."""
        self.requested = False
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> "Interruption":
        self._before = {
            name: signal.signal(name, self._handle)
            for name in SIGNALS
            if signal.getsignal(name) is not signal.SIG_IGN  # as `nohup` wants it
        }
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name, handler in self._before.items():
            signal.signal(name, handler)  # type: ignore[arg-type]  # as `signal` returned it

    def _handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002  a handler
        if number == signal.SIGHUP:
            leave_terminal()
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True


def leave_terminal() -> None:
    """Lets the output of this process go nowhere, because its terminal was closed.

    A write to a closed terminal is an error, which would end the command before the run is paused.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        if stat.S_ISCHR(os.fstat(stream).st_mode):  # `isatty` denies a terminal that was closed
            os.dup2(nowhere, stream)
    os.close(nowhere)


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
            waiting = waits_for(run, backlog, presence, queue)
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
      note: Prints a notice.
      until: When to stop; None waits for the end of the run.
    """

    def __init__(
        self,
        reader: ProgressReader,
        show: Callable[[RunStatus], None],
        *,
        check: Callable[[], None],
        note: Callable[[str], None],
        until: StopCondition | None = None,
    ) -> None:
        """Reads nothing yet."""
        self._until = until or StopCondition()
        self._reader = reader
        self._show = show
        self._check = check
        self.note = note
        self._silent_since: float | None = None
        self._noted = 0

    def follow(self, halted: Callable[[], bool]) -> RunStatus | None:
        """Polls until the run stops or `halted()`; returns the last status, if any.

        Raises:
          Unavailable: The ledger did not answer for a minute.
        """
        status: RunStatus | None = None
        while not halted():
            self._check()
            status = self.poll() or status
            if self._until.reached(status):
                break
            time.sleep(POLL_SECONDS)
        return status

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


@contextmanager
def progress_display(console: Console, hint: str) -> Iterator[Callable[[RunStatus], None]]:
    """Yields a function that shows a status: live on a terminal, as plain lines on a pipe.

    Args:
      console: Where to.
      hint: Advice for a user whose run settles nothing.
    """
    if not console.is_terminal:
        yield PlainLines(console, hint)
        return
    with Live(console=console, refresh_per_second=REFRESHES, transient=False) as live:
        stall = StallNotice(hint)
        yield lambda status: live.update(panel(status, stall.text(status)))


class StallNotice:
    """Notices that a run waits for something, or settles nothing."""

    def __init__(self, hint: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Starts the clock."""
        self._hint = hint
        self._clock = clock
        self._done = -1
        self._since = self._began = clock()

    def text(self, status: RunStatus) -> str:
        """Returns what the run waits for, or that nothing settles; "" where neither is so."""
        now = self._clock()
        if status.progress.done != self._done or status.stopped:
            self._done, self._since = status.progress.done, now
        if now - self._began < OPENING_SECONDS:
            return ""
        waiting, why = status.backlog, f"{status.waiting}; " if status.waiting else ""
        if now - self._since < STALL_SECONDS or status.validating:
            return f"waits: {status.waiting}" if status.waiting else ""
        return (
            f"nothing has settled for {now - self._since:.0f} s: {waiting.generating} wait for "
            f"their operator, {waiting.evaluating} are under test; {why}{self._hint}"
        )


class PlainLines:
    """Prints a line at an improvement, one when the run begins to wait, and one every few seconds.

    Args:
      console: Where to.
      hint: Advice for a user whose run settles nothing.
      clock: Monotonic seconds.
    """

    def __init__(
        self, console: Console, hint: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Prints nothing yet."""
        self._console = console
        self._clock = clock
        self._stall = StallNotice(hint, clock)
        self._last_at = -math.inf
        self._last = ""
        self._improvements = 0
        self._waits = False

    def __call__(self, status: RunStatus) -> None:
        """Prints a line if one is due."""
        now = self._clock()
        stall = self._stall.text(status)
        news = status.progress.improvements > self._improvements or (stall and not self._waits)
        due = APART_SECONDS if news else EVERY_SECONDS
        if now - self._last_at < due and not status.stopped:
            return
        text = f"{line(status)}; {stall}" if stall else line(status)
        if text != self._last:
            self._console.print(text, markup=False)
        self._last, self._last_at = text, now
        self._improvements, self._waits = status.progress.improvements, bool(stall)


def line(status: RunStatus) -> str:
    """Returns a status as one line."""
    run, progress = status.run, status.progress
    parts = [
        f"{progress.done}/{run.budget.proposals} proposals",
        f"best {best_text(progress)}",
        f"rate {_rate(status)}",
        *([f"cut {counted(progress.cuts)}"] if progress.cuts else []),
        f"failed {counted(progress.failures)}",
        *([f"validated {_validated(status)}"] if _validated(status) else []),
        f"ETA {_eta(status)}",
    ]
    return f"{run.name} {run.state.value}: " + ", ".join(parts)


def best_text(progress: Progress) -> str:
    """Returns the best fitness, told apart from the one before and from that of the seeds."""
    return number_text(progress.best, progress.best_before, *progress.told_apart)


def panel(status: RunStatus, stall: str) -> Group:
    """Returns the live display of a status."""
    run, progress = status.run, status.progress
    waiting = status.backlog
    table = Table.grid(padding=(0, 3))
    best = best_text(progress)
    bar = ProgressBar(total=run.budget.proposals, completed=progress.done, width=40)
    since = f"  (after {progress.best_at} proposals)" if progress.improvements else ""
    in_flight = f"{waiting.generating} generating, {waiting.evaluating} evaluating"
    failed = Text(counted(progress.failures), style="yellow" if progress.failures else "")
    table.add_row(Text(run.name, style="bold"), bar, f"{progress.done}/{run.budget.proposals}")
    table.add_row("best", Text(f"{best}{since}", style="bold green"), "")
    table.add_row("rate", f"{_rate(status)}   ETA {_eta(status)}", run.state.value)
    table.add_row("in flight", in_flight, "")
    measured = counted_measured(progress.measured, progress.entered)
    table.add_row("settled", f"{measured}, cut {counted(progress.cuts)}", "")
    table.add_row("failed", failed, "")
    if _validated(status):
        table.add_row("validated", _validated(status), "")
    return Group(table, Text(stall, style="red")) if stall else Group(table)


def _rate(status: RunStatus) -> str:
    rate = status.progress.rate(status.run.elapsed_seconds)
    if rate is None:
        return "–"
    return f"{rate:.1f}/s" if rate >= 1 else f"{rate * 60:.1f}/min"


def _validated(status: RunStatus) -> str:
    done, waiting = status.progress.validated, status.validating
    return f"{done} of {done + waiting}" if waiting else str(done or "")


def _eta(status: RunStatus) -> str:
    if status.stopped:
        return "–"
    eta = status.progress.eta_seconds(status.run.budget.proposals, status.run.elapsed_seconds)
    return "–" if eta is None else duration(eta)
