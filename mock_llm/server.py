"""The HTTP server of the simulation: aiohttp's parser and writer around one endpoint."""

import asyncio
import json
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from mock_llm import embeddings
from mock_llm.chat_request import ErrorReply
from mock_llm.endpoint import EVENTS, JSON, Endpoint, Simulation
from mock_llm.engine import Batch
from mock_llm.event_stream import NOTICE

LARGEST_BODY_BYTES = 64 * 2**20
_PATHS = ("/v1/chat/completions", "/v1/embeddings", "/v1/models", "/health", "/metrics")
BACKLOG = 2048
"""Hundreds of clients connect at once; the kernel's own limit may be lower."""


_SERVER = "evoq-mock-llm (simulation)"


class _Answer(web.Response):
    """A response that is marked as a simulation's."""

    def __init__(self, body: bytes, status: int = 200, kind: str = JSON) -> None:
        super().__init__(
            body=body, status=status, headers={"Server": _SERVER, "Content-Type": kind}
        )


@dataclass(frozen=True, slots=True)
class _Service:
    """The paths of the server, each with its method."""

    endpoint: Endpoint

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answers a request; cancelled where its client goes away."""
        try:
            return await self._answered(request)
        except web.HTTPException as refused:
            # The body is too large.
            reason = f"{request.method} {request.path}: {refused.text}"
            return _refusal(ErrorReply(refused.status, reason))

    async def _answered(self, request: web.BaseRequest) -> web.StreamResponse:
        match request.method, request.path:
            case "POST", "/v1/chat/completions":
                return await self._chat(request)
            case "POST", "/v1/embeddings":
                return self._embeddings(await request.read())
            case "GET", "/v1/models":
                return _json(self.endpoint.models())
            case "GET", "/health":
                return _json({"status": "ok", "notice": NOTICE})
            case "GET", "/metrics":
                return self._metrics()
            case method, path if path in _PATHS:
                return _refusal(ErrorReply(405, f"{method} {path}: Method Not Allowed"))
            case method, path:
                return _refusal(ErrorReply(404, f"{method} {path}: Not Found"))

    async def _chat(self, request: web.BaseRequest) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Server": _SERVER, "Content-Type": EVENTS})

        async def send(events: bytes) -> None:
            if not stream.prepared:
                await stream.prepare(request)
            await stream.write(events)

        answer = await self.endpoint.chat(await request.read(), send)
        if stream.prepared:
            await stream.write_eof(answer.body)
            return stream
        response = _Answer(answer.body, answer.status, answer.kind)
        if answer.retry_after_seconds is not None:
            response.headers["Retry-After"] = f"{answer.retry_after_seconds:g}"
        return response

    def _embeddings(self, body: bytes) -> _Answer:
        answer = embeddings.answer(body)
        return _refusal(answer) if isinstance(answer, ErrorReply) else _json(answer)

    def _metrics(self) -> _Answer:
        text = self.endpoint.metrics.text(self.endpoint.batch, self.endpoint.simulation.model)
        return _Answer(text.encode(), kind="text/plain; version=0.0.4; charset=utf-8")


def _json(document: object) -> _Answer:
    return _Answer(json.dumps(document).encode())


def _refusal(error: ErrorReply) -> _Answer:
    return _Answer(json.dumps(error.document()).encode(), error.status)


def listening(host: str, port: int) -> socket.socket:
    """Returns a socket that listens.

    Args:
      host: A name or an address.
      port: 0 takes any free port.

    Raises:
      OSError: The port is taken, or the address is not of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    listener.setblocking(False)
    return listener


async def serve(
    simulation: Simulation, listener: socket.socket, until: Callable[[], bool]
) -> Endpoint:
    """Serves until `until()` holds, and closes the socket.

    Args:
      simulation: The parameters of the simulation.
      listener: The socket that `listening` returned.
      until: Called twenty times a second.

    Returns:
      The endpoint, with its metrics.
    """
    loop = asyncio.get_running_loop()
    endpoint = Endpoint(simulation, Batch(simulation.speed, loop))
    service = _Service(endpoint)

    def limited(
        message: Any, payload: Any, protocol: Any, writer: Any, task: "asyncio.Task[None]"
    ) -> web.BaseRequest:
        most = LARGEST_BODY_BYTES
        return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=most)

    # A log line a request would be the bottleneck; without cancellation the sequence of a client
    # that is gone would stay in the batch.
    protocol = web.Server(
        service.answer, request_factory=limited, handler_cancellation=True, access_log=None
    )
    server = await loop.create_server(protocol, sock=listener, backlog=BACKLOG)
    try:
        while not until():
            await asyncio.sleep(0.05)
    finally:
        server.close()
        # A limit of 0 would wait for every answer.
        await protocol.shutdown(0.01)
    return endpoint
