"""From settings to a model with its endpoint's address, key and quirks; imports no client."""

from collections.abc import Callable

from app.adapters.model.providers import presets
from app.adapters.model.providers.chat import OPENAI_URL, ModelSpec
from app.adapters.model.providers.presets.preset import Preset
from app.config.models import OPENAI_KEY, ModelChoice, sound_address
from app.ports.protocols import Misconfigured

_ADDRESS = "OPENAI_BASE_URL"

Environment = Callable[[str], str | None]
"""Looks a variable up; None where it is not set."""


def model_spec(choice: ModelChoice, environment: Environment) -> ModelSpec:
    """Returns how to ask a model that has inherited all it can.

    Where no provider is named, a known host's key is looked for in the variable of its provider and
    then, as OpenEvolve has it, in OpenAI's.

    Raises:
      Misconfigured: A key or an address in the environment is none.
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
        api_key=_key(variable, environment),
        key_variable=variable,
        preset=preset,
        **{"temperature": None, **told},
        **prices,
    )


def _endpoint(choice: ModelChoice, environment: Environment) -> tuple[Preset, str]:
    if choice.provider is not None:
        preset = presets.PRESETS[choice.provider]
        return preset, choice.base_url or preset.base_url
    if choice.base_url:
        return presets.at(choice.base_url), choice.base_url
    try:
        address = sound_address(environment(_ADDRESS) or OPENAI_URL)
    except ValueError as error:
        raise Misconfigured(f"{_ADDRESS} in the worker's environment: {error}") from error
    return presets.at(address), address


def _key(variable: str, environment: Environment) -> str:
    """Returns a key without the newline that files of secrets end with; "" where there is none."""
    key = (environment(variable) or "").strip()
    if not (key.isascii() and key.isprintable()):
        place = next(n for n, one in enumerate(key, 1) if not " " <= one <= "~")
        raise Misconfigured(
            f"the key in {variable} cannot be sent: character {place} is not printable ASCII. Copy "
            "it again"
        )
    return key
