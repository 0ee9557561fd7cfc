"""The language models of a process: one for each run, by the run's settings."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from app.adapters.model.places import ModelPlaces
from app.adapters.model.providers.spec import ProcessLimits
from app.config.models import ModelSettings
from app.config.settings import stored_settings
from app.domain.operator import Role

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from app.adapters.model.choose import Providers
    from app.adapters.model.providers.vllm_engine import VllmEngine
    from app.domain.run import Run
    from app.ports.protocols import Embedder, LanguageModel, Store

Built = TypeVar("Built")
_Key: TypeAlias = tuple[int, str]
"""A run, and the label of the fleet whose step asks."""


class Models:
    """Language models by run and fleet, each built once a process from the run's settings."""

    def __init__(
        self,
        store: Store,
        engine: VllmEngine | None = None,
        limits: ProcessLimits | None = None,
        agent: Callable[[Run], LanguageModel | None] = lambda run: None,  # noqa: ARG005
    ) -> None:
        """Builds nothing yet.

        Args:
          store: Where completions of earlier runs are, for a run that reuses them.
          engine: Answers the runs that ask for its model.
          limits: Those of this process; None: only those of the models' own settings.
          agent: Returns what answers the tasks of a run's agents; None where it has none.
        """
        self._store = store
        self._engine = engine
        self._limits = limits or ProcessLimits()
        self._agent = agent
        self._lock = threading.Lock()
        self._built: dict[_Key, tuple[int, ModelSettings, LanguageModel]] = {}
        self._embedders: dict[_Key, tuple[int, ModelSettings, Embedder]] = {}
        self._agents: dict[int, tuple[int, LanguageModel | None]] = {}
        self._places: dict[_Key, ModelPlaces] = {}
        self._providers: Providers | None = None

    @property
    def places(self) -> int:
        """Requests that this process may have in flight now."""
        return self._limits.opening if self._providers is None else self._providers.places

    def __call__(self, run: Run) -> LanguageModel:
        with self._lock:
            agent = self._agent_of(run)
            if agent is not None and not stored_settings(run.settings).llm.models_of():
                return agent
            model = _of_revision(
                self._built, run, lambda llm: self._opened().model(llm, run.seed, run.name)
            )
            return model if agent is None else self._opened().with_agent(model, agent)

    def _agent_of(self, run: Run) -> LanguageModel | None:
        """Returns what answers the tasks of a run's agents, built anew once its settings change."""
        if run.id not in self._agents or run.revision > self._agents[run.id][0]:
            self._agents[run.id] = run.revision, self._agent(run)
        return self._agents[run.id][1]

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
        """See `app.engine.process.Process.take_place`."""
        self(run)
        with self._lock:
            key = run.id, run.fleet
            places = self._places.setdefault(key, ModelPlaces(partial(self._limit, key)))
        return places.take()

    def _limit(self, key: _Key) -> int | None:
        _, _, model = self._built[key]
        limits = (model.places, self._limits.max_in_flight)
        return min((limit for limit in limits if limit is not None), default=None)

    def close(self) -> None:
        """Closes every connection to an endpoint.  Idempotent."""
        with self._lock:
            if self._providers is not None:
                self._providers.close()


def _of_revision(
    built: dict[_Key, tuple[int, ModelSettings, Built]],
    run: Run,
    build: Callable[[ModelSettings], Built],
) -> Built:
    """Returns what was built for a run; built anew once its section `llm` has changed.

    A step that began before a change takes what its successors take.
    """
    key = run.id, run.fleet
    if key not in built or run.revision > built[key][0]:
        drawn = not run.rules.fleets.islands
        llm = stored_settings(run.settings).llm.of_fleet(run.fleet, drawn=drawn)
        same = key in built and llm == built[key][1]
        built[key] = run.revision, llm, built[key][2] if same else build(llm)
    return built[key][2]
