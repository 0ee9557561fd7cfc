"""A configuration of FunSearch-Lite: settings of a run, its problem, its name and its folder."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeGuard

OWN_KEYS = frozenset(
    {
        *("max_generations", "population_size", "top_k_for_full_eval", "task_name"),
        *("llm_providers", "generator_provider_id", "refiner_provider_id"),
    }
)
"""Keys of which two make a file one of FunSearch-Lite's."""
_DEFAULTS = {"max_generations": 20, "population_size": 50, "num_islands": 3}
_PLAIN = {
    "seed": "search.seed",
    "num_islands": "search.islands",
    "population_size": "strategy.population",
    "top_k_for_full_eval": "strategy.top_k",
}
_OF_THE_RUN = ("run_id", "task_name", "artifact_dir", "evaluator")
_OF_A_PROVIDER = {
    "model_name": "name",
    "provider_type": "provider",
    "base_url": "base_url",
    "api_key_env": "api_key_variable",
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "max_tokens",
    "timeout_seconds": "timeout_seconds",
    "max_retries": "retries",
}
"""Key of a provider to the setting of a model."""
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_WITHOUT_EFFECT = {"save_interval": "everything is stored at once"}
FRESH_SHARE = 0.1
"""Programs from scratch in a generation, as FunSearch-Lite's default has it."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """What a configuration says beside settings; "" for what it leaves out.

    Attributes:
      task: The folder of the problem.
      run: The run's name.
      folder: The folder that holds a folder of results for each run.
    """

    task: str = ""
    run: str = ""
    folder: str = ""


def recognises(loaded: object) -> TypeGuard[Mapping[str, object]]:
    """Returns whether a parsed file is a configuration of FunSearch-Lite."""
    return isinstance(loaded, dict) and len(OWN_KEYS & {str(key) for key in loaded}) >= 2


def settings(loaded: Mapping[str, object]) -> tuple[dict[str, object], tuple[str, ...]]:
    """Returns settings by dotted name, and a sentence on each key without effect.

    Raises:
      ValueError: A key is unknown, or has a value that cannot be used.
    """
    known = {*OWN_KEYS, *_PLAIN, *_OF_THE_RUN, *_WITHOUT_EFFECT}
    for key in loaded:
        if key not in known:
            raise ValueError(f"`{key}` is no key of FunSearch-Lite")
    values: dict[str, object] = {"search.strategy": "funsearch_lite"}
    values |= {setting: loaded[key] for key, setting in _PLAIN.items() if key in loaded}
    generations, population, islands = (
        _count(loaded, key, default) for key, default in _DEFAULTS.items()
    )
    models = _models(loaded)
    generator = models.get(loaded.get("generator_provider_id"))
    refiner = models.get(loaded.get("refiner_provider_id"))
    fresh = max(1, round(FRESH_SHARE * population))
    refinements = min(2, population - fresh) if refiner else 0
    values |= {
        "budget.proposals": generations * population * islands,
        "strategy.fresh": fresh,
        "strategy.refinements": refinements,
        "strategy.mutations": population - fresh - refinements,
    }
    if generator:
        values["llm.models"] = [generator]
    if refiner:
        values["llm.roles.refiner.models"] = [refiner]
    if loaded.get("evaluator") is not None:
        values["problem.environment"] = _variables(loaded["evaluator"])
    reasons = {key: why for key, why in _WITHOUT_EFFECT.items() if key in loaded}
    return values, tuple(f"`{key}`: without effect, because {why}." for key, why in reasons.items())


def _count(loaded: Mapping[str, object], key: str, default: int) -> int:
    value = loaded.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"`{key}` must be a whole number above 0, not {value!r}")
    return value


def experiment(loaded: Mapping[str, object]) -> Experiment:
    """Returns what a configuration says beside settings.

    Raises:
      ValueError: A value is no text.
    """
    texts = []
    for key in ("task_name", "run_id", "artifact_dir"):
        value = loaded.get(key, "")
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise ValueError(f"`{key}` must be a text, not {value!r}")
        texts.append(str(value))
    return Experiment(*texts)


def _variables(evaluator: object) -> dict[str, str]:
    """Returns the environment of the evaluator: each key in capital letters, with its value."""
    if not isinstance(evaluator, dict) or any(
        isinstance(value, dict | list) for value in evaluator.values()
    ):
        raise ValueError("`evaluator` must be a mapping of names to numbers or texts")
    return {str(key).upper(): str(value) for key, value in evaluator.items()}


def _models(loaded: Mapping[str, object]) -> dict[object, dict[str, object] | None]:
    """Returns provider id to model; None for `fake`, which a search without a model replaces."""
    providers = loaded.get("llm_providers") or []
    if not isinstance(providers, list) or not all(
        isinstance(provider, dict) for provider in providers
    ):
        raise ValueError("`llm_providers` must be a list of providers")
    models = {provider.get("provider_id"): _model(provider) for provider in providers}
    for key in ("generator_provider_id", "refiner_provider_id"):
        if key in loaded and loaded[key] not in models:
            raise ValueError(f"`{key}`: no provider is called {loaded[key]!r}")
    return models


def _model(provider: Mapping[str, object]) -> dict[str, object] | None:
    """Returns the model of a provider.

    Raises:
      ValueError: A key is unknown: a prompt or a key could go to another host than was meant.
    """
    known = ("provider_id", "api_key", *_OF_A_PROVIDER)
    for key in provider:
        if key not in known:
            raise ValueError(
                f"`llm_providers`: `{key}` of {provider.get('provider_id')!r} is no key of a "
                f"provider; known are {', '.join(known)}"
            )
    if provider.get("provider_type") == "fake":
        return None
    model = {
        setting: provider[key]
        for key, setting in _OF_A_PROVIDER.items()
        if provider.get(key) is not None
    }
    if provider.get("api_key") is not None:
        variable = _VARIABLE.fullmatch(str(provider["api_key"]))
        if variable is None:
            raise ValueError(
                "`llm_providers`: `api_key` must be ${NAME} of an environment variable, because "
                "settings are stored; a key is never"
            )
        model["api_key_variable"] = variable[1]
    return model
