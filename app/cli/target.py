"""Where runs live: a deployment's servers, or the embedded stack of a folder."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from app.cli.faults import Failed
from app.config.layers import Choices, UsageError, addresses, from_environment
from app.engine.context import Context
from app.ports.protocols import Executor, Store

HOME = ".evoq"
POSTGRES = "postgresql"
QUEUE_SECONDS = 15.0
"""A queue that is only held up, on a busy machine, answers within them."""


@dataclass(frozen=True, slots=True)
class Place:
    """Either two addresses, or neither and a folder.

    Attributes:
      home: The embedded stack's folder; also where this machine remembers its runs.
    """

    home: Path
    database_url: str | None = None
    redis_url: str | None = None

    @property
    def deployed(self) -> bool:
        return self.database_url is not None


@dataclass(frozen=True, slots=True)
class Ledger:
    """An open ledger.

    Attributes:
      redis_url: The queue's address.
      check: Raises when what this command started can no longer be relied on.
    """

    store: Store
    database_url: str
    redis_url: str
    check: Callable[[], None]


def place(layers: Sequence[Choices] | None = None) -> Place:
    """Returns where runs live, by `--set` and the environment.

    Args:
      layers: Earlier ones win; None means the environment alone.

    Raises:
      UsageError: Only one of the two addresses is given, or the database's is of none of ours.
    """
    told = addresses([from_environment(os.environ)] if layers is None else layers)
    given = [name for name in ("database_url", "redis_url") if name in told]
    if len(given) == 1:
        absent = ({"database_url", "redis_url"} - set(given)).pop()
        raise UsageError(
            f"{given[0]} is given and {absent} is not",
            where=f"EVOQ_{absent.upper()}",
            remedy=f"Give both for a deployment (EVOQ_{absent.upper()}, or --set {absent}=…), or "
            f"neither to run embedded.",
        )
    scheme, address, _ = told.get("database_url", f"{POSTGRES}://").partition("://")
    if not address or scheme.partition("+")[0] != POSTGRES:
        raise UsageError(
            "not the address of a Postgres",
            where="EVOQ_DATABASE_URL",
            value=f"{scheme}://…" if address else "no scheme",  # the rest may hold a password
            remedy="Write postgresql://USER:PASSWORD@HOST:5432/NAME.",
        )
    home = Path(told.get("home", HOME)).expanduser()
    return Place(home, told.get("database_url"), told.get("redis_url"))


@contextmanager
def opened(
    at: Place, *, workers: bool = False, environment: Mapping[str, str] | None = None
) -> Iterator[Ledger]:
    """Opens the ledger, starting or joining the embedded stack where there is no deployment.

    Args:
      at: Where it is.
      workers: Whether the embedded stack needs its workers; False to read only.
      environment: What those see; None means ours.

    Raises:
      Unavailable: The database cannot be reached.
      EmbeddedError: The stack cannot run here.
      Failed: The database's schema is not the one this version needs.
      UsageError: A variable, which the workers of the stack would see, cannot be used.
    """
    if at.database_url is not None and at.redis_url is not None:
        require_current(at.database_url)
        with _store(at.database_url) as store:
            yield Ledger(store, at.database_url, at.redis_url, lambda: None)
        return
    from app.adapters.store.schema import upgrade
    from app.config.layers import wrong_variables
    from app.embedded.stack import EmbeddedStack

    for variable, why in wrong_variables().items():
        raise UsageError(why, where=variable, remedy="Correct the variable, or leave it out.")
    stack = EmbeddedStack(at.home, upgrade, environment=environment)
    try:
        found = stack.start(workers=workers)
        with _store(found.database_url) as store:
            yield Ledger(store, found.database_url, found.redis_url, stack.check)
    finally:
        stack.stop()


def require_runs(at: Place) -> None:
    """Raises unless there can be a run: an embedded folder that was never used has none.

    Raises:
      LookupError: The folder does not exist.
    """
    if not at.deployed and not at.home.exists():
        raise LookupError(
            f"there are no runs here: {at.home} does not exist in {Path.cwd()}. Change to the "
            f"folder a run was started in, or set EVOQ_HOME"
        )


def require_current(database_url: str) -> None:
    """Raises unless a deployment's schema is the one this version needs.

    Raises:
      Failed: It is another one.
      Unavailable: The database cannot be reached.
    """
    from app.adapters.store.schema import version

    found = version(database_url)
    if not found.current:
        raise Failed(
            f"the database's schema is at {found.found or 'nothing'}, and this version needs "
            f"{found.needed}. Run `alembic upgrade head` with EVOQ_DATABASE_URL set"
        )


def require_queue(redis_url: str) -> None:
    """Raises unless the queue answers.

    Raises:
      Failed: It does not.
    """
    import redis

    try:
        with redis.Redis.from_url(
            redis_url, socket_connect_timeout=QUEUE_SECONDS, socket_timeout=QUEUE_SECONDS
        ) as client:
            client.ping()
    except (redis.RedisError, ValueError, OSError) as error:
        raise Failed(
            f"the queue (EVOQ_REDIS_URL) cannot be reached: {str(error).rstrip('.')}. Start Redis, "
            f"or correct the address"
        ) from error


def ringing(ledger: Ledger) -> Context:
    """Returns a context that submits steps to the workers of the ledger's queue."""
    from app import bootstrap

    return _without_sandbox(ledger, bootstrap.celery_executor(ledger.redis_url))


def silent(ledger: Ledger) -> Context:
    """Returns a context for changes that need nobody to be rung for."""
    from app.adapters.queue.inline import InlineExecutor

    return _without_sandbox(ledger, InlineExecutor())


def _without_sandbox(ledger: Ledger, executor: Executor) -> Context:
    from app import bootstrap
    from app.config.settings import SandboxSettings

    sandbox = bootstrap.LazySandbox(SandboxSettings())
    return bootstrap.context(ledger.store, executor, sandbox, keep_leases=False)


@contextmanager
def _store(database_url: str) -> Iterator[Store]:
    from app import bootstrap

    store = bootstrap.open_store(database_url, connections=4)
    try:
        yield store
    finally:
        store.close()
