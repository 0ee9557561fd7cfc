"""The queue of a process that sends steps to workers."""

from app.adapters.queue.celery import CeleryExecutor
from app.celery import app, client


def celery_executor(redis_url: str | None = None) -> CeleryExecutor:
    """Returns the executor that publishes to a broker; None is that of `EVOQ_REDIS_URL`."""
    return CeleryExecutor(app if redis_url is None else client(redis_url))
