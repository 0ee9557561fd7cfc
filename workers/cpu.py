"""Start-up and end of a worker that evaluates: it owns sandbox cells."""

from typing import Any

from celery import signals

from workers.context import context, context_or_exit

QUEUE = "cpu"


@signals.worker_init.connect
def prepare(sender: Any, **_: Any) -> None:
    """Builds the context early, so that wrong settings show at the start and not in a step."""
    if QUEUE in sender.app.amqp.queues.consume_from:
        context_or_exit()


@signals.worker_shutdown.connect
def close(sender: Any, **_: Any) -> None:
    """Ends this worker's cells, once its last step is done."""
    if QUEUE in sender.app.amqp.queues.consume_from:
        context().sandbox.close()
