"""Several models as one: drawn by weight, and the next in line where the drawn one is down."""

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from app.adapters.model.congestion.circuit_breaker import Breaker
from app.adapters.model.providers.cached import Described
from app.adapters.model.providers.partial_results import Ended, joined
from app.domain.operator import Completion, Prompt
from app.ports.protocols import Misconfigured, Unavailable

_AT_ONCE = 32  # texts of one call that are asked side by side; more calls bring more

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Member:
    """One model of an ensemble.

    Attributes:
      weight: Its share of the prompts; 0 is a reserve, asked when the others are down.
      tells: Whether the model itself tells the breaker of its attempts.
    """

    model: Described
    breaker: Breaker
    weight: float = 1.0
    tells: bool = False


class Ensemble:
    """Draws a model for each prompt; one that fails leaves the prompt to the next.

    A model that failed too often in a row is left alone for a while, by its breaker.
    While all are up, the same prompt of the same run meets the same model.
    """

    def __init__(self, members: Sequence[Member], *, seed: int = 0) -> None:
        """Keeps the members.

        Args:
          members: Reserves are asked in this order.
          seed: Of the draws.

        Raises:
          ValueError: There is no member, or none with a weight.
        """
        if not any(member.weight > 0 for member in members):
            raise ValueError(f"no model with a weight above 0 among {len(members)}")
        self._members = tuple(members)
        self._seed = seed

    @property
    def name(self) -> str:
        return "+".join(member.model.name for member in self._members)

    def complete(self, prompts: Sequence[Prompt]) -> list[Completion]:
        """Returns one completion a prompt, in order.

        Raises:
          Misconfigured: Every model needs a person.
          Unavailable: No model is up; the message says what each of them said.
        """
        lines: dict[tuple[int, str, str], list[int]] = {}
        for place, prompt in enumerate(prompts):
            lines.setdefault((self._drawn(prompt), prompt.system, prompt.user), []).append(place)
        groups = list(lines.items())
        asked = [[prompts[place] for place in places] for _, places in groups]
        firsts = [first for (first, _, _), _ in groups]
        if len(groups) == 1:
            ends = [self._ended(firsts[0], asked[0])]
        else:
            with ThreadPoolExecutor(max(1, min(len(groups), _AT_ONCE))) as pool:
                ends = list(pool.map(self._ended, firsts, asked))
        return joined([places for _, places in groups], ends)

    def parameters(self, prompt: Prompt) -> Mapping[str, Any]:
        """Returns what shapes the answer of the model that is drawn for a prompt."""
        return self._members[self._drawn(prompt)].model.parameters(prompt)

    def _rng(self, prompt: Prompt) -> Random:
        return Random(f"{self._seed}/{prompt.role}/{prompt.sample}")

    def _drawn(self, prompt: Prompt) -> int:
        named = [n for n, one in enumerate(self._members) if one.model.name == prompt.model]
        if named:
            return named[0]
        weights = [member.weight for member in self._members]
        return self._rng(prompt).choices(range(len(weights)), weights)[0]

    def _ended(self, first: int, prompts: Sequence[Prompt]) -> Ended:
        """Asks the drawn model, then the others, then the reserves, each for what is missing."""
        faults: list[Unavailable] = []
        told = []
        answered: dict[int, Completion] = {}
        for number in self._line(first, prompts[0]):
            member = self._members[number]
            if not member.breaker.admits():
                seconds = member.breaker.rest_seconds
                told.append(f"{member.model.name} is left alone for {seconds:.0f} s")
                continue
            missing = [place for place in range(len(prompts)) if place not in answered]
            try:
                answers = member.model.complete([prompts[place] for place in missing])
            except Unavailable as error:
                answered |= {missing[place]: one for place, one in error.answered.items()}
                self._failed(member, error)
                faults.append(error)
                told.append(str(error))
                continue
            if not member.tells:
                member.breaker.answered()
            unanswered = -(-sum(one.unanswered for one in faults) // len(missing))
            more = [replace(one, unanswered=one.unanswered + unanswered) for one in answers]
            answered |= zip(missing, more, strict=True)
            return [answered[place] for place in range(len(prompts))]
        all_need_a_person = all(isinstance(one, Misconfigured) for one in faults)
        kind = Misconfigured if all_need_a_person and len(faults) == len(told) else Unavailable
        unanswered = sum(one.unanswered for one in faults)
        fault = kind(f"no model is up: {'; '.join(told)}", unanswered=unanswered, answered=answered)
        fault.__cause__ = faults[-1] if faults else None
        return fault

    def _line(self, first: int, prompt: Prompt) -> list[int]:
        others = [n for n in range(len(self._members)) if n != first]
        rng = self._rng(prompt)
        drawn = {n: rng.random() ** (1.0 / w) for n in others if (w := self._members[n].weight) > 0}
        reserves = [n for n in others if n not in drawn]
        return [first, *sorted(drawn, key=lambda n: drawn[n], reverse=True), *reserves]

    def _failed(self, member: Member, error: Unavailable) -> None:
        """Counts what the model did not tell of itself."""
        if not member.tells or isinstance(error, Misconfigured):
            member.breaker.failed()
        if seconds := member.breaker.rest_seconds:
            log.warning("%s is left alone for %.0f s: %s", member.model.name, seconds, error)
