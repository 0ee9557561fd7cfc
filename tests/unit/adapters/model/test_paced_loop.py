"""The loop that reads streams of events in blocks, against a server on this machine."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from app.adapters.model.providers.paced_loop import AT_ONCE_SECONDS, PacedLoop

STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
WHOLE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n"
PIECES, EVERY = 60, 0.01

Write = Callable[[asyncio.StreamWriter], Awaitable[None]]


class Received(asyncio.Protocol):
    """The data that arrive, and when."""

    def __init__(self) -> None:
        self.at: list[tuple[float, bytes]] = []
        self.lost = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.at.append((asyncio.get_running_loop().time(), data))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)

    @property
    def data(self) -> bytes:
        return b"".join(data for _, data in self.at)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=PacedLoop) as runner:
        return runner.run(work)


async def received(write: Write) -> Received:
    """Returns what a client receives of a server that writes, until it closes."""

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await write(writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    transport, protocol = await asyncio.get_running_loop().create_connection(
        Received, "127.0.0.1", port
    )
    assert isinstance(protocol, Received)
    await protocol.lost
    transport.close()
    server.close()
    return protocol


def pieces(head: bytes, end: bytes = b"") -> Write:
    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        for n in range(PIECES):
            await asyncio.sleep(EVERY)
            writer.write(b"data: %d\n\n" % n)
        writer.write(end)

    return write


def test_a_stream_of_events_is_read_in_blocks_and_whole() -> None:
    read = run(received(pieces(STREAM)))

    assert read.data == STREAM + b"".join(b"data: %d\n\n" % n for n in range(PIECES))
    assert len(read.at) < PIECES / 2, [len(data) for _, data in read.at]


def test_an_answer_in_one_piece_is_read_as_it_comes() -> None:
    read = run(received(pieces(WHOLE)))

    assert len(read.at) > PIECES / 2
    assert b"data: 59" in read.data


def test_the_end_of_a_stream_is_read_at_once_and_the_connection_used_again() -> None:
    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM)
        await asyncio.sleep(3 * AT_ONCE_SECONDS)
        writer.write(b"data: [DONE]\n\n")
        await asyncio.sleep(0.01)
        writer.write(WHOLE)
        # A pause would put both together with the piece that follows.
        await asyncio.sleep(3 * AT_ONCE_SECONDS)
        writer.write(b"{}")

    read = run(received(write))

    assert [data for _, data in read.at] == [STREAM, b"data: [DONE]\n\n", WHOLE, b"{}"]


def test_data_are_handed_on_before_the_loss_of_their_connection() -> None:
    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM)
        await asyncio.sleep(2 * AT_ONCE_SECONDS)
        writer.write(b"data: 1\n\n")

    assert run(received(write)).data == STREAM + b"data: 1\n\n"


def test_a_connection_can_be_closed_while_it_is_left_alone() -> None:
    async def close() -> int:
        async def write(writer: asyncio.StreamWriter) -> None:
            writer.write(STREAM)
            while True:
                await asyncio.sleep(EVERY)
                writer.write(b"data: 1\n\n")
                await writer.drain()

        left = asyncio.Event()

        async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await write(writer)
            except ConnectionError:
                left.set()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        transport, protocol = await asyncio.get_running_loop().create_connection(
            Received, "127.0.0.1", port
        )
        assert isinstance(protocol, Received)
        await asyncio.sleep(4 * AT_ONCE_SECONDS)
        transport.abort()
        await protocol.lost
        before = len(protocol.at)
        await asyncio.wait_for(left.wait(), 60)
        server.close()
        return len(protocol.at) - before

    assert run(close()) == 0
