"""Celery tasks: each names a step and does nothing else."""

import logging
from collections.abc import Callable

from app.celery import app
from app.engine import steps
from app.ports.protocols import Unavailable
from workers.context import context

log = logging.getLogger(__name__)


@app.task(name="generate")
def generate(*cohort_ids: int) -> None:
    """Breeds cohorts, one after the other."""
    _attempt("generate", cohort_ids, lambda: steps.generate(context(), *cohort_ids))


@app.task(name="evaluate")
def evaluate(*trial_ids: int) -> None:
    """Runs trials, one after the other."""
    _attempt("evaluate", trial_ids, lambda: steps.evaluate(context(), *trial_ids))


@app.task(name="judge")
def judge(trial_id: int) -> None:
    """Asks what models think of one program."""
    _attempt("judge", (trial_id,), lambda: steps.judge(context(), trial_id))


@app.task(name="produce")
def produce(run_id: int | None = None) -> None:
    """Plans for one run; for every running one without an id, as beat asks."""
    if run_id is None:
        _attempt("produce", (), lambda: steps.produce_all(context()))
    else:
        _attempt("produce", (run_id,), lambda: steps.produce(context(), run_id))


@app.task(name="reap")
def reap(run_id: int | None = None) -> None:
    """Rings again for what one run lost; for every running one without an id, as beat asks."""
    if run_id is None:
        _attempt("reap", (), lambda: steps.reap_all(context()))
    else:
        _attempt("reap", (run_id,), lambda: steps.reap(context(), run_id))


def _attempt(step: str, subjects: tuple[int, ...], run: Callable[[], None]) -> None:
    """Runs a step; machinery that is down costs one line, and beat or `reap` rings again.

    No retry of Celery's: that would be a second mechanism, with its messages held in a worker's
    memory.  The step has given its lease back, so `reap` is at it within seconds.
    """
    try:
        run()
    except Unavailable as error:
        named = ", ".join(str(one) for one in subjects) or "all"
        log.warning("%s %s: unavailable: %s", step, named, error)
