"""The context of a Celery worker."""

import functools
import logging
import os
import signal
import socket
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial

from app.adapters.model.per_run import Models
from app.adapters.model.providers.vllm_engine import VllmEngine, VllmLaunch
from app.adapters.queue.address import client_url
from app.adapters.queue.celery import CeleryExecutor
from app.adapters.queue.live_moves import LiveMoves
from app.adapters.sandbox.cached import CachedSandbox
from app.adapters.sandbox.lazy import LazySandbox
from app.adapters.store.leases import CHANNEL
from app.adapters.store.schema import version
from app.adapters.store.workers import WorkerTimeRecorder
from app.bootstrap.ledger import context, open_store
from app.bootstrap.process import WorkerProcess
from app.bootstrap.settings import own_settings
from app.celery import app, threads
from app.config.places import available_cores, places
from app.config.settings import Settings, of_workers
from app.domain.search.fleets import kind_of
from app.domain.search.shares import NEWCOMERS
from app.engine.context import Context
from app.ports.protocols import Misconfigured, Store
from app.ports.workers import WORKER_KINDS, Capacity, Worker

LEDGER_PATIENCE_SECONDS = 20.0
"""How long a step waits for an absent Postgres: longer than a restart, shorter than a lease."""

LEDGER_IDLE_SECONDS = 60.0
"""How long the locks of a frozen worker last: no transaction of a step is idle for so long."""

LOOK_SECONDS = 5.0
"""How often the thread that waits for withdrawals looks whether its process goes on."""

log = logging.getLogger(__name__)


def worker_context(settings: Settings | None = None) -> Context:
    """Builds the context of a Celery worker from its environment.

    Raises:
      Misconfigured: The environment gives no database, or a variable that cannot be used; or the
        database's schema is not the one this version needs.
      Unavailable: The database cannot be reached.
    """
    settings = settings or own_settings()
    if settings.database_url is None:
        raise Misconfigured("EVOQ_DATABASE_URL is not set: give the ledger's address")
    sessions = settings.database_session_url
    store = open_store(
        settings.database_url.get_secret_value(),
        session_url=None if sessions is None else sessions.get_secret_value(),
        connections=settings.database_connections,
        patience_seconds=LEDGER_PATIENCE_SECONDS,
        idle_seconds=LEDGER_IDLE_SECONDS,
    )
    _require_schema(store, settings.database_url.get_secret_value())
    at_once = places(os.environ, available_cores()) + NEWCOMERS
    redis_url = settings.redis_url and client_url(settings.redis_url.get_secret_value())
    return context(
        store,
        CeleryExecutor(app),
        CachedSandbox(LazySandbox(replace(settings.sandbox, places=at_once)), store),
        queue=settings.queue,
        engine=worker_engine(),
        settings=settings,
        listen=partial(store.listen, CHANNEL, LOOK_SECONDS) if settings.database_listen else None,
        moves=LiveMoves(redis_url) if redis_url else None,
    )


def _require_schema(store: Store, database_url: str) -> None:
    # A transaction waits for Postgres for as long as a restart may take.
    with store.begin():
        pass
    schema = version(database_url)
    if not schema.current:
        raise Misconfigured(schema.remedy)


@functools.cache
def worker_engine() -> VllmEngine | None:
    """Returns the engine that `EVOQ_VLLM_MODEL` names, not yet loaded; None where it names none."""
    settings = own_settings()
    if settings.vllm_model is None:
        return None
    launch = VllmLaunch(
        settings.vllm_model,
        settings.vllm_name or settings.vllm_model,
        settings.vllm_args,
        settings.vllm_metrics_port,
    )
    return VllmEngine(launch, lost=_leave)


def _leave(reason: str) -> None:
    """Ends this worker in order, so that its supervisor starts it again."""
    log.critical("this worker ends: %s", reason)
    os.kill(os.getpid(), signal.SIGTERM)


def with_worker_time(
    ctx: Context, queues: Collection[str], report: Callable[[Mapping[str, str]], None]
) -> tuple[Context, WorkerTimeRecorder]:
    """Starts to record the time of a worker of these queues in the ledger.

    A worker of several queues is of the first kind in `WORKER_KINDS`, as a rule the most expensive.

    Args:
      ctx: The worker's.
      queues: What it serves.
      report: Receives every few seconds what does not work; see `WorkerTimeRecorder`.
    """
    kinds = {kind_of(queue) for queue in queues}
    kind = next(kind for kind in WORKER_KINDS if kind in kinds)
    name = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    settings = own_settings()
    worker = Worker(
        name,
        kind,
        settings.prices.of(kind),
        of_workers(settings),
        queues=tuple(sorted(queues)),
    )
    recorder = WorkerTimeRecorder(
        ctx.store,
        worker,
        partial(_places, ctx, kinds),
        protections=ctx.sandbox.protections if "cpu" in kinds else None,
        report=report,
    )
    recorder.start()
    assert isinstance(ctx.process, WorkerProcess)
    return replace(ctx, process=replace(ctx.process, recorder=recorder)), recorder


def _places(ctx: Context, kinds: Collection[str]) -> Capacity:
    """Returns the places of this worker: no more than it has threads for."""
    model, sandbox = None, None
    most = app.conf.worker_concurrency or threads(kinds, os.environ)
    if "gpu" in kinds and isinstance(ctx.model, Models):
        model = min(ctx.model.places, threads(["gpu"], os.environ), most)
    if "cpu" in kinds:
        sandbox = min(places(os.environ, available_cores()), most)
    return Capacity(model, sandbox)
