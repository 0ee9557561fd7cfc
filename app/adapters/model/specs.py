"""From settings to a model with its endpoint's address, key and quirks; imports no client."""

from collections.abc import Callable

from app.adapters.model import presets
from app.adapters.model.chat import OPENAI_URL, ModelSpec
from app.adapters.model.presets.preset import Preset
from app.model_settings import OPENAI_KEY, ModelChoice

Environment = Callable[[str], str | None]
"""Looks a variable up; None where it is not set."""


def model_spec(choice: ModelChoice, environment: Environment) -> ModelSpec:
    """Returns how to ask a model that has inherited all it can.

    Where no provider is named, a known host's key is looked for in the variable of its provider and
    then, as OpenEvolve has it, in OpenAI's.
    """
    preset, address = _endpoint(choice, environment)
    own = choice.provider is not None or environment(preset.key_variable)
    variable = choice.api_key_variable or (preset.key_variable if own else OPENAI_KEY)
    told = choice.model_dump(
        exclude={"provider", "base_url", "api_key_variable"}, exclude_none=True
    )
    prices = {
        "prompt_usd": told.pop("usd_per_million_prompt_tokens", None),
        "cached_usd": told.pop("usd_per_million_cached_tokens", None),
        "completion_usd": told.pop("usd_per_million_completion_tokens", None),
    }
    return ModelSpec(
        base_url=address,
        api_key=environment(variable) or "",
        key_variable=variable,
        preset=preset,
        **{"temperature": None, **told},
        **prices,
    )


def _endpoint(choice: ModelChoice, environment: Environment) -> tuple[Preset, str]:
    if choice.provider is not None:
        preset = presets.PRESETS[choice.provider]
        return preset, choice.base_url or preset.base_url
    address = choice.base_url or environment("OPENAI_BASE_URL") or OPENAI_URL
    return presets.at(address), address
