"""From settings to language models: which provider answers in which role.

Part of the composition root, apart from `app.bootstrap` because the client libraries take half a
second to import, which only runs that ask a model should pay.
"""

import os
from collections.abc import Sequence

from app.adapters.model.breaker import Breaker, Rules
from app.adapters.model.cached import CachedModel, Described
from app.adapters.model.chat import ModelSpec
from app.adapters.model.ensemble import Ensemble, Member
from app.adapters.model.exchange import Exchange
from app.adapters.model.openai import OpenAIModel
from app.adapters.model.roles import RoleModels
from app.adapters.model.specs import Environment, model_spec
from app.domain.operator import Role
from app.model_settings import ModelSettings
from app.ports import LanguageModel, Misconfigured, Store


class Providers:
    """What the models of a process share: one event loop, its connections and gates."""

    def __init__(self, store: Store, environment: Environment = os.environ.get) -> None:
        """Prepares; connects to nothing.

        Args:
          store: Where completions of earlier runs are, for a run that reuses them.
          environment: Where keys are looked up.
        """
        self._store = store
        self._environment = environment
        self._exchange = Exchange()

    def model(self, told: ModelSettings, seed: int) -> LanguageModel:
        """Returns the models that the section `llm` describes, one for each role that differs.

        Raises:
          Misconfigured: There is no model name.
        """
        models = {role: self._role(told, role, seed) for role in (Role.GENERATOR, *told.roles)}
        return RoleModels(models) if len(models) > 1 else models[Role.GENERATOR]

    def close(self) -> None:
        """Closes every connection.  Idempotent."""
        self._exchange.close()

    def _role(self, told: ModelSettings, role: Role, seed: int) -> LanguageModel:
        choices = told.asked(role)
        if not choices:
            raise Misconfigured(f"no model for {role}: name one, as --set llm.model=NAME")
        failures, rest_seconds = told.fail_over(role)
        specs = [model_spec(choice, self._environment) for choice in choices]
        mix = self._mix(specs, Rules(failures, rest_seconds), seed)
        return CachedModel(mix, self._store) if told.cache else mix

    def _mix(self, specs: Sequence[ModelSpec], rules: Rules, seed: int) -> Described:
        if len(specs) == 1:
            return OpenAIModel(specs[0], self._exchange, seed=seed)
        members = []
        for spec in specs:
            breaker = Breaker(rules)
            model = OpenAIModel(spec, self._exchange, seed=seed, breaker=breaker)
            members.append(Member(model, breaker, spec.weight, tells=True))
        return Ensemble(members, seed=seed)
