"""The queue of a ledger, for commands that send steps to workers; it imports Celery."""

from app.bootstrap.queue import celery_executor
from app.client.target import Ledger, without_sandbox
from app.engine.context import Context


def with_queue(ledger: Ledger) -> Context:
    """Returns a context that sends steps to the workers of the ledger's queue."""
    return without_sandbox(ledger, celery_executor(ledger.redis_url))
