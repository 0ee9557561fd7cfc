"""Builds the language models that settings describe: the adapters behind each role.

Its importer waits half a second for the client libraries, which only runs that ask a model need.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from app.adapters.model.congestion.circuit_breaker import BreakerRules, CircuitBreaker
from app.adapters.model.providers.attempts import EndpointModel
from app.adapters.model.providers.embedder import OpenAIEmbedder
from app.adapters.model.providers.ensemble import Ensemble, EnsembleModel, RoleModels
from app.adapters.model.providers.event_loop import ModelLoop
from app.adapters.model.providers.gates import Gates
from app.adapters.model.providers.human import HumanModel
from app.adapters.model.providers.openai import OpenAIWire
from app.adapters.model.providers.presets import PRESETS, Api
from app.adapters.model.providers.recorded import CachedModel, ReplayModel
from app.adapters.model.providers.spec import (
    IN_PROCESS,
    Environment,
    ModelSpec,
    ProcessLimits,
    model_spec,
)
from app.adapters.model.providers.vllm import VllmModel
from app.adapters.model.providers.vllm_engine import VllmEngine
from app.adapters.model.providers.wire import Wire
from app.config.models import ModelChoice, ModelSettings, Provider
from app.domain.operator import Role
from app.ports.protocols import Embedder, LanguageModel, Misconfigured, Store

WIRES: Mapping[Api, Callable[[ModelSpec, int], Wire]] = {Api.OPENAI: OpenAIWire}
"""The wire forms; each is built of a model and of the seed of a run."""


class Providers:
    """Builds the models of a process, which share one event loop, its connections and gates."""

    def __init__(
        self,
        store: Store,
        environment: Environment = os.environ.get,
        engine: VllmEngine | None = None,
        *,
        limits: ProcessLimits | None = None,
    ) -> None:
        """Connects to nothing.

        Args:
          store: Holds the completions of earlier runs, for a run that reuses them.
          environment: Where keys are looked up.
          engine: Answers in this process for its model; not closed here.
          limits: Of this process; None: only those of the models' own settings.
        """
        self._store = store
        self._environment = environment
        self._engine = engine
        limits = limits or ProcessLimits()
        self._gates = Gates(limits, engine.queue) if engine else Gates(limits)
        self._model_loop = ModelLoop(self._gates, self._gates.close)

    @property
    def places(self) -> int:
        """Requests that this process may have in flight now."""
        return self._gates.places

    def model(self, settings: ModelSettings, seed: int, run: str = "") -> LanguageModel:
        """Returns the models that the section `llm` describes, as one.

        Args:
          settings: The section.
          seed: The run's.
          run: Its name; a person answers each run in a folder of its own.

        Raises:
          Misconfigured: There is no model name.
        """
        roles = (Role.GENERATOR, *(set(settings.roles) - {Role.EMBEDDER, Role.AGENT}))
        models = {role: self._role(settings, role, seed, run) for role in roles}
        return RoleModels(models) if len(models) > 1 else models[Role.GENERATOR]

    def with_agent(self, model: LanguageModel, agent: LanguageModel) -> LanguageModel:
        """Returns a model that leaves the tasks of agents to `agent`."""
        return RoleModels({Role.GENERATOR: model, Role.AGENT: agent})

    def embedder(self, settings: ModelSettings) -> Embedder:
        """Returns the first model of the role `embedder`.

        Raises:
          Misconfigured: Its key or its address cannot be used.
        """
        [choice, *_] = settings.models_of(Role.EMBEDDER)
        return OpenAIEmbedder(model_spec(choice, self._environment), self._model_loop)

    def close(self) -> None:
        """Closes every connection.  Idempotent."""
        self._model_loop.close()

    def _role(self, settings: ModelSettings, role: Role, seed: int, run: str) -> LanguageModel:
        choices = settings.models_of(role)
        if not choices:
            raise Misconfigured(f"no model for {role}: name one, as --set llm.model=NAME")
        rules = BreakerRules(*settings.fail_over(role))
        model = self._ensemble(choices, rules, seed, Path(settings.answers) / run)
        return CachedModel(model, self._store) if settings.cache else model

    def _ensemble(
        self, choices: Sequence[ModelChoice], rules: BreakerRules, seed: int, answers: Path
    ) -> LanguageModel:
        if len(choices) == 1:
            return self._model(choices[0], seed, answers)
        members = []
        for choice in choices:
            breaker = CircuitBreaker(rules)
            model = self._model(choice, seed, answers, breaker)
            reports = self._spec(choice).over_http
            members.append(EnsembleModel(model, breaker, choice.weight, reports=reports))
        return Ensemble(members, seed=seed)

    def _model(
        self, choice: ModelChoice, seed: int, answers: Path, breaker: CircuitBreaker | None = None
    ) -> LanguageModel:
        spec = self._spec(choice)
        if choice.provider is Provider.HUMAN:
            return HumanModel(spec.name, answers, wait_seconds=spec.timeout_seconds)
        if choice.provider is Provider.REPLAY:
            return ReplayModel(spec.name, self._store)
        if self._engine is not None and spec.base_url == IN_PROCESS:
            return VllmModel(spec, self._engine, self._model_loop, seed=seed)
        wire = WIRES[spec.preset.api](spec, seed)
        return EndpointModel(wire, self._model_loop, breaker=breaker)

    def _spec(self, choice: ModelChoice) -> ModelSpec:
        """Returns how to ask a model: over HTTP, or the engine of this process."""
        spec = model_spec(choice, self._environment)
        if self._engine is None or choice.base_url is not None:
            return spec
        if choice.provider in (None, Provider.VLLM) and self._engine.serves(choice.name):
            return replace(spec, base_url=IN_PROCESS, api_key="", preset=PRESETS[Provider.VLLM])
        if choice.provider is Provider.VLLM:
            raise Misconfigured(
                f"this worker serves the model {self._engine.launch.served_name!r}, and the run"
                f" asks for {choice.name!r}: name that one, or give the model a base_url to ask a"
                " server"
            )
        return spec
