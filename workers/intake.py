"""The intake of a worker process: the queues that it consumes, which are those it can serve now.

Messages that a worker takes and cannot serve are lost until `reap` enqueues their steps again.
"""

import logging
from collections.abc import Collection, Mapping
from typing import Any

from app.domain.search.fleets import kind_of

log = logging.getLogger(__name__)

_NEEDING = {"ledger": ("gpu", "cpu", "control"), "sandbox": ("cpu",)}
"""The kinds of queues that cannot be served without it."""


class Intake:
    """Stops and resumes consuming.

    Attributes:
      lacking: What does not work, each with the reason; empty while the worker can work.
    """

    def __init__(self) -> None:
        """Consumes nothing yet."""
        self.lacking: Mapping[str, str] = {}
        self._consumer: Any = None
        self._queues: frozenset[str] = frozenset()

    def opened(self, consumer: Any) -> None:
        """Begins with all queues of a Celery consumer, which has just connected."""
        self._consumer = consumer
        self._queues = frozenset(consumer.app.amqp.queues.consume_from)
        if self.lacking:
            self._adjust()

    def report(self, lacking: Mapping[str, str]) -> None:
        """Takes in what does not work now; called every few seconds, by any thread."""
        before, self.lacking = self.lacking, lacking
        for what in lacking.keys() - before.keys():
            queues = ", ".join(_NEEDING[what])
            log.error("%s: taking no step of the queues %s: %s", what, queues, lacking[what])
        for what in before.keys() - lacking.keys():
            log.warning("%s: works again", what)
        if lacking or before:
            self._adjust()

    def _adjust(self) -> None:
        if self._consumer is not None:
            stopped = {kind for what in self.lacking for kind in _NEEDING[what]}
            wanted = {queue for queue in self._queues if kind_of(queue) not in stopped}
            self._consumer.call_soon(self._consume, wanted)

    def _consume(self, wanted: Collection[str]) -> None:
        """Consumes these queues and no other; called in the consumer's own loop."""
        consumed = set(self._consumer.app.amqp.queues.consume_from)
        for queue in sorted(consumed - set(wanted)):
            self._consumer.cancel_task_queue(queue)
        for queue in sorted(set(wanted) - consumed):
            self._consumer.add_task_queue(queue)


intake = Intake()
"""That of this process."""
