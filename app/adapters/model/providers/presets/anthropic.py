"""Anthropic's OpenAI-compatible endpoint of the Claude models.

`n` must be exactly 1; a `temperature` above 1 counts as 1; `seed` and `reasoning_effort` are
ignored, and are not sent.

Source: https://platform.claude.com/docs/en/api/openai-sdk.
"""

from app.adapters.model.providers.presets.preset import Preset, Request, without

_HOTTEST = 1.0


def shape(request: Request) -> Request:
    """Returns the request without what the endpoint ignores or refuses."""
    kept = dict(without(request, "seed", "n", "reasoning_effort"))
    if "temperature" in kept:
        kept["temperature"] = min(_HOTTEST, kept["temperature"])
    return kept


PRESET = Preset("https://api.anthropic.com/v1", "ANTHROPIC_API_KEY", samples=False, shape=shape)
