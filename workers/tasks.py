"""Celery tasks: each names a step and does nothing else."""

import logging
from collections.abc import Callable, Collection, Mapping

from app.celery import app, report_tick
from app.engine import steps
from app.engine.context import Context
from app.engine.process import LeaseKind
from app.logs import at_work_on
from app.ports.protocols import Unavailable
from workers.lifecycle import context
from workers.metrics import step_metrics

_LEASED: Mapping[str, LeaseKind] = {"generate": "proposal", "evaluate": "trial", "judge": "trial"}

log = logging.getLogger(__name__)


@app.task(name="generate")
def generate(*proposal_ids: int) -> None:
    """Generates the children of proposals, one after the other."""
    _attempt("generate", proposal_ids, lambda: steps.generate(context(), *proposal_ids))


@app.task(name="evaluate")
def evaluate(*trial_ids: int) -> None:
    """Runs trials, one after the other."""
    _attempt("evaluate", trial_ids, lambda: steps.evaluate(context(), *trial_ids))


@app.task(name="judge")
def judge(trial_id: int) -> None:
    """Has models judge one program."""
    _attempt("judge", (trial_id,), lambda: steps.judge(context(), trial_id))


@app.task(name="produce")
def produce(run_id: int | None = None) -> None:
    """Plans for one run; without an id, as beat sends it, for every running one."""
    if run_id is None:
        _attempt("produce", (), _produce_all)
    else:
        _attempt("produce", (run_id,), lambda: steps.produce(context(), run_id))


@app.task(name="reap")
def reap(run_id: int | None = None) -> None:
    """Enqueues lost steps again: of one run or, without an id, as beat sends it, of all running."""
    if run_id is None:
        _attempt("reap", (), lambda: steps.reap_all(context(), _reap))
    else:
        _attempt("reap", (run_id,), lambda: steps.reap(context(), run_id))


def _attempt(step: str, subjects: tuple[int, ...], perform: Callable[[], None]) -> None:
    """Runs a step; where machinery is down, writes one line and leaves the rest to beat and `reap`.

    Celery's own retry is not used: it would be a second mechanism, with its messages in a worker's
    memory.  The step has released its lease, so `reap` enqueues it again within seconds.
    """
    kind = f"{_LEASED[step]}s" if step in _LEASED else "runs"
    with at_work_on(step, kind, subjects):
        try:
            with step_metrics.of(step):
                _pausing(step, subjects, perform)
        except Unavailable as error:
            named = ", ".join(map(str, subjects)) or "all"
            log.warning("%s %s: unavailable: %s", step, named, error)


def _produce_all() -> None:
    report_tick(app, idle=not steps.produce_all(context(), _produce))


def _produce(ctx: Context, run_id: int) -> None:
    _pausing("produce", (run_id,), lambda: steps.produce(ctx, run_id))


def _reap(ctx: Context, run_id: int, full: Collection[str]) -> None:
    _pausing("reap", (run_id,), lambda: steps.reap(ctx, run_id, full))


def _pausing(step: str, subjects: tuple[int, ...], perform: Callable[[], None]) -> None:
    """Runs a step; pauses its run, and no other, where it raises what no step should.

    Repeating such a step would repeat the fault, and cost the other runs their workers.
    """
    try:
        perform()
    except Unavailable:
        raise
    except Exception as error:
        log.exception("%s %s raised, its run is paused", step, ", ".join(map(str, subjects)))
        what = f"{type(error).__name__}: {error}"
        reason = f"the step {step} raised {what}; the worker's log has the traceback"
        steps.interrupt(context(), _LEASED.get(step), subjects, reason)
