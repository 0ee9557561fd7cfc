"""Enqueues steps through Celery: a message carries the name of a step and one or a few ids."""
# mypy: disallow-untyped-calls=False

import contextlib
import logging
from collections.abc import Sequence
from typing import Any

from celery import Celery
from kombu.entity import Exchange, Queue
from kombu.exceptions import KombuError
from redis.exceptions import RedisError

from app.domain.search.fleets import queue_of
from app.ports.protocols import Step

ATTEMPTS = 2
"""The first attempt may meet a connection that a Redis restart broke; the second has a new one."""

log = logging.getLogger(__name__)


class CeleryExecutor:
    """Publishes to the broker of a Celery application.

    A broker that cannot be reached costs about a second and one line in the log, and raises
    nothing: `reap` enqueues every lost message again.
    """

    def __init__(self, app: Celery):
        """Connects to nothing; the application's pool of producers does so at the first message."""
        self._app = app

    def submit(
        self, step: Step, subjects: Sequence[int], *, together: int = 1, fleet: str = ""
    ) -> None:
        """Enqueues the step for each subject, in order; several messages are sent as one batch."""
        if not subjects:
            return
        messages = _messages(subjects, together)
        for left in reversed(range(ATTEMPTS)):
            try:
                self._publish(step, messages, self._queue(step, fleet))
                return
            except KombuError as error:
                if not left:
                    log.warning(
                        "%s %s: %d steps not enqueued, reap will enqueue them: %s",
                        step,
                        subjects[0],
                        len(subjects),
                        _reason(error),
                    )

    def queued(self, step: Step, fleet: str = "") -> int:
        """Returns the length of the step's queue; 0 where the broker does not answer."""
        queue = queue_of(self._app.conf.task_routes[step]["queue"], fleet)
        with (
            contextlib.suppress(KombuError, RedisError),
            self._app.pool.acquire(block=True) as connection,
            connection.default_channel.conn_or_acquire() as client,
        ):
            return int(client.llen(queue))
        return 0

    def _queue(self, step: Step, fleet: str) -> Queue | None:
        """Returns the queue of a fleet; None for the queue of the step, which has no label.

        The default exchange needs no worker that has bound the queue before.
        """
        if not fleet:
            return None
        name = queue_of(self._app.conf.task_routes[step]["queue"], fleet)
        return Queue(name, Exchange(""), name)

    def _publish(
        self, step: Step, messages: Sequence[tuple[int, ...]], queue: Queue | None
    ) -> None:
        with self._app.producer_or_acquire() as producer:
            if len(messages) == 1:
                self._send(step, messages[0], queue, producer)
                return
            with producer.batch():
                for message in messages:
                    self._send(step, message, queue, producer)

    def _send(
        self, step: Step, message: tuple[int, ...], queue: Queue | None, producer: Any
    ) -> None:
        options = {} if queue is None else {"queue": queue}
        self._app.send_task(
            step, args=message, producer=producer, ignore_result=True, declare=[], **options
        )


def _messages(subjects: Sequence[int], together: int) -> list[tuple[int, ...]]:
    return [tuple(subjects[n : n + together]) for n in range(0, len(subjects), together)]


def _reason(error: BaseException) -> str:
    """Returns the innermost cause in one line: kombu's own message hides it."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error}".splitlines()[0]
