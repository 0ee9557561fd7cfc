"""`evoq up`: keeps the embedded stack running for several runs."""

import os
import secrets
import time
from contextlib import ExitStack
from typing import Annotated

import typer

from app.adapters.store.schema import upgrade
from app.cli.dashboard import served
from app.cli.interruption import Interruption
from app.cli.options import Debug, Json
from app.cli.output import Screen
from app.client.local_state import up_lock, work_lock
from app.client.queue import with_queue
from app.client.target import find_target, open_ledger
from app.config.layers import UsageError
from app.embedded.stack import EmbeddedStack
from app.embedded.worker_set import Flower

POLL_SECONDS = 0.5
FLOWER_USER = "evoq"


def up(
    flower: Annotated[
        bool, typer.Option("--flower", help="Show workers and queues on a local page.")
    ] = False,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Flower's port.")] = 5555,
    dashboard: Annotated[
        bool, typer.Option(help="Show the runs in a browser, on this machine alone.")
    ] = True,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001  read by `status_of`
) -> None:
    """Keeps the embedded stack running for several runs, until Ctrl-C.

    Examples:
      evoq up
      evoq up --flower --port 5555
      evoq up --no-dashboard
    """
    screen, target = Screen(json=as_json), find_target()
    if target.deployed:
        raise UsageError(
            "a deployment is configured",
            where="EVOQ_DATABASE_URL",
            remedy="Unset EVOQ_DATABASE_URL and EVOQ_REDIS_URL to keep an embedded stack.",
        )
    page = Flower(port, FLOWER_USER, secrets.token_urlsafe(12)) if flower else None
    with ExitStack() as stack:
        stack.enter_context(up_lock(target.home))
        stack.enter_context(work_lock(target.home))
        interruption = stack.enter_context(Interruption())
        embedded = EmbeddedStack(target.home, upgrade, environment=os.environ, flower=page)
        stack.callback(embedded.stop)
        embedded.start()
        screen.say(f"the stack of {target.home} is up; `evoq run` in this folder uses it")
        login = None
        if page is not None:
            screen.say(f"Flower: http://127.0.0.1:{port} (user {page.user}, {page.password})")
            login = {"port": port, "user": page.user, "password": page.password}
        address = None
        if dashboard:
            ledger = stack.enter_context(open_ledger(target))
            address = stack.enter_context(served(with_queue(ledger), ledger.redis_url, screen))
        answer = {"home": str(target.home.absolute()), "flower": login, "dashboard": address}
        screen.answer(answer)
        screen.say("Ctrl-C ends it")
        while not interruption.requested:
            embedded.check()
            time.sleep(POLL_SECONDS)
    screen.say("the stack has ended")
