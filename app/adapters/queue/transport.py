"""kombu's Redis transport, hardened against a Redis that goes away and comes back.

Stock kombu 5.7 ends a worker with an `AttributeError` in two or three of twenty Redis restarts:
a channel whose connection was already collected is asked to acknowledge a task that outlived the
reconnect, or to put messages back at closing.  It also builds a new client for every operation,
which is an eighth of a worker's CPU time, and keeps a copy of every message under way in Redis,
which is a third.  Measurements: `docs/decisions/celery-delivery.md`.
"""
# mypy: disallow-untyped-calls=False

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import kombu.transport
import redis
from kombu.transport import redis as stock
from kombu.transport import virtual

ALIASES = ("redis", "rediss")


class QoS(virtual.QoS):
    """Unacknowledged messages of one channel, in this process's memory and nowhere else.

    They bound what is prefetched, and are put back by a worker that ends in order.  What a killed
    worker held is lost here and rung for again by `reap`, like every other lost bell.
    """

    def restore_unacked(self) -> None:
        """Puts undelivered messages back; not when the connection broke.

        Their tasks are still running here, and would run a second time.
        """
        if self.channel.orphaned:
            self._delivered.clear()
            return
        super().restore_unacked()


class Channel(stock.Channel):
    """A channel that outlives its connection, with one client instead of one an operation."""

    ack_emulation = False

    def __init__(self, *args: Any, **kwargs: Any):
        """Remembers how to connect, for when the connection is gone."""
        self._kept: tuple[Any, Any] | None = None
        self._late: Any = None
        super().__init__(*args, **kwargs)
        self.QoS = QoS  # type: ignore[assignment]  # the stubs do not know `ack_emulation`
        self._parameters = self._connparams()

    @property
    def orphaned(self) -> bool:
        """Whether the connection this channel belongs to has been collected."""
        return self.connection is None or self.connection.client is None

    @contextmanager
    def conn_or_acquire(self, client: Any = None) -> Iterator[Any]:
        """Yields a client: the given one, the kept one, or one for a connection that is gone."""
        if client:
            yield client
        elif self.orphaned:
            if self._late is None:
                pool = redis.ConnectionPool(**self._parameters)
                self._late = self.Client(connection_pool=pool)
            yield self._late
        else:
            pool = self.pool
            if self._kept is None or self._kept[0] is not pool:
                self._kept = (pool, self._create_client())
            yield self._kept[1]


class Transport(stock.Transport):
    """The Redis transport with the channel above."""

    Channel = Channel


def install() -> None:
    """Makes this transport the one of `redis://` and `rediss://`.

    Under the usual names, because Flower tells brokers apart by the scheme of the URL.
    """
    for alias in ALIASES:
        kombu.transport.TRANSPORT_ALIASES[alias] = f"{__name__}:{Transport.__name__}"
