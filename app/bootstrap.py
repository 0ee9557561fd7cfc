"""The composition root: the one module that knows which adapter serves which port."""

import logging
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.adapters.model import presets
from app.adapters.model.cached import CachedModel
from app.adapters.model.chat import OPENAI_URL, ModelSpec
from app.adapters.model.presets.preset import Preset
from app.adapters.model.roles import RoleModels
from app.adapters.problems.loading import load, reload
from app.adapters.queue.celery import CeleryExecutor
from app.adapters.queue.inline import InlineExecutor
from app.adapters.sandbox.choose import AnySandbox, choose
from app.adapters.store.leases import LeaseKeeper
from app.adapters.store.sql import SqlStore
from app.adapters.tuning.cma import ask
from app.domain.operator import Role
from app.domain.operators import operators
from app.domain.problem import Problem, ProblemDigest
from app.domain.run import Run
from app.engine.context import Context, Pace
from app.model_settings import OPENAI_KEY, ModelChoice, ModelSettings
from app.ports import Executor, LanguageModel, Misconfigured, Sandbox, Store
from app.settings import QueueSettings, SandboxSettings, Settings

_INFRA = Path(__file__).parents[1] / "infra"

log = logging.getLogger(__name__)


def worker_context(settings: Settings | None = None) -> Context:
    """Builds the context of a Celery worker from its environment.

    Raises:
      Misconfigured: The environment gives no database.
    """
    told = settings or Settings()
    if told.database_url is None:
        raise Misconfigured("EVOQ_DATABASE_URL is not set: give the ledger's address")
    store = open_store(told.database_url.get_secret_value(), connections=told.database_connections)
    from app.celery import app

    return context(store, CeleryExecutor(app), LazySandbox(told.sandbox), queue=told.queue)


def open_store(database_url: str, *, connections: int = 16) -> SqlStore:
    """Returns the ledger; no connection is opened before the first transaction."""
    return SqlStore(database_url, connections=connections)


def open_sandbox(
    settings: SandboxSettings, tell: Callable[[str], None] | None = None
) -> AnySandbox:
    """Returns the backend the settings ask for, or the strongest that works here.

    Args:
      settings: What is asked for.
      tell: Gets the progress of builds; None: the log.

    Raises:
      Unavailable: A backend was named and does not answer.
    """
    return choose(settings, infra=_INFRA, tell=log.warning if tell is None else tell)


def celery_executor(redis_url: str | None = None) -> CeleryExecutor:
    """Returns the executor that rings over a broker; None is that of `EVOQ_REDIS_URL`."""
    from app.celery import app, client

    return CeleryExecutor(app if redis_url is None else client(redis_url))


def context(
    store: Store,
    executor: Executor,
    sandbox: Sandbox,
    *,
    queue: QueueSettings | None = None,
    keep_leases: bool = True,
) -> Context:
    """Wires a context.

    Args:
      store: The ledger.
      executor: Who has steps run.
      sandbox: Who runs programs.
      queue: Leases and attempts; None means the defaults.
      keep_leases: Whether a thread renews what is held; not needed where nobody else works.
    """
    pace = queue or QueueSettings()
    built = Context(
        store=store,
        model=Models(store),
        sandbox=sandbox,
        executor=executor,
        problem=ProblemCatalogue(store),
        operators=operators(ask),
        pace=Pace(pace.lease_seconds, pace.ring_again_seconds, attempts=pace.attempts),
    )
    if keep_leases:
        return replace(built, keep=LeaseKeeper(store, pace.lease_seconds).keep)
    return built


def inline_context(database_url: str, sandbox: Sandbox) -> tuple[Context, InlineExecutor]:
    """Wires a context whose every step runs in this process, one at a time."""
    executor = InlineExecutor()
    store = open_store(database_url, connections=2)
    return context(store, executor, sandbox, keep_leases=False), executor


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
    """Opens a sandbox at its first job, so that workers that run none need none."""

    def __init__(self, settings: SandboxSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._opened: Sandbox | None = None

    def run(self, job: Any) -> Any:
        """See `app.ports.Sandbox.run`."""
        with self._lock:
            if self._opened is None:
                self._opened = open_sandbox(self._settings)
            opened = self._opened
        return opened.run(job)

    def close(self) -> None:
        """Ends every cell.  Idempotent."""
        with self._lock:
            if self._opened is not None:
                self._opened.close()
                self._opened = None


class ProblemCatalogue:
    """Problems by digest, each read from the ledger once a process."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._known: dict[ProblemDigest, Problem] = {}

    def __call__(self, digest: ProblemDigest) -> Problem:
        with self._lock:
            found = self._known.get(digest)
        if found is not None:
            return found
        with self._store.begin() as tx:
            name, files, options = tx.problem(digest)
        problem = reload(name, files, options)
        if problem.digest != digest:
            raise ValueError(
                f"problem {name!r} was stored as {digest[:12]} and reads as {problem.digest[:12]}: "
                f"this worker's version differs from the one that submitted the run"
            )
        with self._lock:
            return self._known.setdefault(digest, problem)


class Models:
    """Language models by run, each built once a process from the run's settings."""

    def __init__(
        self, store: Store, environment: Callable[[str], str | None] = os.environ.get
    ) -> None:
        self._store = store
        self._environment = environment
        self._lock = threading.Lock()
        self._known: dict[int, LanguageModel] = {}

    def __call__(self, run: Run) -> LanguageModel:
        with self._lock:
            if run.id not in self._known:
                told = ModelSettings(**run.settings["llm"])
                self._known[run.id] = language_model(told, run.seed, self._environment, self._store)
            return self._known[run.id]


def language_model(
    told: ModelSettings, seed: int, environment: Callable[[str], str | None], store: Store
) -> LanguageModel:
    """Returns the models a run's settings describe, one for each role that differs.

    Args:
      told: The settings.
      seed: The run's.
      environment: Where keys are.
      store: Where completions of earlier runs are, for a run that reuses them.

    Raises:
      Misconfigured: There is no model name.
    """
    from app.adapters.model.openai import OpenAIModel  # half a second, for runs that ask a model

    models: dict[Role, LanguageModel] = {}
    for role in (Role.GENERATOR, *told.roles):
        choices = told.asked(role)
        if not choices:
            raise Misconfigured(f"no model for {role}: name one, as --set llm.model=NAME")
        model = OpenAIModel([model_spec(one, environment) for one in choices], seed=seed)
        models[role] = CachedModel(model, store) if told.cache else model
    return RoleModels(models) if len(models) > 1 else models[Role.GENERATOR]


def model_spec(choice: ModelChoice, environment: Callable[[str], str | None]) -> ModelSpec:
    """Returns a model with its endpoint's address, key and quirks; it has inherited all it can."""
    preset, address = endpoint(choice, environment)
    own = choice.provider is not None or environment(preset.key_variable)
    variable = choice.api_key_variable or (preset.key_variable if own else OPENAI_KEY)
    told = choice.model_dump(
        exclude={"provider", "base_url", "api_key_variable"}, exclude_none=True
    )
    prices = {
        name: told.pop(f"usd_per_million_{tokens}_tokens", None)
        for name, tokens in (
            ("prompt_usd", "prompt"),
            ("cached_usd", "cached"),
            ("completion_usd", "completion"),
        )
    }
    return ModelSpec(
        base_url=address,
        api_key=environment(variable) or "",
        key_variable=variable,
        preset=preset,
        **{"temperature": None, **told},
        **prices,
    )


def endpoint(choice: ModelChoice, environment: Callable[[str], str | None]) -> tuple[Preset, str]:
    """Returns who serves a model, and at which address."""
    if choice.provider is not None:
        preset = presets.PRESETS[choice.provider]
        return preset, choice.base_url or preset.base_url
    address = choice.base_url or environment("OPENAI_BASE_URL") or OPENAI_URL
    return presets.at(address), address
