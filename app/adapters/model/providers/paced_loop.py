"""An event loop that reads streams of events in blocks, and not at each token.

An endpoint sends each token by itself.  Waking for it takes ten times as long as reading it, and is
most of the processor time of a reply.  A connection that carries a stream is therefore left alone
after each block, for a small part of the stream's time so far; the kernel keeps what arrives
meanwhile.  The end of a stream, and any other connection, is read at once.
"""

import asyncio
from collections.abc import Callable
from typing import Any

AT_ONCE_SECONDS = 0.05
"""A stream that is this young is read at once: many are over by then."""
PART = 0.05
"""Of the time of a stream, for which its connection is left alone."""
LONGEST_SECONDS = 0.25
"""For which a connection is left alone."""
_HEAD, _STREAM = b"HTTP/1.", b"text/event-stream"
_ENDS = (b"[DONE]", b"\r\n0\r\n\r\n")


class PacedLoop(asyncio.SelectorEventLoop):
    """An event loop whose connections are `PacedProtocol`s."""

    # The overloads of the base class differ in their sockets alone.
    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.Protocol], *args: Any, **options: Any
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """See `asyncio.AbstractEventLoop.create_connection`."""
        transport, paced = await super().create_connection(
            lambda: PacedProtocol(protocol_factory(), self), *args, **options
        )
        return transport, paced.inner


class PacedProtocol(asyncio.Protocol):
    """A protocol that hands everything on: the data of a stream of events after a pause."""

    def __init__(self, inner: asyncio.Protocol, loop: asyncio.AbstractEventLoop) -> None:
        self.inner = inner
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._began: float | None = None
        self._held = b""
        self._pause: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if data.startswith(_HEAD):
            self._began = self._loop.time() if _STREAM in data else None
        elif self._began is not None and any(end in data for end in _ENDS):
            self._began = None
        self._held += data
        seconds = 0.0 if self._began is None else self._loop.time() - self._began
        if seconds <= AT_ONCE_SECONDS or self._transport is None:
            self._hand_on()
        elif self._pause is None:
            self._transport.pause_reading()
            pause = min(LONGEST_SECONDS, AT_ONCE_SECONDS + PART * seconds)
            self._pause = self._loop.call_later(pause, self._hand_on)

    def eof_received(self) -> bool | None:
        self._hand_on()
        return self.inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._hand_on()
        self.inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.inner.resume_writing()

    def _hand_on(self) -> None:
        """Hands on what is held, and reads on."""
        held, self._held = self._held, b""
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
            if self._transport is not None:
                self._transport.resume_reading()
        if held:
            self.inner.data_received(held)
