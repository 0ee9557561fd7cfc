"""Start-up and end of a worker that evaluates: it owns sandbox cells."""

import logging
from typing import Any

from celery import signals

from app.adapters.sandbox.choose import clear_orphans
from app.config.settings import Settings
from app.ports.protocols import Unavailable
from workers.context import context, context_or_exit

QUEUE = "cpu"

log = logging.getLogger(__name__)


@signals.worker_init.connect
def prepare(sender: Any, **_: Any) -> None:
    """Builds the context early, so that wrong settings show at the start and not in a step."""
    if QUEUE in sender.app.amqp.queues.consume_from:
        context_or_exit()
        _clear_orphans()


def _clear_orphans() -> None:
    """Removes what killed workers left on this engine; one that does not answer ends no worker.

    Opening the sandbox does it too, but that waits for the first trial.
    """
    try:
        removed = clear_orphans(Settings().sandbox)
    except Unavailable as error:
        log.warning("sandbox: nothing was swept: %s", error)
        return
    if removed:
        log.warning("sandbox: removed %d containers that killed workers left", removed)


@signals.worker_shutdown.connect
def close(sender: Any, **_: Any) -> None:
    """Ends this worker's cells, once its last step is done."""
    if QUEUE in sender.app.amqp.queues.consume_from:
        context().sandbox.close()
