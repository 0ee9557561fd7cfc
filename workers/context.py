"""The context of this worker process: built once, whichever step or hook asks first."""

import functools
import threading

from app.adapters.store.worker_time import WorkerTimeRecorder
from app.bootstrap import clocked, worker_context
from app.celery import app
from app.engine.context import Context
from app.ports.protocols import Unavailable

_building = threading.Lock()


@functools.cache
def _build() -> tuple[Context, WorkerTimeRecorder]:
    return clocked(worker_context(), app.amqp.queues.consume_from)


def context() -> Context:
    """Returns the context, built at first use and by one thread only.

    Raises:
      Unavailable: The environment does not say enough to build one, or a port does not answer.
    """
    with _building:
        return _build()[0]


def end_shift() -> None:
    """Writes down the last seconds of this worker, where it ever had a context."""
    with _building:
        if _build.cache_info().currsize:
            _build()[1].close()


def context_or_exit() -> Context:
    """Returns the context; ends a worker that cannot have one, with one line instead of a loop.

    Whoever supervises the worker starts it again.
    """
    try:
        return context()
    except Unavailable as error:
        raise SystemExit(f"this worker cannot work: {error}") from error
