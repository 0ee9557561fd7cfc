"""A run in this process: its bells are answered here, one at a time."""

import time
from collections.abc import Callable, Mapping
from functools import partial

from app.adapters.queue.inline import InlineExecutor
from app.cli.following import LOOK_SECONDS, Look, Standstill
from app.engine import steps
from app.engine.context import Context
from app.ports.protocols import Step, Unavailable

REST_SECONDS = 0.5
"""Between two rounds in which nothing could be done."""


def drive(
    ctx: Context,
    executor: InlineExecutor,
    run: int,
    glance: Callable[[], Look | None],
    halted: Callable[[], bool],
    note: Callable[[str], None],
    standstill: Standstill,
) -> Look | None:
    """Works until the run stands still or `halted()`; returns the last look.

    Machinery that is down is waited for, as a worker would.
    """
    table: Mapping[Step, Callable[[int], None]] = {
        "produce": partial(steps.produce, ctx),
        "generate": partial(steps.generate, ctx),
        "evaluate": partial(steps.evaluate, ctx),
        "judge": partial(steps.judge, ctx),
    }
    seen = _Glances(glance, halted)
    while True:
        try:
            executor.drain(table, until=seen.enough)
            look = seen.now()
            if standstill.reached(look) or halted():
                return look
            steps.reap(ctx, run)
            steps.produce(ctx, run)
        except Unavailable as error:
            note(f"unavailable, trying again: {error}")
            look = seen.now()
            if standstill.reached(look) or halted():
                return look
        if not executor.ringing:
            time.sleep(REST_SECONDS)


class _Glances:
    """Looks at the run between bells, a few times a second."""

    def __init__(self, glance: Callable[[], Look | None], halted: Callable[[], bool]) -> None:
        self._glance = glance
        self._halted = halted
        self._due = 0.0

    def enough(self) -> bool:
        """Looks if it is time; returns whether to stop between two bells."""
        if time.monotonic() >= self._due:
            self.now()
        return self._halted()

    def now(self) -> Look | None:
        """Looks."""
        look = self._glance()
        self._due = time.monotonic() + LOOK_SECONDS
        return look
