"""`evoq dashboard`: pages, `/api` and `/ws` of the runs in a ledger, and their part in others."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Annotated

import typer

from app.adapters.sandbox.lazy import LazySandbox
from app.bootstrap.settings import own_settings
from app.cli.doctor import quick_findings
from app.cli.interruption import Interruption
from app.cli.options import Debug, Json
from app.cli.output import Screen
from app.client.notes import CommandError
from app.client.queue import with_queue
from app.client.target import Target, find_target, open_ledger
from app.config.settings import Settings
from app.dashboard.server import CannotListen, Place, serving
from app.engine.context import Context
from app.ports.protocols import Sandbox

POLL_SECONDS = 0.25

Host = Annotated[
    str,
    typer.Option("--host", metavar="ADDRESS", help="Address to listen on."),
]
Port = Annotated[
    int | None,
    typer.Option(
        "--port", min=0, max=65535, help="Port; 8642 by default, or a free one if it is taken."
    ),
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-host", metavar="NAME", help="A name that browsers reach it by; may be repeated."
    ),
]
Protect = Annotated[
    bool,
    typer.Option("--protect", help="Ask for the token before anything is shown, too."),
]


def dashboard(
    host: Host = "127.0.0.1",
    port: Port = None,
    allow_host: AllowHost = None,
    protect: Protect = False,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001  read by `status_of`
) -> None:
    """Shows the runs in a browser, live, until Ctrl-C; programs read the same at /api and /ws.

    It listens on the loopback interface only, unless --host says otherwise; then even reading needs
    the token that is part of the printed address. Whatever changes a run always needs it.

    Examples:
      evoq dashboard
      evoq dashboard --port 9000 --protect
      evoq dashboard --host 0.0.0.0 --allow-host evoq.example.org
    """
    screen, target = Screen(json=as_json), find_target()
    if not target.used:
        raise LookupError(
            f"there are no runs here: {target.home.absolute()} does not exist. Change to the "
            f"folder a run was started in, set EVOQ_HOME, or start a run with `evoq run PROBLEM "
            f"--dashboard`"
        )
    with (
        Interruption() as interruption,
        open_ledger(target) as ledger,
        served(
            with_queue(ledger),
            ledger.redis_url,
            screen,
            host=host,
            port=port,
            hosts=tuple(allow_host or ()),
            protect=protect,
        ) as address,
    ):
        screen.answer({"address": address})
        screen.say("Ctrl-C ends it; the runs go on")
        while not interruption.requested:
            ledger.check()
            time.sleep(POLL_SECONDS)
    screen.say("the dashboard has ended")


@contextmanager
def served(
    ctx: Context,
    redis_url: str,
    screen: Screen,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    hosts: tuple[str, ...] = (),
    protect: bool = False,
) -> Iterator[str]:
    """Serves a dashboard from a thread during the block, and says where.

    Args:
      ctx: Ledger, queue and problems.
      redis_url: The queue's address.
      screen: Shows the address.
      host: What it listens on.
      port: None takes the default one, or a free one.
      hosts: Names that it is reached by, beside those of `EVOQ_DASHBOARD_HOSTS`.
      protect: Whether reading needs the token on the loopback interface, too.

    Raises:
      CommandError: It cannot listen there.
    """
    settings = own_settings()
    token = settings.dashboard_token
    named = tuple(name for name in settings.dashboard_hosts.split(",") if name.strip())
    place = Place(
        host,
        port,
        token.get_secret_value() if token else None,
        (*hosts, *named),
        protect,
    )
    try:
        target = find_target()
        home, findings = target.home, partial(quick_findings, target)
        with (
            _sandbox(target, settings) as sandbox,
            serving(
                ctx, redis_url, place, home=home, installation=findings, sandbox=sandbox
            ) as dashboard,
        ):
            address = dashboard.address
            # A token that the environment gives stays out of the address, and so out of logs.
            if token:
                address = f"{address.partition('?')[0]} (its token is EVOQ_DASHBOARD_TOKEN)"
            screen.say(f"dashboard: {address}")
            yield dashboard.address
    except CannotListen as error:
        raise CommandError(str(error)) from error


@contextmanager
def _sandbox(target: Target, settings: Settings) -> Iterator[Sandbox | None]:
    """Yields where programs move against a person, opened at the first move.

    None in a deployment: its dashboard holds the ledger's password, and is no place for programs.
    """
    if target.deployed:
        yield None
        return
    with closing(LazySandbox(settings.sandbox)) as sandbox:
        yield sandbox
