"""A model for each role: prompts go to who answers in theirs."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from app.adapters.model.providers.partial_results import ended, joined
from app.domain.operator import Completion, Prompt, Role
from app.ports.protocols import LanguageModel


class RoleModels:
    """Asks a model of its own for each role, and the generator's for every other."""

    def __init__(self, models: Mapping[Role, LanguageModel]) -> None:
        """Keeps the models.

        Args:
          models: One a role; the generator's is required.
        """
        self._models = dict(models)
        self._generator = models[Role.GENERATOR]

    @property
    def name(self) -> str:
        return self._generator.name

    def complete(self, prompts: Sequence[Prompt]) -> list[Completion]:
        """Returns one completion a prompt, in order; several roles are asked side by side."""
        places: dict[Role, list[int]] = {}
        for place, prompt in enumerate(prompts):
            places.setdefault(prompt.role, []).append(place)
        if len(places) == 1:
            return self._model(prompts[0].role).complete(prompts)
        with ThreadPoolExecutor(max(1, len(places))) as pool:
            asked = [
                pool.submit(ended, self._model(role).complete, [prompts[n] for n in own])
                for role, own in places.items()
            ]
        return joined(list(places.values()), [one.result() for one in asked])

    def _model(self, role: Role) -> LanguageModel:
        return self._models.get(role, self._generator)
