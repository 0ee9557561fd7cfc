"""Start-up and end of a worker that generates: what its steps need is there before the first."""

import sys
from typing import Any

from celery import concurrency, signals

from app.bootstrap import worker_engine
from app.ports.protocols import Unavailable
from workers.context import context_or_exit

QUEUE = "gpu"
_PREFORK = concurrency.get_implementation("prefork")


@signals.worker_init.connect
def prepare(sender: Any, **_: Any) -> None:
    """Builds the context early, so that wrong settings show at the start and not in a step.

    Where `EVOQ_VLLM_MODEL` names a model it is loaded now, once, before any step is taken.
    """
    if QUEUE not in sender.app.amqp.queues.consume_from:
        return
    context_or_exit()
    engine = worker_engine()
    if engine is not None:
        if concurrency.get_implementation(sender.pool_cls) is _PREFORK:
            raise SystemExit(
                "this worker cannot work: EVOQ_VLLM_MODEL needs the pool `threads`, as it is "
                "without --pool; forked processes have no engine"
            )
        try:
            engine.start(_say)
        except Unavailable as error:
            raise SystemExit(f"this worker cannot work: {error}") from error


@signals.worker_shutdown.connect
def close(sender: Any, **_: Any) -> None:
    """Ends the engine, once the last step is done."""
    engine = worker_engine()
    if engine is not None and QUEUE in sender.app.amqp.queues.consume_from:
        engine.close()


def _say(line: str) -> None:
    """Prints: while a worker starts, its log has no handler yet."""
    print(line, file=sys.stderr, flush=True)
