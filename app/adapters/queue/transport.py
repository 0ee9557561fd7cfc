"""kombu's Redis transport, hardened against restarts of Redis.

Stock kombu 5.7 ends a worker with an `AttributeError` in two or three of twenty Redis restarts:
a channel whose connection is already garbage-collected has to acknowledge a task that outlived the
reconnect, or to put messages back when it closes.  It also builds a new client for every operation,
which takes an eighth of a worker's CPU time, and copies every message under way in Redis, which
takes a third.  Measurements: `docs/decisions/celery-delivery.md`.
"""
# mypy: disallow-untyped-calls=False

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import kombu.transport
import redis
from kombu.transport import redis as stock
from kombu.transport import virtual
from redis.exceptions import RedisError

ALIASES = ("redis", "rediss")

POLL_SECONDS = 3
"""After so long Redis answers a worker that waits for a message that there is none, and the worker
asks again; kombu's own second wakes an idle worker and its Redis three times as often."""


class MemoryQoS(virtual.QoS):
    """Unacknowledged messages of one channel, in this process's memory and nowhere else.

    They limit the prefetching, and a worker that ends in order puts them back.  The messages of a
    killed worker are lost here, and `reap` enqueues them again like every other lost message.
    """

    def restore_unacked(self) -> None:
        """Puts undelivered messages back; not when the connection broke.

        Their tasks are still running here, and would run a second time.
        """
        if self.channel.orphaned:
            self._delivered.clear()
            return
        super().restore_unacked()


class ResilientChannel(stock.Channel):
    """A channel that outlives its connection, with one client instead of one per operation."""

    ack_emulation = False

    def __init__(self, *args: Any, **kwargs: Any):
        """Keeps the connection's parameters for the time after its end."""
        self._shared: tuple[Any, Any] | None = None
        self._orphan: Any = None
        super().__init__(*args, **kwargs)
        self.QoS = MemoryQoS  # type: ignore[assignment]  # the stubs do not know `ack_emulation`
        self._parameters = self._connparams()

    @property
    def orphaned(self) -> bool:
        """Whether the connection of this channel has been garbage-collected."""
        return self.connection is None or self.connection.client is None

    @contextmanager
    def conn_or_acquire(self, client: Any = None) -> Iterator[Any]:
        """Yields the given client, the channel's own, or a new one if the connection is gone."""
        if client:
            yield client
        elif self.orphaned:
            if self._orphan is None:
                pool = redis.ConnectionPool(**self._parameters)
                self._orphan = self.Client(connection_pool=pool)
            yield self._orphan
        else:
            pool = self.pool
            if self._shared is None or self._shared[0] is not pool:
                self._shared = (pool, self._create_client())
            yield self._shared[1]

    def close(self) -> None:
        """Closes the channel, and does not wait for the next answer to its question for messages.

        Stock kombu reads that answer first, for up to `POLL_SECONDS`.  Redis gives it at once if it
        is asked to; a message that it has given already is read and put back as before.
        """
        if self._in_poll and not self.orphaned:
            greeting = getattr(self._in_poll, "handshake_metadata", None) or {}
            number = greeting.get(b"id") or greeting.get("id")
            if number is not None:
                with suppress(RedisError, OSError), self.conn_or_acquire() as client:
                    client.client_unblock(number)
        super().close()


class ResilientTransport(stock.Transport):
    """The Redis transport with `ResilientChannel`."""

    Channel = ResilientChannel
    brpop_timeout = POLL_SECONDS


def install() -> None:
    """Makes this transport that of `redis://` and `rediss://`.

    It takes the usual names, because Flower recognises brokers by the scheme of the URL.
    """
    for alias in ALIASES:
        kombu.transport.TRANSPORT_ALIASES[alias] = f"{__name__}:{ResilientTransport.__name__}"
