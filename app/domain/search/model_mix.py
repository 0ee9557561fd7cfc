"""The model of a mix that writes a child: drawn by improvements per cost.

The rule is Thompson sampling.  A child is a gain if it was measured and is better than its first
parent, and a miss however else it ended.  A model's share of gains has the prior Beta(weight, 1),
with weights of mean 1: of independent draws from Beta(w, 1) the largest is that of a model with
probability w / sum(w), so that models are drawn by weight until a child has settled.  The draw from
each posterior Beta(weight + gains, 1 + misses) is divided by the model's mean cost of a child, and
the largest quotient is taken.

Gains are comparisons, so the rule depends on the order of fitness values only, not on their scale,
and parents are drawn without regard to the model, so every model is compared with the same kind of
parent.  New best programs would be too few to learn from within a hundred proposals.

Sources: Thompson 1933, "On the likelihood that one unknown probability exceeds another";
Xia et al. 2015, "Thompson sampling for budgeted multi-armed bandits", for the quotient; Trovò et
al. 2020, "Sliding-window Thompson sampling for non-stationary settings", for `WINDOW`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from app.domain.operator import Completion, Draft, Prompt

WINDOW = 256
"""Newest settled proposals of a run that count: gains become rarer as a search goes on."""
FLOOR = 0.1
"""Share of the draws that are by weight, whatever was measured."""
LEAST_COST = 0.01
"""Least cost of a child, as a share of the dearest model's: a model may be free."""


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """US dollars for a million tokens, or their number where `TOKENS`."""

    prompt: float
    cached: float
    completion: float


TOKENS = ModelPrice(1e6, 1e6, 1e6)


@dataclass(frozen=True, slots=True)
class MixedModel:
    """A model of a mix.

    Attributes:
      weight: Above 0.
      price: None where it is not known.
      fleet: Label of the workers that ask it; "" for any.
    """

    name: str
    weight: float
    price: ModelPrice | None = None
    fleet: str = ""


@dataclass(frozen=True, slots=True)
class Written:
    """What came of children that a model wrote.

    Attributes:
      children: How many have settled.
      gains: How many of them are better than their first parent.
      prompt_tokens, cached_tokens, completion_tokens: Of the completions for them; cached tokens
        are prompt tokens too.
    """

    children: int
    gains: int
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0

    def mean_cost(self, price: ModelPrice) -> float:
        """Returns the cost of one of them, in US dollars or in tokens; 0.0 without any."""
        fresh = self.prompt_tokens - self.cached_tokens
        paid = fresh * price.prompt + self.cached_tokens * price.cached
        return (paid + self.completion_tokens * price.completion) / 1e6 / max(1, self.children)


NOTHING_WRITTEN = Written(0, 0)


@dataclass(frozen=True, slots=True)
class ModelMix:
    """The models of a role with a weight above 0, whose names differ."""

    models: tuple[MixedModel, ...]

    def within(self, fleet: str, *, drawn: bool) -> "ModelMix":
        """Returns the mix of which a step of a fleet draws; see `ModelSettings.of_fleet`."""
        own = tuple(model for model in self.models if model.fleet == fleet)
        free = tuple(model for model in self.models if fleet and not model.fleet)
        return ModelMix(own if own and drawn else (*own, *free))

    def of_fleets(self, fleets: Collection[str]) -> "ModelMix":
        """Returns the mix of the models of some fleets."""
        return ModelMix(tuple(model for model in self.models if model.fleet in fleets))

    def fleet_of(self, name: str) -> str:
        """Returns the label of the workers that ask a model of the mix."""
        return next(model.fleet for model in self.models if model.name == name)

    def draw(self, written: Mapping[str, Written], rng: Random) -> str:
        """Returns the name of the model that writes the next child.

        Args:
          written: What came of the newest children, by model; other models are ignored.
          rng: Its draws are the only chance in the result.
        """
        weights = [model.weight for model in self.models]
        if rng.random() < FLOOR:
            return rng.choices(self.models, weights)[0].name
        scale = len(weights) / sum(weights)
        best = max(
            (self._share(model, written, scale, rng) / cost, model.name)
            for model, cost in zip(self.models, self._costs(written), strict=True)
        )
        return best[1]

    def _share(
        self, model: MixedModel, written: Mapping[str, Written], scale: float, rng: Random
    ) -> float:
        own = written.get(model.name, NOTHING_WRITTEN)
        return rng.betavariate(model.weight * scale + own.gains, 1 + own.children - own.gains)

    def _costs(self, written: Mapping[str, Written]) -> list[float]:
        """Returns each model's mean cost of a child: in dollars, else in tokens, else 1.

        A model that has written nothing is taken to need as many tokens as the others.
        """
        mine = [written.get(model.name, NOTHING_WRITTEN) for model in self.models]
        total = Written(
            sum(each.children for each in mine),
            0,
            sum(each.prompt_tokens for each in mine),
            sum(each.cached_tokens for each in mine),
            sum(each.completion_tokens for each in mine),
        )
        known = [model.price for model in self.models if model.price is not None]
        in_tokens = [TOKENS] * len(mine)
        for prices in (known, in_tokens) if len(known) == len(mine) else (in_tokens,):
            costs = [
                (own if own.children else total).mean_cost(price)
                for own, price in zip(mine, prices, strict=True)
            ]
            if dearest := max(costs):
                return [max(cost, LEAST_COST * dearest) for cost in costs]
        return [1.0] * len(mine)


def addressed(
    drafts: Sequence[Draft], models: Mapping[int, str], prompts: Sequence[Prompt]
) -> list[Prompt]:
    """Returns the prompts, of which those that write a child name its model.

    Args:
      drafts: Those of the conversation.
      models: The model that was drawn for each of them, by ordinal.
      prompts: A prompt that names a model, or in another role than its draft, stays as it is.
    """
    roles = {draft.ordinal: draft.role for draft in drafts}
    return [
        replace(prompt, model=models[prompt.sample])
        if not prompt.model and prompt.sample in models and prompt.role is roles[prompt.sample]
        else prompt
        for prompt in prompts
    ]


def answered_by(
    models: Mapping[int, str], prompts: Sequence[Prompt], replies: Sequence[Completion]
) -> dict[int, str]:
    """Returns the models that the next turn of a conversation asks, by ordinal.

    They are those that answered this turn: another one than was drawn where that was down, or where
    the answer was saved before the step ran again.
    """
    answered = {
        prompt.sample: reply.model
        for prompt, reply in zip(prompts, replies, strict=True)
        if prompt.model and prompt.model == models.get(prompt.sample)
    }
    return {**models, **answered}
