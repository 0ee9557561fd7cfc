"""Start-up of a worker that generates: what its steps need is built before the first one."""

from typing import Any

from celery import signals

from workers.context import context_or_exit

QUEUE = "gpu"


@signals.worker_init.connect
def prepare(sender: Any, **_: Any) -> None:
    """Builds the context early, so that wrong settings show at the start and not in a step."""
    if QUEUE in sender.app.amqp.queues.consume_from:
        context_or_exit()
