"""Several models as one: by role, and by weight with fail-over."""

import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from app.adapters.model.congestion.circuit_breaker import CircuitBreaker
from app.adapters.model.providers.partial_results import PartialResult, merged, partial_result
from app.domain.operator import Completion, Prompt, Role
from app.ports.protocols import (
    NEVER,
    LanguageModel,
    Misconfigured,
    PromptTooLong,
    Stop,
    Stopped,
    Unavailable,
)

_THREADS = 32
"""Most threads for the texts of one call; further calls have threads of their own."""

log = logging.getLogger(__name__)


class RoleModels:
    """Asks a model of its own for each role, and the generator's model for every other role."""

    def __init__(self, models: Mapping[Role, LanguageModel]) -> None:
        """Keeps the models.

        Args:
          models: By role; the generator's is required.
        """
        self._models = dict(models)
        self._generator = models[Role.GENERATOR]

    @property
    def name(self) -> str:
        return self._generator.name

    @property
    def places(self) -> int | None:
        """Those of the generator's model, which writes most children."""
        return self._generator.places

    def parameters(self, prompt: Prompt) -> Mapping[str, object]:
        """Returns the parameters of the model of the prompt's role."""
        return self._model(prompt.role).parameters(prompt)

    def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
        """Returns a completion for each prompt, in order; roles are asked side by side."""

        def ask(part: Sequence[Prompt]) -> PartialResult:
            return partial_result(partial(self._model(part[0].role).complete, stop=stop), part)

        return _in_parts(prompts, lambda prompt: prompt.role, ask)

    def _model(self, role: Role) -> LanguageModel:
        return self._models.get(role, self._generator)


@dataclass(frozen=True, slots=True)
class EnsembleModel:
    """One model of an ensemble.

    Attributes:
      weight: Its share of the prompts; 0 makes it a reserve, asked when the others are down.
      reports: Whether the model itself reports its attempts to the breaker.
    """

    model: LanguageModel
    breaker: CircuitBreaker
    weight: float = 1.0
    reports: bool = False


class Ensemble:
    """Draws a model for each prompt; where that model fails, the next one is asked.

    A model that fails too often in a row is left alone for a while, by its breaker.  While all
    models are up, the same prompt of the same run is asked of the same model.
    """

    def __init__(self, models: Sequence[EnsembleModel], *, seed: int = 0) -> None:
        """Keeps the models.

        Args:
          models: Reserves are asked in this order.
          seed: Of the draws.

        Raises:
          ValueError: There is no model, or none with a weight.
        """
        if not any(each.weight > 0 for each in models):
            raise ValueError(f"no model with a weight above 0 among {len(models)}")
        self._models = tuple(models)
        self._seed = seed

    @property
    def name(self) -> str:
        return "+".join(each.model.name for each in self._models)

    @property
    def places(self) -> int | None:
        """The sum over the models with a weight; None where one of them has no limit."""
        places = [each.model.places for each in self._models if each.weight > 0]
        limited = [each for each in places if each is not None]
        return sum(limited) if len(limited) == len(places) else None

    def parameters(self, prompt: Prompt) -> Mapping[str, object]:
        """Returns the parameters of the model that is drawn for a prompt."""
        return self._models[self._drawn(prompt)].model.parameters(prompt)

    def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
        """Returns a completion for each prompt, in order.

        Raises:
          Misconfigured: Every model needs a person.
          Unavailable: No model is up; the message holds that of each.
        """

        def ask(part: Sequence[Prompt]) -> PartialResult:
            return self._result(self._drawn(part[0]), part, stop)

        return _in_parts(prompts, lambda each: (self._drawn(each), each.system, each.user), ask)

    def _rng(self, prompt: Prompt) -> Random:
        return Random(f"{self._seed}/{prompt.role}/{prompt.sample}")

    def _drawn(self, prompt: Prompt) -> int:
        """Returns the number of the model that a prompt names, or of the one drawn for it."""
        for number, each in enumerate(self._models):
            if each.model.name == prompt.model:
                return number
        weights = [each.weight for each in self._models]
        return self._rng(prompt).choices(range(len(weights)), weights)[0]

    def _result(self, drawn: int, prompts: Sequence[Prompt], stop: Stop) -> PartialResult:
        """Asks the drawn model, then the others, then the reserves, each for what is missing."""
        faults: list[Unavailable] = []
        reasons = []
        answered: dict[int, Completion] = {}
        for number in self._order(drawn, prompts[0]):
            member = self._models[number]
            if not member.breaker.admits():
                seconds = member.breaker.rest_seconds
                reasons.append(f"{member.model.name} is left alone for {seconds:.0f} s")
                continue
            missing = [place for place in range(len(prompts)) if place not in answered]
            try:
                completions = member.model.complete([prompts[place] for place in missing], stop)
            except Unavailable as error:
                answered |= {missing[place]: answer for place, answer in error.answered.items()}
                faults.append(error)
                if isinstance(error, Stopped):
                    lost = sum(fault.unanswered for fault in faults)
                    return Stopped(*error.args, unanswered=lost, answered=answered)
                if isinstance(error, PromptTooLong):
                    # A prompt that can be shortened goes to the same model again.
                    if not error.prompt.shortest:
                        return _with(error, faults, answered)
                    reasons.append(str(error))
                    continue
                self._failed(member, error)
                reasons.append(str(error))
                continue
            if not member.reports:
                member.breaker.answered()
            unanswered = -(-sum(fault.unanswered for fault in faults) // len(missing))
            charged = [
                replace(answer, unanswered=answer.unanswered + unanswered) for answer in completions
            ]
            answered |= zip(missing, charged, strict=True)
            return [answered[place] for place in range(len(prompts))]
        too_long = [fault for fault in faults if isinstance(fault, PromptTooLong)]
        if too_long and len(too_long) == len(reasons):
            widest = max(too_long, key=lambda fault: fault.longest)
            return _with(widest, faults, answered)
        all_need_a_person = all(isinstance(fault, Misconfigured) for fault in faults)
        kind = Misconfigured if all_need_a_person and len(faults) == len(reasons) else Unavailable
        fault = kind(
            f"no model is up: {'; '.join(reasons)}",
            unanswered=sum(fault.unanswered for fault in faults),
            answered=answered,
        )
        fault.__cause__ = faults[-1] if faults else None
        return fault

    def _order(self, drawn: int, prompt: Prompt) -> list[int]:
        """Returns the numbers of all models in the order of asking."""
        others = [number for number in range(len(self._models)) if number != drawn]
        rng = self._rng(prompt)
        rank = {
            number: rng.random() ** (1.0 / weight)
            for number in others
            if (weight := self._models[number].weight) > 0
        }
        reserves = [number for number in others if number not in rank]
        return [drawn, *sorted(rank, key=lambda number: rank[number], reverse=True), *reserves]

    def _failed(self, member: EnsembleModel, error: Unavailable) -> None:
        """Counts a failure that the model did not report itself."""
        if not member.reports or isinstance(error, Misconfigured):
            member.breaker.failed()
        if seconds := member.breaker.rest_seconds:
            log.warning("%s is left alone for %.0f s: %s", member.model.name, seconds, error)


def _in_parts(
    prompts: Sequence[Prompt],
    key: Callable[[Prompt], Hashable],
    ask: Callable[[Sequence[Prompt]], PartialResult],
) -> list[Completion]:
    """Returns a completion for each prompt, in order; prompts of one key are asked together."""
    positions: dict[Hashable, list[int]] = {}
    for position, prompt in enumerate(prompts):
        positions.setdefault(key(prompt), []).append(position)
    parts = [[prompts[place] for place in part] for part in positions.values()]
    if len(parts) == 1:
        return merged([range(len(prompts))], [ask(prompts)])
    with ThreadPoolExecutor(max(1, min(len(parts), _THREADS))) as pool:
        results = list(pool.map(ask, parts))
    return merged(list(positions.values()), results)


def _with(
    fault: PromptTooLong, faults: Sequence[Unavailable], answered: Mapping[int, Completion]
) -> PromptTooLong:
    """Returns a fault with what other models were asked and answered before."""
    unanswered = sum(each.unanswered for each in faults)
    message = str(fault)
    return PromptTooLong(
        message, fault.prompt, fault.longest, unanswered=unanswered, answered=answered
    )
