"""Where runs live: a deployment's servers, or the embedded stack of a folder."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import redis

from app.adapters.problems.catalogue import ProblemCatalogue
from app.adapters.queue.inline import InlineExecutor
from app.adapters.sandbox.lazy import LazySandbox
from app.adapters.store import schema
from app.adapters.store.outage import silence_noted
from app.adapters.store.schema import version
from app.adapters.store.sql import SqlStore
from app.bootstrap.ledger import context, open_store
from app.client.local_state import is_held, is_worked_on
from app.client.notes import CommandError, note_on_standard_error
from app.config.layers import Choices, UsageError, addresses, from_environment, wrong_variables
from app.config.settings import SandboxSettings
from app.domain.problem import Problem
from app.domain.run import Run, RunState
from app.embedded.stack import EmbeddedStack
from app.engine.context import Context
from app.ports.protocols import Executor, Store

HOME = ".evoq"
POSTGRES = "postgresql"
QUEUE_SECONDS = 15.0
"""How long a queue on a busy machine may take to answer."""


@dataclass(frozen=True, slots=True)
class Target:
    """The two addresses of a deployment, or neither and the folder of an embedded stack.

    Attributes:
      home: The embedded stack's folder, which also holds this machine's state of its runs.
      session_url: See `SqlStore`.
    """

    home: Path
    database_url: str | None = None
    redis_url: str | None = None
    session_url: str | None = None

    @property
    def deployed(self) -> bool:
        return self.database_url is not None

    @property
    def used(self) -> bool:
        """Whether there may be runs: an embedded folder that does not exist has none."""
        return self.deployed or self.home.exists()


@dataclass(frozen=True, slots=True)
class Ledger:
    """An open ledger.

    Attributes:
      home: The folder of the target.
      redis_url: The queue's address.
      check: Raises when the embedded stack that this command started no longer works.
    """

    store: SqlStore
    home: Path
    redis_url: str
    check: Callable[[], None]


def find_target(layers: Sequence[Choices] | None = None) -> Target:
    """Returns where runs live, by `--set` and the environment.

    Args:
      layers: Earlier layers win; None means the environment alone.

    Raises:
      UsageError: Only one of the two addresses is given, or the database is not Postgres.
    """
    settings = addresses([from_environment(os.environ)] if layers is None else layers)
    given = [name for name in ("database_url", "redis_url") if name in settings]
    if len(given) == 1:
        absent = ({"database_url", "redis_url"} - set(given)).pop()
        raise UsageError(
            f"{given[0]} is given and {absent} is not",
            where=f"EVOQ_{absent.upper()}",
            remedy=f"Give both for a deployment (EVOQ_{absent.upper()}, or --set {absent}=…), or "
            f"neither to run embedded.",
        )
    session_url = settings.get("database_session_url")
    if session_url and not given:
        raise UsageError(
            "it is given and EVOQ_DATABASE_URL is not",
            where="EVOQ_DATABASE_SESSION_URL",
            remedy="Give the pooler's address as EVOQ_DATABASE_URL, or leave this one out.",
        )
    scheme, address, _ = settings.get("database_url", f"{POSTGRES}://").partition("://")
    if not address or scheme.partition("+")[0] != POSTGRES:
        raise UsageError(
            "not the address of a Postgres",
            where="EVOQ_DATABASE_URL",
            # The rest of the address may hold a password.
            value=f"{scheme}://…" if address else "no scheme",
            remedy="Write postgresql://USER:PASSWORD@HOST:5432/NAME.",
        )
    home = Path(settings.get("home", HOME)).expanduser()
    return Target(home, settings.get("database_url"), settings.get("redis_url"), session_url)


@contextmanager
def open_ledger(target: Target, stack: EmbeddedStack | None = None) -> Iterator[Ledger]:
    """Opens the ledger; starts or joins the embedded stack where there is no deployment.

    A server that is silent meanwhile is noted on standard error.

    Args:
      target: Where it is.
      stack: The embedded one, which is started with workers; None is enough to read.

    Raises:
      Unavailable: The database cannot be reached.
      EmbeddedError: The stack cannot run here.
      CommandError: The database's schema is not the one this version needs.
      UsageError: An environment variable, which the workers would inherit, cannot be used.
    """
    workers = stack is not None
    if not target.deployed and stack is None:
        stack = embedded_stack(target)
        stack.begin(workers=False)

    if target.database_url is not None and target.redis_url is not None:
        with silence_noted(target.database_url, note_on_standard_error):
            require_current_schema(target.database_url)
            with _open_store(target.database_url, target.session_url) as store:
                yield Ledger(store, target.home, target.redis_url, lambda: None)
        return
    assert stack is not None
    try:
        servers = stack.start(workers=workers)
        with (
            silence_noted(servers.database_url, note_on_standard_error),
            _open_store(servers.database_url) as store,
        ):
            yield Ledger(store, target.home, servers.redis_url, stack.check)
    finally:
        stack.stop()


def embedded_stack(target: Target, environment: Mapping[str, str] | None = None) -> EmbeddedStack:
    """Returns the embedded stack of a target, which is not started yet.

    Args:
      target: Where it is.
      environment: The workers' environment; None means that of this process.

    Raises:
      UsageError: An environment variable, which the workers would inherit, cannot be used.
    """
    for variable, why in wrong_variables().items():
        raise UsageError(why, where=variable, remedy="Correct the variable, or leave it out.")

    return EmbeddedStack(target.home, schema.upgrade, environment=environment)


def worked_on(target: Target, run: Run) -> bool | None:
    """Returns whether a command of this machine works on a run that is running.

    None for a run that is not running, and in a deployment, whose workers are elsewhere.
    """
    if target.deployed or run.state is not RunState.RUNNING:
        return None
    if run.in_process:
        return is_held(target.home, run.name)
    return is_worked_on(target.home)


@contextmanager
def open_run(name: str, target: Target | None = None) -> Iterator[tuple[Ledger, Run]]:
    """Opens the ledger and finds a run of it.

    Args:
      name: Name or number of the run.
      target: Where it is; None means where the environment says.

    Raises:
      LookupError: There is no such run.
    """
    target = target or find_target()
    if not target.used:
        raise LookupError(
            f"there are no runs here: {target.home} does not exist in {Path.cwd()}. Change to the "
            f"folder a run was started in, or set EVOQ_HOME"
        )
    with open_ledger(target) as ledger:
        yield ledger, find_run(ledger.store, name)


def find_run(store: Store, name: str) -> Run:
    """Returns the run with that name or number.

    Raises:
      LookupError: There is none.
    """
    with store.begin() as tx:
        run = tx.runs.named(name)
    if run is None:
        raise LookupError(f"there is no run {name!r}: `evoq list-runs` names them")
    return run


def stored_problem(store: Store, run: Run) -> Problem:
    """Returns a run's problem as the ledger holds it."""
    return ProblemCatalogue(store)(run.problem)


def require_current_schema(database_url: str) -> None:
    """Raises unless a deployment's schema is the one this version needs.

    Raises:
      CommandError: It is another one.
      Unavailable: The database cannot be reached.
    """
    schema = version(database_url)
    if not schema.current:
        raise CommandError(schema.remedy)


def require_queue(redis_url: str) -> None:
    """Raises unless the queue answers.

    Raises:
      CommandError: It does not.
    """
    try:
        with redis.Redis.from_url(
            redis_url, socket_connect_timeout=QUEUE_SECONDS, socket_timeout=QUEUE_SECONDS
        ) as client:
            client.ping()
    except (redis.RedisError, ValueError, OSError) as error:
        raise CommandError(
            f"the queue (EVOQ_REDIS_URL) cannot be reached: {str(error).rstrip('.')}. Start Redis, "
            f"or correct the address"
        ) from error


def without_queue(ledger: Ledger) -> Context:
    """Returns a context for changes that need no message."""
    return without_sandbox(ledger, InlineExecutor())


def without_sandbox(ledger: Ledger, executor: Executor) -> Context:
    """Returns a context whose sandbox is opened only if a program runs."""
    sandbox = LazySandbox(SandboxSettings())
    return context(ledger.store, executor, sandbox, keep_leases=False)


@contextmanager
def _open_store(database_url: str, session_url: str | None = None) -> Iterator[SqlStore]:
    store = open_store(database_url, session_url=session_url, connections=4)
    try:
        yield store
    finally:
        store.close()
