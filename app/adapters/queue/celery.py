"""Rings through Celery: a message carries the name of a step and one integer, or a few."""

import logging
from collections.abc import Sequence
from typing import Any

from celery import Celery
from kombu.exceptions import KombuError

from app.ports.protocols import Step

ATTEMPTS = 2
"""The first meets the connection that a Redis restart broke; the second has a new one."""

log = logging.getLogger(__name__)


class CeleryExecutor:
    """Publishes to the broker of a Celery application.

    A broker that cannot be reached costs about a second and one line in the log, and raises
    nothing: `reap` rings again for everything that was not heard.
    """

    def __init__(self, app: Celery):
        """Connects to nothing; the application's pool of producers does, at the first bell."""
        self._app = app

    def submit(self, step: Step, subjects: Sequence[int], *, together: int = 1) -> None:
        """Rings once for each subject, in order; many messages are sent as one batch."""
        if not subjects:
            return
        bells = _batched(subjects, together)
        for left in reversed(range(ATTEMPTS)):
            try:
                self._publish(step, bells)
                return
            except KombuError as error:
                if not left:
                    log.warning(
                        "%s %s: %d bells not rung, reap will: %s",
                        step,
                        subjects[0],
                        len(subjects),
                        _reason(error),
                    )

    def _publish(self, step: Step, bells: Sequence[tuple[int, ...]]) -> None:
        with self._app.producer_or_acquire() as producer:
            if len(bells) == 1:
                self._send(step, bells[0], producer)
                return
            with producer.batch():
                for bell in bells:
                    self._send(step, bell, producer)

    def _send(self, step: Step, bell: tuple[int, ...], producer: Any) -> None:
        self._app.send_task(step, args=bell, producer=producer, ignore_result=True)


def _batched(subjects: Sequence[int], together: int) -> list[tuple[int, ...]]:
    return [tuple(subjects[n : n + together]) for n in range(0, len(subjects), together)]


def _reason(error: BaseException) -> str:
    """Returns the innermost cause in one line: kombu's own message hides it."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error}".splitlines()[0]
