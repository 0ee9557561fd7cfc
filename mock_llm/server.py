"""The socket of the simulation: Tornado's HTTP server around one endpoint."""

import asyncio
import json
import socket
from collections.abc import Callable
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.web import Application, RequestHandler

from mock_llm.batch import Batch
from mock_llm.endpoint import Endpoint, Simulation
from mock_llm.measures import NOTICE
from mock_llm.reading import Refusal

LARGEST_BODY_BYTES = 64 * 2**20
BACKLOG = 2048  # hundreds of clients come at once; the kernel's own bound may be lower


class _Handler(RequestHandler):
    """What every path shares: the endpoint, and a header that says what this is."""

    endpoint: Endpoint

    def initialize(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint

    def set_default_headers(self) -> None:
        self.set_header("Server", "evoq-mock-llm (simulation)")
        self.set_header("Content-Type", "application/json")

    def compute_etag(self) -> None:
        """Returns none: nothing here is cached."""

    def write_error(self, status_code: int, **_: Any) -> None:
        said = Refusal(status_code, f"{self.request.method} {self.request.path}: {self._reason}")
        self.finish(json.dumps(said.document()))


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
        self.finish(self.endpoint.measures.text(self.endpoint.batch, model))


class _Absent(_Handler):
    def prepare(self) -> None:
        self.send_error(404)


def listening(host: str, port: int) -> socket.socket:
    """Returns a socket that listens.

    Args:
      host: A name or an address.
      port: 0 takes any that is free.

    Raises:
      OSError: The port is taken, or the host is not of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    opened = socket.create_server((host, port), family=family, backlog=BACKLOG)
    opened.setblocking(False)
    return opened


async def serve(
    simulation: Simulation, listener: socket.socket, until: Callable[[], bool]
) -> Endpoint:
    """Serves until it is told to stop, and closes the socket.

    Args:
      simulation: What is simulated.
      listener: As `listening` returns it.
      until: Asked twenty times a second.

    Returns:
      The endpoint, with what it measured.
    """
    loop = asyncio.get_running_loop()
    endpoint = Endpoint(simulation, Batch(simulation.speed, loop))
    told = {"endpoint": endpoint}
    application = Application(
        [
            ("/v1/chat/completions", _Chat, told),
            ("/v1/models", _Models, told),
            ("/health", _Health, told),
            ("/metrics", _Metrics, told),
            (".*", _Absent, told),
        ],
        log_function=lambda handler: None,  # noqa: ARG005  a line a request would be the bottleneck
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
