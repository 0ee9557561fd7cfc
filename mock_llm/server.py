"""The HTTP server of the simulation: Tornado around one endpoint."""

import asyncio
import json
import socket
from collections.abc import Callable
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.web import Application, RequestHandler

from mock_llm import embeddings
from mock_llm.chat_request import ErrorReply
from mock_llm.endpoint import NOTICE, Endpoint, Simulation
from mock_llm.engine import Batch

LARGEST_BODY_BYTES = 64 * 2**20
BACKLOG = 2048  # hundreds of clients connect at once; the kernel's own limit may be lower


class _Handler(RequestHandler):
    """Shared by all paths: the endpoint, and a header that marks the simulation."""

    endpoint: Endpoint

    def initialize(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint

    def set_default_headers(self) -> None:
        self.set_header("Server", "evoq-mock-llm (simulation)")
        self.set_header("Content-Type", "application/json")

    def compute_etag(self) -> None:
        """Returns no tag: no answer is cached."""

    def write_error(self, status_code: int, **_: Any) -> None:
        error = ErrorReply(
            status_code, f"{self.request.method} {self.request.path}: {self._reason}"
        )
        self.finish(json.dumps(error.document()))


class _Chat(_Handler):
    _task: "asyncio.Task[Any] | None" = None

    async def post(self) -> None:
        self._task = asyncio.ensure_future(self.endpoint.chat(self.request.body))
        try:
            answer = await self._task
        except asyncio.CancelledError:  # the client is gone: `on_connection_close`
            return
        self.set_status(answer.status)
        if answer.retry_after_seconds is not None:
            self.set_header("Retry-After", f"{answer.retry_after_seconds:g}")
        await self.finish(answer.body)

    def on_connection_close(self) -> None:
        if self._task is not None:
            self._task.cancel()


class _Embeddings(_Handler):
    def post(self) -> None:
        answer = embeddings.answer(self.request.body)
        if isinstance(answer, ErrorReply):
            self.set_status(answer.status)
            answer = answer.document()
        self.finish(json.dumps(answer))


class _Models(_Handler):
    def get(self) -> None:
        self.finish(json.dumps(self.endpoint.models()))


class _Health(_Handler):
    def get(self) -> None:
        self.finish(json.dumps({"status": "ok", "notice": NOTICE}))


class _Metrics(_Handler):
    def get(self) -> None:
        self.set_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        model = self.endpoint.simulation.model
        self.finish(self.endpoint.metrics.text(self.endpoint.batch, model))


class _Absent(_Handler):
    def prepare(self) -> None:
        self.send_error(404)


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
    arguments = {"endpoint": endpoint}
    application = Application(
        [
            ("/v1/chat/completions", _Chat, arguments),
            ("/v1/embeddings", _Embeddings, arguments),
            ("/v1/models", _Models, arguments),
            ("/health", _Health, arguments),
            ("/metrics", _Metrics, arguments),
            (".*", _Absent, arguments),
        ],
        log_function=lambda handler: None,  # noqa: ARG005  a log line per request would be the bottleneck
    )
    server = HTTPServer(application, max_body_size=LARGEST_BODY_BYTES)
    server.add_socket(listener)
    try:
        while not until():
            await asyncio.sleep(0.05)
    finally:
        server.stop()
        await server.close_all_connections()
    return endpoint
