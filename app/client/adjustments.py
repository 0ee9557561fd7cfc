"""Settings as they take effect here: by the keys, servers and operators that there are."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from app.adapters.model.providers.spec import model_spec
from app.adapters.tuning.cma import ask
from app.client.local_model import with_local_model
from app.client.setting_layers import SettingLayers
from app.config.checks import without_models
from app.config.layers import (
    Choices,
    UsageError,
)
from app.config.mix import one_function, operators
from app.config.models import ModelSettings, Provider
from app.config.resolve import PROBLEMS_OWN, Resolved
from app.config.rules import inside_settings
from app.config.settings import RunSettings
from app.domain.operators import operators as every_operator
from app.domain.operators.agent import AGENT
from app.domain.problem import Problem

A_DAY_SECONDS = 86_400.0


def with_servers_of_this_machine(
    problem: Problem, layers: SettingLayers
) -> tuple[Problem, SettingLayers]:
    """Returns both with the model of a server of this machine in the place of `auto`."""
    own = Choices(PROBLEMS_OWN, problem.suggestions, problem.notices)
    *given, own = with_local_model([*layers.choices, own])
    problem = replace(problem, suggestions=own.values, notices=own.notices)
    return problem, replace(layers, choices=tuple(given))


def without_keyless_models(resolution: Resolved) -> tuple[Resolved, list[str]]:
    """Drops models that only the problem's configuration names and that lack their key.

    Raises:
      UsageError: A model that the command line, the environment or --config names lacks its key.
    """
    specs = [model_spec(model, os.environ.get) for model in resolution.settings.llm.every_model]
    keyless = [s for s in specs if not s.api_key and urlsplit(s.base_url).scheme == "https"]
    if not keyless:
        return resolution, []
    names = ", ".join(dict.fromkeys(f"{spec.name} at {spec.base_url}" for spec in keyless))
    keys = ", ".join(dict.fromkeys(spec.key_variable for spec in keyless))
    naming = [name for name in resolution.sources if name.rpartition(".")[2] in ("model", "models")]
    naming += [name for name in resolution.sources if name.startswith("llm.roles")]
    if {resolution.sources[name] for name in naming} == {PROBLEMS_OWN}:
        return without_models(resolution), [
            f"no key is set ({keys}) for {names}, which the problem's configuration names: this "
            f"run asks no model and uses tune and mutate instead."
        ]
    if any(spec.preset.needs_key for spec in keyless):
        raise UsageError(
            f"no key is set for {names}",
            where=keys,
            remedy=f"Set the variable, {another_endpoint(resolution.settings.llm)}.",
        )
    return resolution, []


def with_human_models(resolution: Resolved) -> tuple[Resolved, list[str]]:
    """Gives a run that asks a person an absolute folder for its prompts, and a day's patience."""
    settings = resolution.settings
    if not any(model.provider is Provider.HUMAN for model in settings.llm.every_model):
        return resolution, []
    folder = Path(settings.llm.answers).absolute()
    changes: dict[str, object] = {"llm": replace(settings.llm, answers=str(folder))}
    if "queue.patience_seconds" not in resolution.sources:
        changes["queue"] = replace(settings.queue, patience_seconds=A_DAY_SECONDS)
    return replace(resolution, settings=settings.model_copy(update=changes)), [
        f"this run asks a person: its prompts are in {folder}, `evoq answer RUN` shows and answers "
        f"them."
    ]


def without_operators_of_models(resolution: Resolved) -> RunSettings:
    """Returns the settings without operators that only the problem names, where no model is."""
    settings = resolution.settings
    if resolution.sources.get("search.operators") != PROBLEMS_OWN or settings.llm.mix:
        return settings
    # Agents that ask no model make children all the same.
    if AGENT.name in (settings.search.operators or {}) and not settings.agent.network:
        return settings
    search = replace(settings.search, operators=None)
    return settings.model_copy(update={"search": search})


def with_operators_inside(
    resolution: Resolved, problem: Problem
) -> tuple[Resolved, Mapping[str, float]]:
    """Returns the settings with the operators of the runs inside, stored as they take effect."""
    inside = inside_settings(resolution.settings)
    if inside is None:
        return resolution, {}
    mix = operator_mix(inside, problem)
    nested = replace(resolution.settings.nested, operators=mix)
    settings = resolution.settings.model_copy(update={"nested": nested})
    return replace(resolution, settings=settings), mix


def with_function(problem: Problem, settings: RunSettings) -> RunSettings:
    """Returns settings that name the function that evolves.

    A child that adds a function beside it no longer says which one evolves.
    """
    if name := one_function(problem, settings.prompts.function):
        prompts = replace(settings.prompts, function=name)
        return settings.model_copy(update={"prompts": prompts})
    return settings


def operator_mix(settings: RunSettings, problem: Problem) -> dict[str, float]:
    return operators(settings, problem, every_operator(ask))


def models_elsewhere(llm: ModelSettings) -> list[str]:
    """Returns a sentence for each model that does not inherit the address that is set for all."""
    without_endpoint = (Provider.HUMAN, Provider.REPLAY)
    return [
        f"{model.name} names the provider {model.provider}, and is asked at "
        f"{model_spec(model, os.environ.get).base_url}, not at {address}: a model with a provider "
        f"inherits no address and no key"
        for model, address in llm.with_another_endpoint
        if model.provider not in without_endpoint
    ]


def another_endpoint(llm: ModelSettings) -> str:
    """Returns the words on how to ask an endpoint without a key, by what is set already."""
    for model, address in llm.with_another_endpoint:
        return (
            f"or leave out the provider {model.provider} of {model.name}, which then is asked at "
            f"{address}, or give it a base_url of its own"
        )
    if llm.base_url is None:
        return "or llm.base_url for an endpoint that needs none"
    return "or another address in llm.base_url, of an endpoint that needs none"
