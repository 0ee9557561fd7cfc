"""The form in which a model is asked: drawn by children that ran per token.

The forms are the operators that ask a model for a change of the parent, each in a form of its own:
blocks of edits, a whole program, one function.  Which form a model can answer differs by model and
by the length of the program, more than any selection of parents can make up for, so that the
weights are learnt within a run, from the children that were measured.

The rule is that of `model_mix`, with forms in the place of models: a child that was measured is a
gain, one that was not is a miss, and the cost of a child is its number of tokens.  A run begins
with weights that earlier runs of the deployment suggest, where some asked the same models about
programs of a like length.
"""

from collections.abc import Collection, Mapping
from random import Random

from app.domain.search.model_mix import NOTHING_WRITTEN, TOKENS, MixedModel, ModelMix, Written

EARLIER_RUNS = 20
"""Newest runs of the deployment that suggest the weights of a new one."""
EARLIER_PROPOSALS = 128
"""Newest settled proposals of each of them that count."""
ALIKE = 4.0
"""Programs are of a like length where neither is longer than the other by more than this factor."""
KEPT = 0.2
"""Share of the weights that stays as the run's settings say, whatever earlier runs suggest."""
# Each form counts as if it had made this many more children, with the mean share of gains.
_PRIOR = 4.0


def draw_form(
    weights: Mapping[str, float],
    forms: Collection[str],
    written: Mapping[str, Written],
    first: str,
    rng: Random,
) -> str:
    """Returns the operator of a proposal: another form in the place of a form.

    Args:
      weights: Those of the run's operators.
      forms: The operators that are forms.
      written: What came of the newest children, by operator; a gain is a child that was measured.
      first: The operator that was drawn by weight.  One that is no form stays.
      rng: Its draws are the only chance in the result.
    """
    if first not in forms:
        return first
    mixed = tuple(MixedModel(name, weights[name]) for name in sorted(weights) if name in forms)
    return ModelMix(mixed).draw(written, rng) if len(mixed) > 1 else first


def suggested_weights(
    weights: Mapping[str, float], forms: Collection[str], written: Mapping[str, Written]
) -> dict[str, float]:
    """Returns a run's weights after earlier runs; the sum of the forms' weights stays as it is.

    A form's share grows with its children that ran per token.

    Args:
      weights: Those of the run's settings.
      forms: The operators that are forms.
      written: What came of the children of earlier runs, by operator.
    """
    mixed = {name: weight for name, weight in weights.items() if name in forms and weight > 0}
    known = {name: written.get(name, NOTHING_WRITTEN) for name in mixed}
    if len(mixed) < 2 or not any(each.children for each in known.values()):
        return dict(weights)
    total = sum(mixed.values())
    mean = sum(each.gains for each in known.values()) / sum(
        each.children for each in known.values()
    )
    dearest = max(each.mean_cost(TOKENS) for each in known.values()) or 1.0
    rates = {
        name: (_PRIOR * mean + each.gains)
        / (_PRIOR + each.children)
        / ((each.mean_cost(TOKENS) or dearest) / dearest)
        for name, each in known.items()
    }
    if not (rated := sum(rates.values())):
        return dict(weights)
    return {
        name: KEPT * weight + (1 - KEPT) * total * rates[name] / rated if name in mixed else weight
        for name, weight in weights.items()
    }
