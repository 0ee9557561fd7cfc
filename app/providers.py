"""From settings to language models: which provider answers in which role.

Part of the composition root, apart from `app.bootstrap` because the client libraries take half a
second to import, which only runs that ask a model should pay.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from app.adapters.model.congestion.circuit_breaker import Breaker, Rules
from app.adapters.model.congestion.gates import Gates, Sharing
from app.adapters.model.providers import presets
from app.adapters.model.providers.cached import CachedModel, Described
from app.adapters.model.providers.chat import ModelSpec
from app.adapters.model.providers.ensemble import Ensemble, Member
from app.adapters.model.providers.http import Exchange
from app.adapters.model.providers.human import HumanModel
from app.adapters.model.providers.openai import OpenAIModel
from app.adapters.model.providers.replay import ReplayModel
from app.adapters.model.providers.roles import RoleModels
from app.adapters.model.providers.specs import Environment, model_spec
from app.adapters.model.providers.vllm import IN_PROCESS, VllmModel
from app.adapters.model.providers.vllm_engine import VllmEngine
from app.adapters.queue.address import client_url
from app.config.models import ModelChoice, ModelSettings, Provider
from app.config.settings import Settings
from app.domain.operator import Role
from app.ports.protocols import LanguageModel, Misconfigured, Store


class Providers:
    """What the models of a process share: one event loop, its connections and gates."""

    def __init__(
        self,
        store: Store,
        environment: Environment = os.environ.get,
        engine: VllmEngine | None = None,
        *,
        settings: Settings | None = None,
    ) -> None:
        """Prepares; connects to nothing.

        Args:
          store: Where completions of earlier runs are, for a run that reuses them.
          environment: Where keys are looked up.
          engine: Answers in this process for its model; not closed here.
          settings: How much this process may ask, and where that is counted; None: as much as the
            models' own settings say.
        """
        self._store = store
        self._environment = environment
        self._engine = engine
        sharing = _sharing(settings) if settings else Sharing()
        gates = Gates(sharing, engine.queue) if engine else Gates(sharing)
        self._exchange = Exchange(gates, gates.close)

    def model(self, told: ModelSettings, seed: int, run: str = "") -> LanguageModel:
        """Returns the models that the section `llm` describes, one for each role that differs.

        Args:
          told: The section.
          seed: The run's.
          run: Its name; a person answers each run in a folder of its own.

        Raises:
          Misconfigured: There is no model name.
        """
        roles = (Role.GENERATOR, *told.roles)
        models = {role: self._role(told, role, seed, run) for role in roles}
        return RoleModels(models) if len(models) > 1 else models[Role.GENERATOR]

    def close(self) -> None:
        """Closes every connection.  Idempotent."""
        self._exchange.close()

    def _role(self, told: ModelSettings, role: Role, seed: int, run: str) -> LanguageModel:
        choices = told.models_of(role)
        if not choices:
            raise Misconfigured(f"no model for {role}: name one, as --set llm.model=NAME")
        failures, rest_seconds = told.fail_over(role)
        mix = self._mix(choices, Rules(failures, rest_seconds), seed, Path(told.answers) / run)
        return CachedModel(mix, self._store) if told.cache else mix

    def _spec(self, choice: ModelChoice) -> ModelSpec:
        """Returns how to ask a model: over HTTP, or the engine of this process."""
        spec = model_spec(choice, self._environment)
        if self._engine is None or choice.base_url is not None:
            return spec
        if choice.provider in (None, Provider.VLLM) and self._engine.serves(choice.name):
            return replace(spec, base_url=IN_PROCESS, api_key="", preset=presets.PRESETS["vllm"])
        if choice.provider is Provider.VLLM:
            raise Misconfigured(
                f"this worker serves the model {self._engine.launch.served_name!r}, and the run"
                f" asks for {choice.name!r}: set llm.model to it, or llm.base_url to ask a server"
            )
        return spec

    def _model(
        self, choice: ModelChoice, seed: int, answers: Path, breaker: Breaker | None = None
    ) -> Described:
        spec = self._spec(choice)
        if choice.provider is Provider.HUMAN:
            return HumanModel(spec.name, answers, wait_seconds=spec.timeout_seconds)
        if choice.provider is Provider.REPLAY:
            return ReplayModel(spec.name, self._store)
        if self._engine is not None and spec.base_url == IN_PROCESS:
            return VllmModel(spec, self._engine, self._exchange, seed=seed)
        return OpenAIModel(spec, self._exchange, seed=seed, breaker=breaker)

    def _mix(
        self, choices: Sequence[ModelChoice], rules: Rules, seed: int, answers: Path
    ) -> Described:
        if len(choices) == 1:
            return self._model(choices[0], seed, answers)
        members = []
        for choice in choices:
            breaker = Breaker(rules)
            model = self._model(choice, seed, answers, breaker)
            tells = isinstance(model, OpenAIModel)
            members.append(Member(model, breaker, choice.weight, tells=tells))
        return Ensemble(members, seed=seed)


def _sharing(settings: Settings) -> Sharing:
    queue = settings.redis_url
    return Sharing(
        redis_url=client_url(queue.get_secret_value()) if queue else None,
        max_in_flight=settings.llm_max_in_flight,
        target_in_flight=settings.llm_target_in_flight,
        parallel_generations=settings.llm_parallel_generations,
    )
