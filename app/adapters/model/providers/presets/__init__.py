"""OpenAI-compatible endpoints by name, one a module: address, key variable and quirks.  No I/O."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from app.adapters.model.providers.presets import (
    anthropic,
    deepseek,
    gemini,
    llamacpp,
    ollama,
    openai,
    openrouter,
    vllm,
)
from app.adapters.model.providers.presets.preset import Preset

NO_ENDPOINT = Preset("", "", needs_key=False)
"""Who is not asked over HTTP."""

PRESETS: Mapping[str, Preset] = {
    "openai": openai.PRESET,
    "deepseek": deepseek.PRESET,
    "gemini": gemini.PRESET,
    "anthropic": anthropic.PRESET,
    "openrouter": openrouter.PRESET,
    "vllm": vllm.PRESET,
    "llamacpp": llamacpp.PRESET,
    "ollama": ollama.PRESET,
    "human": NO_ENDPOINT,
    "replay": NO_ENDPOINT,
}
"""By the names `app.config.models.Provider` lists; a test compares the two."""

UNKNOWN = Preset("", "OPENAI_API_KEY", needs_key=False, shape=openai.shape)
"""An endpoint of which only the address is known."""


def at(base_url: str) -> Preset:
    """Returns the preset of a hosted endpoint by its address; `UNKNOWN` for any other."""
    host = urlsplit(base_url).hostname
    hosted = (one for one in PRESETS.values() if one.needs_key)
    return next((one for one in hosted if urlsplit(one.base_url).hostname == host), UNKNOWN)
