"""The application of the dashboard, and the server that runs it: in a thread, or alone."""

import asyncio
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from app.dashboard.access import Access, AccessMiddleware, loopback
from app.dashboard.api import add_errors, add_metrics, add_socket, routes
from app.dashboard.assets import AssetsMiddleware, warm_up
from app.dashboard.control import Control
from app.dashboard.exhibitions import Exhibitions
from app.dashboard.reads import RunReader
from app.dashboard.system import Installation
from app.dashboard.tail import Tails
from app.engine.context import Context
from app.ports.protocols import Sandbox
from app.reports.waiting import watched_queue

PORT = 8642
_START_SECONDS = 60.0
_STOP_SECONDS = 5.0
_TICK_SECONDS = 0.5
"""How often the server looks whether it is to end, and what time it is."""


class CannotListen(Exception):
    """The address is not free, or not of this machine; the message names it and the remedy."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a dashboard is reached, and by whom.

    Attributes:
      port: 0 takes a free one; None the default one, or a free one where that is taken.
      token: None makes a random one.
      protect: Whether reading needs the token on the loopback interface, too.
    """

    host: str = "127.0.0.1"
    port: int | None = None
    token: str | None = None
    hosts: tuple[str, ...] = ()
    protect: bool = False

    def access(self) -> Access:
        """Returns the rules of access; away from the loopback interface reading is protected."""
        names = {name.strip().lower() for name in (*self.hosts, self.host) if name.strip()}
        return Access(
            self.token or secrets.token_urlsafe(24),
            frozenset(names),
            self.protect or not loopback(self.host),
        )


def application(
    ctx: Context,
    redis_url: str,
    access: Access,
    *,
    pages: bool = True,
    remote: bool = False,
    home: Path = Path(),
    installation: Installation = list,
    sandbox: Sandbox | None = None,
) -> FastAPI:
    """Returns the whole application.

    Args:
      ctx: Ledger, queue and problems.
      redis_url: The queue's address.
      access: Who may read and change.
      pages: False leaves out the pages: they belong to one application a process.
      remote: Whether browsers of other machines load the pages' scripts and styles.
      home: The folder whose disk is shown.
      installation: Returns what `evoq doctor` finds here.
      sandbox: Where programs move against a person; None where the dashboard runs none.
    """
    app = FastAPI(
        title="Evoqueue",
        version=version("evoqueue"),
        # The page of the documentation loads scripts from another host.
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
    )
    queue = watched_queue(redis_url)
    reader = RunReader(ctx.store, redis_url, ctx.problem, queue, home, installation)
    tails, control = Tails(ctx.store), Control(ctx)
    exhibitions = Exhibitions(reader, sandbox)
    app.include_router(routes(reader, tails, control, exhibitions))
    add_metrics(app, reader)
    add_socket(app, reader, tails)
    add_errors(app)
    if pages:
        from app.dashboard.pages import add_pages

        add_pages(app, reader, tails, control, exhibitions)
        app.add_middleware(AssetsMiddleware, compressed=remote)
    app.add_middleware(AccessMiddleware, access=access)
    return app


class _Server(uvicorn.Server):
    """A server that wakes twice a second while nobody asks, where uvicorn's own does ten times."""

    async def main_loop(self) -> None:
        """Runs until the server is asked to end."""
        while not await self.on_tick(0):
            await asyncio.sleep(_TICK_SECONDS)


@dataclass(frozen=True, slots=True)
class Serving:
    """A dashboard that answers.

    Attributes:
      address: For a browser; holds the token.
    """

    address: str
    server: uvicorn.Server
    thread: threading.Thread


@contextmanager
def serving(
    ctx: Context,
    redis_url: str,
    place: Place,
    *,
    pages: bool = True,
    home: Path = Path(),
    installation: Installation = list,
    sandbox: Sandbox | None = None,
) -> Iterator[Serving]:
    """Serves the dashboard from a thread of this process during the block; see `application`.

    Raises:
      CannotListen: The address cannot be listened on.
    """
    access = place.access()
    listener = _listen(place)
    port = listener.getsockname()[1]
    app = application(
        ctx,
        redis_url,
        access,
        pages=pages,
        remote=not loopback(place.host),
        home=home,
        installation=installation,
        sandbox=sandbox,
    )
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        ws_max_size=1 << 20,
        # Compression would cost more than all other work on a frame.
        ws_per_message_deflate=False,
    )
    server = _Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), name="dashboard", daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not server.started:
            if not thread.is_alive() or time.monotonic() > deadline:
                raise CannotListen("the dashboard did not start; the log says why")
            time.sleep(0.02)
        if pages:
            warm_up(_reached(place.host), port, access.token)
        yield Serving(f"http://{_shown(place.host)}:{port}/?token={access.token}", server, thread)
    finally:
        server.should_exit = True
        thread.join(_STOP_SECONDS)
        server.force_exit = True
        thread.join(_STOP_SECONDS)
        listener.close()


def _listen(place: Place) -> socket.socket:
    if place.port is None:
        try:
            return _bind(place.host, PORT)
        except CannotListen:
            return _bind(place.host, 0)
    return _bind(place.host, place.port)


def _bind(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise CannotListen(
            f"the dashboard cannot listen on {host}:{port} ({error.strerror or error}): choose "
            f"another --port or --host"
        ) from error
    return listener


def _shown(host: str) -> str:
    """Returns a name for a browser of this machine."""
    reached = _reached(host)
    return f"[{reached}]" if ":" in reached else reached


def _reached(host: str) -> str:
    """Returns an address at which this machine reaches a server that is bound to `host`."""
    return "127.0.0.1" if host in ("0.0.0.0", "::") else host
