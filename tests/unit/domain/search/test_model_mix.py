"""Which model of a mix writes the next child, by what came of the children before."""

from collections import Counter
from collections.abc import Mapping
from random import Random

import pytest

from app.config.checks import require_mix, without_models
from app.config.layers import UsageError, from_assignments
from app.config.resolve import Resolved, resolved
from app.config.rules import mixes_of
from app.domain.operator import Completion, Draft, Prompt, Role
from app.domain.search.model_mix import (
    FLOOR,
    MixedModel,
    ModelMix,
    ModelPrice,
    Written,
    addressed,
    answered_by,
)

DRAWS = 2000
TWO = ModelMix((MixedModel("a", 1.0), MixedModel("b", 1.0)))


def shares(mix: ModelMix, written: Mapping[str, Written]) -> dict[str, float]:
    drawn = Counter(mix.draw(written, Random(f"{n}/model")) for n in range(DRAWS))
    return {model.name: drawn[model.name] / DRAWS for model in mix.models}


@pytest.mark.parametrize("scale", [0.5, 1.0, 100.0])
def test_without_a_settled_child_models_are_drawn_by_weight(scale: float) -> None:
    weights = {"a": 6.0, "b": 3.0, "c": 1.0}
    mix = ModelMix(tuple(MixedModel(name, scale * weight) for name, weight in weights.items()))

    drawn = shares(mix, {})

    assert drawn == pytest.approx({"a": 0.6, "b": 0.3, "c": 0.1}, abs=0.03)


def test_the_model_whose_children_gain_more_often_is_drawn_nearly_always() -> None:
    drawn = shares(TWO, {"a": Written(60, 2), "b": Written(60, 15)})

    assert drawn["b"] > 0.9


def test_the_one_that_gains_least_keeps_its_weights_part_of_the_floor() -> None:
    mix = ModelMix((MixedModel("a", 3.0), MixedModel("b", 1.0)))
    never, always = Written(10**6, 0), Written(10**6, 10**6)

    assert shares(mix, {"a": never, "b": always})["a"] == pytest.approx(FLOOR * 0.75, abs=0.02)
    assert shares(mix, {"a": always, "b": never})["b"] == pytest.approx(FLOOR * 0.25, abs=0.02)


def test_a_model_that_gains_as_often_at_a_tenth_of_the_price_is_drawn() -> None:
    mix = ModelMix(
        (
            MixedModel("dear", 1.0, ModelPrice(10.0, 1.0, 40.0)),
            MixedModel("cheap", 1.0, ModelPrice(1.0, 1.0, 4.0)),
        )
    )
    as_often = {name: Written(50, 10, 50_000, 0, 9_000) for name in ("dear", "cheap")}

    assert shares(mix, as_often)["cheap"] > 0.9
    assert shares(mix, as_often | {"cheap": Written(50, 0, 50_000, 0, 9_000)})["dear"] > 0.5


@pytest.mark.parametrize("price", [None, ModelPrice(0.0, 0.0, 0.0)])
def test_without_a_price_that_tells_them_apart_tokens_count(price: ModelPrice | None) -> None:
    mix = ModelMix((MixedModel("terse", 1.0, price), MixedModel("wordy", 1.0, price)))
    terse, wordy = Written(50, 10, 5_000, 0, 500), Written(50, 10, 5_000, 0, 50_000)

    assert shares(mix, {"terse": terse, "wordy": wordy})["terse"] > 0.9


def test_without_tokens_each_child_costs_the_same() -> None:
    drawn = shares(TWO, {"a": Written(50, 10), "b": Written(50, 10)})

    assert drawn["a"] == pytest.approx(0.5, abs=0.05)


def test_a_model_that_has_written_nothing_costs_what_the_tokens_of_the_others_would() -> None:
    mix = ModelMix(
        (
            MixedModel("dear", 1.0, ModelPrice(100.0, 100.0, 100.0)),
            MixedModel("cheap", 1.0, ModelPrice(1.0, 1.0, 1.0)),
        )
    )

    assert shares(mix, {"cheap": Written(20, 6, 20_000, 0, 4_000)})["cheap"] > 0.9


def test_a_free_model_that_never_gains_does_not_keep_a_priced_one_out() -> None:
    mix = ModelMix(
        (
            MixedModel("free", 1.0, ModelPrice(0.0, 0.0, 0.0)),
            MixedModel("priced", 1.0, ModelPrice(1.0, 1.0, 1.0)),
        )
    )
    written = {
        "free": Written(10**5, 0, 10**8, 0, 10**7),
        "priced": Written(50, 10, 50_000, 0, 5_000),
    }

    assert shares(mix, written)["priced"] > 0.9


def test_the_same_counts_and_the_same_seed_draw_the_same_model() -> None:
    written = {
        "a": Written(9, 3, 100, 0, 30),
        "b": Written(7, 2, 90, 10, 40),
        "gone": Written(5, 5),
    }

    draws = [[TWO.draw(written, Random(f"{n}/model")) for n in range(50)] for _ in range(2)]

    assert draws[0] == draws[1]
    assert set(draws[0]) == {"a", "b"}


def test_only_prompts_in_the_role_of_their_draft_are_addressed() -> None:
    drafts = [Draft(3, 0, 0, 1, ("p",)), Draft(4, 0, 0, 1, ("p",), role=Role.REFINER)]
    prompts = [
        Prompt("", "write", 3),
        Prompt("", "refine", 4, Role.REFINER),
        Prompt("", "advise", 3, Role.ADVERSARY),
        Prompt("", "named", 3, model="own"),
    ]

    named = addressed(drafts, {3: "a", 4: "b"}, prompts)

    assert [prompt.model for prompt in named] == ["a", "b", "", "own"]
    assert addressed(drafts, {}, prompts) == prompts


def test_the_model_that_answered_is_asked_for_the_repair() -> None:
    prompts = [
        Prompt("", "write", 3, model="a"),
        Prompt("", "write", 4, model="b"),
        Prompt("", "advise", 3, Role.ADVERSARY),
    ]
    replies = [Completion("", "a"), Completion("", "reserve"), Completion("", "adviser")]

    assert answered_by({3: "a", 4: "b"}, prompts, replies) == {3: "a", 4: "reserve"}


def settings(*assignments: str) -> Resolved:
    return resolved([from_assignments(assignments)], {})


MODELS = (
    "llm.models=[{name: a, weight: 2, usd_per_million_prompt_tokens: 1, "
    "usd_per_million_completion_tokens: 4}, {name: b, usd_per_million_prompt_tokens: 1}, "
    "{name: reserve, weight: 0}]"
)


def test_the_mix_of_the_settings_has_the_weights_and_whole_prices_and_no_reserve() -> None:
    mixes = mixes_of(settings(MODELS, "llm.adaptive_weights=true").settings.llm)

    mix = ModelMix((MixedModel("a", 2.0, ModelPrice(1.0, 1.0, 4.0)), MixedModel("b", 1.0)))
    assert mixes == {Role.GENERATOR: mix, Role.REFINER: mix}
    assert mixes_of(settings(MODELS).settings.llm) == {}


def test_a_refiner_of_one_model_has_no_mix() -> None:
    refined = settings(MODELS, "llm.adaptive_weights=true", "llm.roles.refiner.model=big")

    assert set(mixes_of(refined.settings.llm)) == {Role.GENERATOR}


@pytest.mark.parametrize(
    ("assignments", "asks", "what"),
    [
        (("llm.model=m",), True, "no two models"),
        (("llm.models=[{name: a}, {name: b, weight: 0}]",), True, "no two models"),
        (("llm.models=[{name: a}, {name: a, temperature: 1}]",), True, "have one name"),
        ((MODELS,), False, "no operator of the run asks a model"),
    ],
)
def test_it_is_refused_where_there_is_nothing_to_draw(
    assignments: tuple[str, ...], asks: bool, what: str
) -> None:
    run = settings("llm.adaptive_weights=true", *assignments)

    with pytest.raises(UsageError, match=what):
        require_mix(run.settings, asks=asks)
    require_mix(without_models(run).settings, asks=asks)
    require_mix(settings(*assignments).settings, asks=asks)
