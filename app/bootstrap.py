"""The composition root: the only module that assigns adapters to ports.

Ledger, queue and models are imported where they are first needed: together they take a second,
and a command that only reads a problem or measures a program needs none of them.
"""

from __future__ import annotations

import functools
import logging
import os
import signal
import socket
import threading
import time
import uuid
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from app.adapters.model.places import ModelPlaces
from app.adapters.model.providers.spec import ProcessLimits
from app.adapters.problems.loading import is_known, load, reload
from app.adapters.queue.address import client_url
from app.adapters.sandbox.cached import CachedSandbox
from app.adapters.sandbox.choose import MachineSandbox, choose
from app.adapters.tuning.cma import ask
from app.config.layers import wrong_variables
from app.config.models import ModelSettings
from app.config.places import available_cores, places
from app.config.settings import (
    QueueSettings,
    SandboxSettings,
    Settings,
    of_workers,
    stored_settings,
)
from app.domain.operator import Role
from app.domain.operators import operators
from app.domain.problem import Evaluator, Job, Outcome, Problem, ProblemDigest
from app.domain.run import Run
from app.domain.search.shares import NEWCOMERS
from app.engine.context import Context, Pace
from app.ports.protocols import (
    NEVER,
    Embedder,
    Executor,
    LanguageModel,
    Misconfigured,
    Protection,
    Sandbox,
    Stop,
    Store,
)
from app.ports.records import WORKER_KINDS, Capacity, Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from app.adapters.model.choose import Providers
    from app.adapters.model.providers.vllm_engine import VllmEngine
    from app.adapters.queue.celery import CeleryExecutor
    from app.adapters.store.sql import SqlStore
    from app.adapters.store.worker_time import WorkerTimeRecorder


LEDGER_PATIENCE_SECONDS = 20.0
"""How long a step waits for an absent Postgres: longer than a restart, shorter than a lease."""

LEDGER_IDLE_SECONDS = 60.0
"""How long the locks of a frozen worker last: no transaction of a step is idle for so long."""

LOOK_SECONDS = 5.0
"""How often the thread that waits for withdrawals looks whether its process goes on."""

log = logging.getLogger(__name__)

Built = TypeVar("Built")


def worker_context(settings: Settings | None = None) -> Context:
    """Builds the context of a Celery worker from its environment.

    Raises:
      Misconfigured: The environment gives no database, or a variable that cannot be used; or the
        database's schema is not the one this version needs.
      Unavailable: The database cannot be reached.
    """
    from app.adapters.queue.celery import CeleryExecutor
    from app.adapters.queue.live_moves import LiveMoves
    from app.adapters.store.leases import CHANNEL

    settings = settings or own_settings()
    if settings.database_url is None:
        raise Misconfigured("EVOQ_DATABASE_URL is not set: give the ledger's address")
    store = open_store(
        settings.database_url.get_secret_value(),
        connections=settings.database_connections,
        patience_seconds=LEDGER_PATIENCE_SECONDS,
        idle_seconds=LEDGER_IDLE_SECONDS,
    )
    _require_schema(store, settings.database_url.get_secret_value())
    from app.celery import app

    cells = places(os.environ, available_cores()) + NEWCOMERS
    built = context(
        store,
        CeleryExecutor(app),
        CachedSandbox(LazySandbox(replace(settings.sandbox, cells=cells)), store),
        queue=settings.queue,
        engine=worker_engine(),
        settings=settings,
        listen=partial(store.listen, CHANNEL, LOOK_SECONDS),
    )
    if settings.redis_url is None:
        return built
    moves = LiveMoves(client_url(settings.redis_url.get_secret_value()))
    return replace(built, show_moves=moves.show)


def _require_schema(store: Store, database_url: str) -> None:
    from app.adapters.store.schema import version

    # A transaction waits for Postgres for as long as a restart may take.
    with store.begin():
        pass
    schema = version(database_url)
    if not schema.current:
        raise Misconfigured(schema.remedy)


def own_settings() -> Settings:
    """Returns the settings in the environment of this process.

    Raises:
      Misconfigured: A variable cannot be used.
    """
    for variable, why in wrong_variables().items():
        raise Misconfigured(f"{variable}: {why}")
    return Settings()


@functools.cache
def worker_engine() -> VllmEngine | None:
    """Returns the engine that `EVOQ_VLLM_MODEL` names, not yet loaded; None where it names none."""
    settings = own_settings()
    if settings.vllm_model is None:
        return None
    from app.adapters.model.providers.vllm_engine import VllmEngine, VllmLaunch

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


def open_store(
    database_url: str,
    *,
    connections: int = 16,
    patience_seconds: float = 0.0,
    idle_seconds: float = 0.0,
) -> SqlStore:
    """Returns the ledger; no connection is opened before the first transaction."""
    from app.adapters.store.sql import SqlStore

    return SqlStore(
        database_url,
        connections=connections,
        patience_seconds=patience_seconds,
        idle_seconds=idle_seconds,
    )


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
    from app.adapters.store.worker_time import WorkerTimeRecorder

    kind = next(kind for kind in WORKER_KINDS if kind in queues)
    name = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    settings = own_settings()
    worker = Worker(name, kind, settings.prices.of(kind), of_workers(settings))
    recorder = WorkerTimeRecorder(
        ctx.store,
        worker,
        partial(_places, ctx, queues),
        protections=ctx.sandbox.protections if "cpu" in queues else None,
        report=report,
    )
    recorder.start()
    return replace(ctx, work=recorder.work), recorder


def _places(ctx: Context, queues: Collection[str]) -> Capacity:
    """Returns the places of this worker: no more than it has threads for."""
    from app.celery import app, threads

    model, sandbox = None, None
    most = app.conf.worker_concurrency or threads(queues, os.environ)
    if "gpu" in queues and isinstance(ctx.model, Models):
        model = min(ctx.model.places, threads(["gpu"], os.environ), most)
    if "cpu" in queues:
        sandbox = min(places(os.environ, available_cores()), most)
    return Capacity(model, sandbox)


def open_sandbox(
    settings: SandboxSettings,
    tell: Callable[[str], None] | None = None,
    *,
    may_build: bool = True,
) -> MachineSandbox:
    """Returns the backend of the settings, or the strongest that works here.

    Args:
      settings: Name the backend and its limits.
      tell: Receives the progress of builds; None: the log.
      may_build: Whether "auto" may build the default image.

    Raises:
      Unavailable: A backend was named and does not answer.
    """
    show = log.warning if tell is None else tell
    return choose(settings, show_progress=show, may_build=may_build)


def celery_executor(redis_url: str | None = None) -> CeleryExecutor:
    """Returns the executor that publishes to a broker; None is that of `EVOQ_REDIS_URL`."""
    from app.adapters.queue.celery import CeleryExecutor
    from app.celery import app, client

    return CeleryExecutor(app if redis_url is None else client(redis_url))


def context(
    store: Store,
    executor: Executor,
    sandbox: Sandbox,
    *,
    queue: QueueSettings | None = None,
    engine: VllmEngine | None = None,
    settings: Settings | None = None,
    keep_leases: bool = True,
    listen: Callable[[], Iterator[bool]] | None = None,
) -> Context:
    """Wires a context.

    Args:
      store: The ledger.
      executor: Enqueues steps.
      sandbox: Runs programs.
      queue: Leases and attempts; None means the defaults.
      engine: Answers the runs that ask for its model; None: there is none in this process.
      settings: This process's share of the models' limits; None: no limits of its own.
      keep_leases: Whether a thread renews leases; not needed without other workers.
      listen: Yields whenever steps may have been withdrawn; see `LeaseRenewer`.
    """
    from app.adapters.store.group_commit import GroupCommit

    pace = queue or QueueSettings()
    models, problems = Models(store, engine, settings), ProblemCatalogue(store)
    built = Context(
        store=store,
        model=models,
        place=models.place,
        embedder=models.embedder,
        sandbox=sandbox,
        executor=executor,
        problem=problems,
        limited=problems.limited,
        operators=operators(ask),
        pace=Pace(pace.lease_seconds, pace.redeliver_seconds, attempts=pace.attempts),
        share=GroupCommit().share,
        wait=time.sleep,
    )
    if keep_leases:
        from app.adapters.store.leases import LeaseRenewer

        return replace(built, keep=LeaseRenewer(store, pace.lease_seconds, listen).keep)
    return built


def load_problem(
    paths: Sequence[Path],
    *,
    config: Path | None = None,
    strict: bool = False,
    options: dict[str, Any] | None = None,
) -> Problem:
    """Loads a problem from the disk; see `app.adapters.problems`."""
    return load(paths, config=config, strict=strict, options=options or {})


class LazySandbox:
    """Opens a sandbox at its first job, so that workers without jobs need none."""

    def __init__(self, settings: SandboxSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._opened: MachineSandbox | None = None
        self._summary = ""

    def run(self, job: Job, stop: Stop = NEVER) -> Outcome:
        """See `app.ports.protocols.Sandbox.run`."""
        return self._open().run(job, stop)

    def prepare(self, evaluator: Evaluator) -> None:
        """See `app.ports.protocols.Sandbox.prepare`."""
        self._open().prepare(evaluator)

    def surroundings(self, evaluator: Evaluator) -> str:
        """See `app.ports.protocols.Sandbox.surroundings`."""
        return self._open().surroundings(evaluator)

    def protections(self) -> list[Protection]:
        """See `app.ports.protocols.Sandbox.protections`; logs them in one line if they changed."""
        sandbox = self._open()
        found = sandbox.protections()
        before, self._summary = self._summary, sandbox.summary()
        if self._summary != before:
            log.warning("%s", self._summary)
        return found

    def _open(self) -> MachineSandbox:
        with self._lock:
            if self._opened is None:
                self._opened = open_sandbox(self._settings)
            return self._opened

    def close(self) -> None:
        """Ends every warm sandbox.  Idempotent."""
        with self._lock:
            if self._opened is not None:
                self._opened.close()
                self._opened = None


class ProblemCatalogue:
    """Problems by digest, each read from the ledger once per process."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._problems: dict[ProblemDigest, Problem] = {}
        self._limited: dict[Hashable, Problem] = {}

    def limited(self, run: Run) -> Problem:
        """Returns a run's problem with the limits that the settings of the run have now."""
        problem = self(run.problem)
        limits = {f"sandbox.{name}": value for name, value in run.rules.limits.items()}
        changed = any(problem.options.get(name) != value for name, value in limits.items())
        if not changed or not is_known(problem.format):
            return problem
        options = {k: v for k, v in {**problem.options, **limits}.items() if v is not None}
        key = run.problem, tuple(limits.items())
        with self._lock:
            loaded = self._limited.get(key)
        if loaded is None:
            loaded = reload(problem.format, problem.name, problem.files, options)
            with self._lock:
                loaded = self._limited.setdefault(key, loaded)
        return loaded

    def __call__(self, digest: ProblemDigest) -> Problem:
        with self._lock:
            loaded = self._problems.get(digest)
        if loaded is not None:
            return loaded
        with self._store.begin() as tx:
            stored = tx.problems.get(digest)
        problem = reload(stored.format, stored.name, stored.files, stored.options)
        if problem.digest != digest:
            raise ValueError(
                f"problem {stored.name!r} was stored as {digest[:12]} and reads as "
                f"{problem.digest[:12]}: this worker's version differs from the one that submitted "
                f"the run"
            )
        with self._lock:
            return self._problems.setdefault(digest, problem)


class Models:
    """Language models by run, each built once a process from the run's settings."""

    def __init__(
        self,
        store: Store,
        engine: VllmEngine | None = None,
        settings: Settings | None = None,
    ) -> None:
        """Builds nothing yet.

        Args:
          store: Where completions of earlier runs are, for a run that reuses them.
          engine: Answers the runs that ask for its model.
          settings: Limits of this process; None: only those of the models' own settings.
        """
        self._store = store
        self._engine = engine
        self._limits = _process_limits(settings)
        self._lock = threading.Lock()
        self._built: dict[int, tuple[int, ModelSettings, LanguageModel]] = {}
        self._embedders: dict[int, tuple[int, ModelSettings, Embedder]] = {}
        self._places: dict[int, ModelPlaces] = {}
        self._providers: Providers | None = None

    @property
    def places(self) -> int:
        """Requests that this process may have in flight now."""
        return self._limits.opening if self._providers is None else self._providers.places

    def __call__(self, run: Run) -> LanguageModel:
        with self._lock:
            return _of_revision(
                self._built, run, lambda llm: self._opened().model(llm, run.seed, run.name)
            )

    def embedder(self, run: Run) -> Embedder | None:
        """See `app.engine.context.Context.embedder`."""
        if Role.EMBEDDER not in run.rules.asking.roles:
            return None
        with self._lock:
            return _of_revision(self._embedders, run, lambda llm: self._opened().embedder(llm))

    def _opened(self) -> Providers:
        if self._providers is None:
            # Half a second, for runs that ask a model.
            from app.adapters.model.choose import Providers

            self._providers = Providers(self._store, engine=self._engine, limits=self._limits)
        return self._providers

    def place(self, run: Run) -> AbstractContextManager[Callable[[], None]]:
        """See `app.engine.context.Context.place`."""
        self(run)
        with self._lock:
            places = self._places.setdefault(run.id, ModelPlaces(partial(self._limit, run.id)))
        return places.take()

    def _limit(self, run: int) -> int | None:
        _, _, model = self._built[run]
        limits = (model.places, self._limits.max_in_flight)
        return min((limit for limit in limits if limit is not None), default=None)

    def close(self) -> None:
        """Closes every connection to an endpoint.  Idempotent."""
        with self._lock:
            if self._providers is not None:
                self._providers.close()


def _of_revision(
    built: dict[int, tuple[int, ModelSettings, Built]],
    run: Run,
    build: Callable[[ModelSettings], Built],
) -> Built:
    """Returns what was built for a run; built anew once its section `llm` has changed.

    A step that began before a change takes what its successors take.
    """
    if run.id not in built or run.revision > built[run.id][0]:
        llm = stored_settings(run.settings).llm
        same = run.id in built and llm == built[run.id][1]
        built[run.id] = run.revision, llm, built[run.id][2] if same else build(llm)
    return built[run.id][2]


def _process_limits(settings: Settings | None) -> ProcessLimits:
    if settings is None:
        return ProcessLimits()
    queue = settings.redis_url
    return ProcessLimits(
        redis_url=client_url(queue.get_secret_value()) if queue else None,
        max_in_flight=settings.llm_max_in_flight,
        target_in_flight=settings.llm_target_in_flight,
        parallel_generations=settings.llm_parallel_generations,
    )
