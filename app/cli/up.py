"""`evoq up`: the embedded stack, kept for several runs."""

import os
import secrets
import time
from contextlib import ExitStack

from app.adapters.store.schema import upgrade
from app.cli.interruption import Interruption
from app.cli.local_state import at_work, kept_up
from app.cli.screen import Screen
from app.cli.target import place
from app.config.layers import UsageError
from app.embedded.stack import EmbeddedStack
from app.embedded.worker_set import Flower

LOOK_SECONDS = 0.5
FLOWER_USER = "evoq"


def up(*, flower: bool, port: int, screen: Screen) -> None:
    """Keeps the stack until Ctrl-C.

    Raises:
      UsageError: There is a deployment to use instead.
      EmbeddedError: The stack cannot run here, or not any longer.
    """
    at = place()
    if at.deployed:
        raise UsageError(
            "a deployment is configured",
            where="EVOQ_DATABASE_URL",
            remedy="Unset EVOQ_DATABASE_URL and EVOQ_REDIS_URL to keep an embedded stack.",
        )
    page = Flower(port, FLOWER_USER, secrets.token_urlsafe(12)) if flower else None
    with ExitStack() as stack:
        stack.enter_context(kept_up(at.home))
        stack.enter_context(at_work(at.home, alone=False))
        stop = stack.enter_context(Interruption())
        embedded = EmbeddedStack(at.home, upgrade, environment=os.environ, flower=page)
        stack.callback(embedded.stop)
        embedded.start()
        screen.say(f"the stack of {at.home} is up; `evoq run` in this folder uses it")
        if page is not None:
            screen.say(f"Flower: http://127.0.0.1:{port} (user {page.user}, {page.password})")
        screen.answer(
            {
                "home": str(at.home.absolute()),
                "flower": {"port": port, "user": page.user, "password": page.password}
                if page
                else None,
            }
        )
        screen.say("Ctrl-C ends it")
        while not stop.asked:
            embedded.check()
            time.sleep(LOOK_SECONDS)
    screen.say("the stack has ended")
