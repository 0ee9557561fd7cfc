"""SIMULATED: mixes of two models for `benchmarks.search`, drawn by weight or by what was measured.

A model answers with one blind edit of the program in its prompt, as `mock-llm` does, or with a line
that makes the program fail, or with one that changes nothing that is measured.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from app.domain.search.model_mix import WINDOW, MixedModel, ModelMix, ModelPrice, Written
from mock_llm.replies import mutating_reply, program_in, search_replace

BREAKS, IDLES = "raise ValueError({})", "_ = {}"


@dataclass(frozen=True, slots=True)
class SimulatedModel:
    """A model of a mix.

    Attributes:
      price: Of one completion, in a unit of our own.
      useless: Share of its replies that add a line in the place of an edit.
      line: That line, with a place for a random number.
    """

    name: str
    price: float = 1.0
    useless: float = 0.0
    line: str = BREAKS

    def reply(self, system: str, user: str, rng: Random) -> str:
        prompt = f"{system}\n{user}"
        program = program_in(user)
        if program is None or rng.random() >= self.useless:
            return mutating_reply(prompt, user, rng)
        lines = program.text.split("\n")
        at = max(n for n, line in enumerate(lines) if line.strip().startswith("return "))
        indent = lines[at][: -len(lines[at].lstrip())]
        text = "\n".join([*lines[:at], indent + self.line.format(rng.random()), *lines[at:]])
        if "<<<<<<< SEARCH" in prompt:
            return search_replace(program.text, text)
        return f"```python\n{text.rstrip()}\n```\n"


@dataclass(frozen=True, slots=True)
class Simulated:
    """Two models of equal weight, and whether they are drawn by what was measured."""

    models: tuple[SimulatedModel, SimulatedModel]
    adaptive: bool


_PAIRS = {
    "helps": (SimulatedModel("able"), SimulatedModel("poor", useless=0.9)),
    "price": (SimulatedModel("able", price=10.0), SimulatedModel("cheap", useless=0.2)),
    "equal": (SimulatedModel("one"), SimulatedModel("other")),
    "idle": (SimulatedModel("able"), SimulatedModel("idle", useless=0.9, line=IDLES)),
}
MIXES: Mapping[str, Simulated] = {
    f"{kind}_{pair}": Simulated(models, kind == "adaptive")
    for pair, models in _PAIRS.items()
    for kind in ("fixed", "adaptive")
}
"""By arm: one of two models breaks nine of ten programs, one is ten times as dear and the other
nearly as good, both are equal, or one changes nothing in nine of ten."""


class MixOfRun:
    """The models of one search, and what came of their children."""

    def __init__(self, mix: Simulated) -> None:
        self._adaptive = mix.adaptive
        self._models = {model.name: model for model in mix.models}
        self._mix = ModelMix(
            tuple(MixedModel(m.name, 1.0, ModelPrice(0.0, 0.0, m.price)) for m in mix.models)
        )
        self._settled: deque[tuple[str, bool, int]] = deque(maxlen=WINDOW)
        self._asked: dict[int, tuple[str, int]] = {}
        self.spent = 0.0
        self.written = {name: [0, 0] for name in self._models}

    def reply(self, ordinal: int, system: str, user: str, draws: Random, edits: Random) -> str:
        """Returns a reply for a proposal, whose model is drawn for its first prompt."""
        name, before = self._asked.get(ordinal) or (self._drawn(draws), 0)
        self._asked[ordinal] = name, before + 1
        self.spent += self._models[name].price
        return self._models[name].reply(system, user, edits)

    def settled(self, ordinal: int, *, gain: bool) -> None:
        """Counts a child."""
        if ordinal in self._asked:
            name, completions = self._asked.pop(ordinal)
            self._settled.append((name, gain, completions))
            self.written[name][0] += 1
            self.written[name][1] += gain

    def _drawn(self, rng: Random) -> str:
        if not self._adaptive:
            return rng.choice(list(self._models))
        return self._mix.draw({name: self._of(name) for name in self._models}, rng)

    def _of(self, name: str) -> Written:
        mine = [(gain, completions) for by, gain, completions in self._settled if by == name]
        completions = sum(n for _, n in mine)
        gains = sum(gain for gain, _ in mine)
        return Written(len(mine), gains, completion_tokens=1_000_000 * completions)
