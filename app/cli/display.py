"""The display of a run that is followed: live on a terminal, as plain lines on a pipe."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from app.cli.output import counted, counted_measured
from app.client.following import RunStatus
from app.domain.digits import number_text
from app.reports.progress import Progress
from app.reports.text import duration

EVERY_SECONDS = 5.0
"""Time between two plain lines while nothing improves."""
APART_SECONDS = 1.0
"""Shortest time between two plain lines."""
REFRESHES = 8
STALL_SECONDS = 30.0
OPENING_SECONDS = 5.0
"""Time for which a display does not say what a run waits for: workers may be starting."""


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
    """Returns the best fitness with digits that differ from the one before and from the seeds."""
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
