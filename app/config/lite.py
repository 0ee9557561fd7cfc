"""A configuration of FunSearch-Lite as settings of a run; the command names its problem."""

from collections.abc import Mapping
from typing import Any

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
_WITHOUT_EFFECT = {
    "run_id": "--name names a run",
    "task_name": "the task is the PROBLEM of the command",
    "evaluator": "the problem's own files say how it is evaluated",
    "artifact_dir": "--out names the folder of the results",
    "save_interval": "everything is stored at once",
}
FRESH_SHARE = 0.1
"""Programs from scratch in a generation, as FunSearch-Lite's default has it."""


def recognises(loaded: Any) -> bool:
    """Returns whether a parsed file is a configuration of FunSearch-Lite."""
    return isinstance(loaded, dict) and len(OWN_KEYS & {str(key) for key in loaded}) >= 2


def settings(loaded: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Returns settings by dotted name, and a sentence on each key without effect.

    Raises:
      ValueError: A key is unknown, or has a value that cannot be used.
    """
    known = {*OWN_KEYS, *_PLAIN, *_WITHOUT_EFFECT}
    for key in loaded:
        if key not in known:
            raise ValueError(f"`{key}` is no key of FunSearch-Lite")
    values: dict[str, Any] = {"search.strategy": "funsearch_lite"}
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
    reasons = {key: why for key, why in _WITHOUT_EFFECT.items() if key in loaded}
    return values, tuple(f"`{key}`: without effect, because {why}." for key, why in reasons.items())


def _count(loaded: Mapping[str, Any], key: str, default: int) -> int:
    value = loaded.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"`{key}` must be a whole number above 0, not {value!r}")
    return value


def _models(loaded: Mapping[str, Any]) -> dict[Any, dict[str, Any] | None]:
    """Returns provider id to model; None for `fake`, which a search without a model replaces."""
    providers = loaded.get("llm_providers") or []
    if not isinstance(providers, list) or not all(
        isinstance(provider, dict) for provider in providers
    ):
        raise ValueError("`llm_providers` must be a list of providers")
    models: dict[Any, dict[str, Any] | None] = {}
    for provider in providers:
        model = {"name": provider.get("model_name"), "provider": provider.get("provider_type")}
        if "timeout_seconds" in provider:
            model["timeout_seconds"] = provider["timeout_seconds"]
        if "max_retries" in provider:
            model["retries"] = provider["max_retries"]
        models[provider.get("provider_id")] = None if model["provider"] == "fake" else model
    for key in ("generator_provider_id", "refiner_provider_id"):
        if key in loaded and loaded[key] not in models:
            raise ValueError(f"`{key}`: no provider is called {loaded[key]!r}")
    return models
