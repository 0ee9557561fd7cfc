"""The progress of a run: a live display on a terminal, plain lines on a pipe."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from app.cli.following import Look

EVERY_SECONDS = 5.0
"""Between two plain lines when nothing improves."""
APART_SECONDS = 1.0
"""Between two plain lines at least."""
REFRESHES = 8
STUCK_SECONDS = 30.0


@contextmanager
def shown(console: Console, hint: str) -> Iterator[Callable[[Look], None]]:
    """Yields what to call with every look at a run.

    Args:
      console: Where to; a terminal gets the live display.
      hint: Where to look when nothing settles for a while.
    """
    if not console.is_terminal:
        yield PlainLines(console, hint)
        return
    with Live(console=console, refresh_per_second=REFRESHES, transient=False) as live:
        watch = Stillness(hint)
        yield lambda look: live.update(panel(look, watch.told(look)))


class Stillness:
    """Notices that nothing settles."""

    def __init__(self, hint: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Begins now."""
        self._hint = hint
        self._clock = clock
        self._done = -1
        self._since = clock()

    def told(self, look: Look) -> str:
        """Returns what to say about it; "" while things move."""
        now = self._clock()
        if look.progress.done != self._done or look.still:
            self._done, self._since = look.progress.done, now
        if now - self._since < STUCK_SECONDS:
            return ""
        waiting, why = look.backlog, f"{look.run.reason}; " if look.run.reason else ""
        return (
            f"nothing has settled for {now - self._since:.0f} s: {waiting.generating} wait for "
            f"their operator, {waiting.evaluating} are under test; {why}{self._hint}"
        )


class PlainLines:
    """One line at an improvement, and one every few seconds.

    Args:
      console: Where to.
      hint: Where to look when nothing settles for a while.
      clock: Seconds that only rise.
    """

    def __init__(
        self, console: Console, hint: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Prints nothing yet."""
        self._console = console
        self._clock = clock
        self._watch = Stillness(hint, clock)
        self._last_at = -math.inf
        self._last = ""
        self._improvements = 0

    def __call__(self, look: Look) -> None:
        """Prints a line if it is due."""
        now = self._clock()
        improved = look.progress.improvements > self._improvements
        due = EVERY_SECONDS if not improved else APART_SECONDS
        if now - self._last_at < due and not look.still:
            return
        text = line(look)
        stuck = self._watch.told(look)
        told = f"{text}; {stuck}" if stuck else text
        if told != self._last:
            self._console.print(told, markup=False)
        self._last, self._last_at = told, now
        self._improvements = look.progress.improvements


def line(look: Look) -> str:
    """Returns the run's standing in one line."""
    run, progress = look.run, look.progress
    parts = [
        f"{progress.done}/{run.budget.proposals} proposals",
        f"best {number(progress.best)}",
        f"rate {_rate(look)}",
        f"failed {_failures(look)}",
        f"ETA {_eta(look)}",
    ]
    return f"{run.name} {run.state.value}: " + ", ".join(parts)


def panel(look: Look, stuck: str) -> Group:
    """Returns the live display of a look."""
    run, progress = look.run, look.progress
    table = Table.grid(padding=(0, 3))
    bar = ProgressBar(total=run.budget.proposals, completed=progress.done, width=40)
    since = f"  (after {progress.best_at} proposals)" if progress.improvements else ""
    table.add_row(Text(run.name, style="bold"), bar, f"{progress.done}/{run.budget.proposals}")
    table.add_row("best", Text(f"{number(progress.best)}{since}", style="bold green"), "")
    table.add_row("rate", f"{_rate(look)}   ETA {_eta(look)}", run.state.value)
    table.add_row("in flight", _in_flight(look), "")
    table.add_row("settled", f"{progress.admitted} admitted, {progress.cut} cut", "")
    table.add_row("failed", Text(_failures(look), style="yellow" if progress.failures else ""), "")
    return Group(table, Text(stuck, style="red")) if stuck else Group(table)


def number(value: float | None) -> str:
    """Returns a fitness to six significant digits; a dash where there is none."""
    return "–" if value is None else f"{value:.6g}"


def duration(seconds: float) -> str:
    """Returns a duration for people."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _in_flight(look: Look) -> str:
    waiting, limits = look.backlog, look.run.limits
    return (
        f"{waiting.generating} of {limits.generating} generating, "
        f"{waiting.evaluating} of {limits.evaluating} evaluating"
    )


def _rate(look: Look) -> str:
    rate = look.progress.rate(look.run.elapsed_seconds)
    if rate is None:
        return "–"
    return f"{rate:.1f}/s" if rate >= 1 else f"{rate * 60:.1f}/min"


def _eta(look: Look) -> str:
    if look.still:
        return "–"
    eta = look.progress.eta_seconds(look.run.budget.proposals, look.run.elapsed_seconds)
    return "–" if eta is None else duration(eta)


def _failures(look: Look) -> str:
    kinds = sorted(look.progress.failures.items(), key=lambda entry: (-entry[1], entry[0]))
    total = sum(n for _, n in kinds)
    told = ", ".join(f"{kind} {n}" for kind, n in kinds)
    return f"{total} ({told})" if kinds else "0"
