"""Google's OpenAI-compatible endpoint of the Gemini models.

It refuses every parameter it does not know with a 400, `seed` among them: "Invalid JSON payload
received. Unknown name "seed": Cannot find field."

Source: https://ai.google.dev/gemini-api/docs/openai (address, key);
https://github.com/algorithmicsuperintelligence/openevolve/issues/105 (`seed`).
"""

from app.adapters.model.presets.preset import Preset, Request, without


def shape(request: Request) -> Request:
    """Returns the request without what the endpoint refuses."""
    return without(request, "seed")


PRESET = Preset(
    "https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY", shape=shape
)
