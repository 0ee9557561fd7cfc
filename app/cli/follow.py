"""Following a run on the screen, from its beginning to its results."""

import math
import threading
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

from app.cli.display import progress_display
from app.cli.ending import report_end
from app.cli.interruption import Interruption
from app.cli.output import DONE, Screen
from app.client.following import SETTLING_SECONDS, Deadline, RunStatus
from app.client.session import RunSession
from app.domain.problem import Problem
from app.domain.run import Run
from app.engine import lifecycle
from app.ports.protocols import Unavailable
from app.reports.decoration import attempt
from app.reports.metrics import GrowingMetrics

APPENDING_SECONDS = 1.0
"""Shortest time between two additions to the metrics of a run that goes on."""


def follow(
    session: RunSession, run: Run, problem: Problem, folder: Path, screen: Screen, *, detach: bool
) -> int:
    """Follows a run to its end and writes its results; returns the exit status.

    The first Ctrl-C pauses an embedded run and waits for the proposals in flight; it leaves a
    deployment's run alone.  With `detach` the run is announced and not followed.
    """
    weights = sum(run.operators.values())
    mix = ", ".join(f"{name} {weight / weights:.0%}" for name, weight in run.operators.items())
    screen.say(
        f"run {run.name}: {run.budget.proposals} proposals, seed {run.seed}, "
        f"{run.islands} {'island' if run.islands == 1 else 'islands'}, operators {mix}; "
        f"files go to {folder}"
    )
    if detach:
        screen.say(f"submitted: `evoq watch {run.name}` follows it")
        screen.answer({"run": run.name, "id": run.id, "state": run.state.value, "out": None})
        return DONE
    with Interruption() as interruption:
        metrics = GrowingMetrics(session.store, run, folder / "metrics.jsonl")
        _watch(session, run, metrics, screen, interruption)
    return report_end(session.store, run.id, problem, folder, screen, detached=session.detached)


def _watch(
    session: RunSession,
    run: Run,
    metrics: GrowingMetrics,
    screen: Screen,
    interruption: Interruption,
) -> None:
    with progress_display(screen.out, session.hint) as display:
        follower = session.follower(run, _also_appending(display, metrics, screen.note))
        status = follower.follow(lambda: interruption.requested)
        if follower.stuck and status is not None:
            reason = f"nothing settled for long; {status.run.reason}"
            lifecycle.pause(session.ctx, run.id, reason)
            return
        stopped = status is not None and status.stopped
        if interruption.requested and not session.detached and not stopped:
            screen.note("pausing: steps in progress end; Ctrl-C again stops at once")
            lifecycle.pause(session.ctx, run.id, "interrupted")
            follower.follow(Deadline(SETTLING_SECONDS))


def _also_appending(
    show: Callable[[RunStatus], None], metrics: GrowingMetrics, note: Callable[[str], None]
) -> Callable[[RunStatus], None]:
    """Returns a function that shows a status and, once a second, appends what has settled.

    A file that cannot be written to is left alone after a notice.
    """
    done, due = -1, 0.0
    drawing = threading.Thread(target=import_drawing, daemon=True)

    def show_and_append(status: RunStatus) -> None:
        nonlocal done, due
        show(status)
        if status.progress.done and drawing.ident is None:
            drawing.start()
        if status.progress.done == done or time.monotonic() < due:
            return
        done, due = status.progress.done, time.monotonic() + APPENDING_SECONDS
        try:
            metrics.append()
        except Unavailable:
            # The next status tries again.
            done = -1
        except OSError as error:
            note(f"notice: no lines are appended to {error.filename}: {error.strerror}")
            due = math.inf

    return show_and_append


def import_drawing() -> None:
    """Imports the module that draws pictures, which takes a second.

    Where it cannot be imported, the drawing says why.
    """
    attempt("pictures", partial(import_module, "app.reports.plots"))
