"""The end of a worker's shift: its last seconds are written down."""

from typing import Any

from celery import signals

from workers.context import end_shift


@signals.worker_shutdown.connect
def close(**_: Any) -> None:
    """Writes what the last interval left, once the last step is done."""
    end_shift()
