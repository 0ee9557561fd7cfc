"""Google's OpenAI-compatible endpoint of the Gemini models.

It refuses every parameter it does not know with a 400, `seed` among them: "Invalid JSON payload
received. Unknown name "seed": Cannot find field."  Several candidates are not enabled for every
model, so samples are asked for one by one.  How long to wait after a 429 is not in a header but in
the body, as `retryDelay`.

Source: https://ai.google.dev/gemini-api/docs/openai (address, key);
https://github.com/algorithmicsuperintelligence/openevolve/issues/105 (`seed`);
https://cloud.google.com/apis/design/errors (`google.rpc.RetryInfo`).
"""

from app.adapters.model.providers.presets.preset import Preset, Request, without


def shape(request: Request) -> Request:
    """Returns the request without what the endpoint refuses."""
    return without(request, "seed", "n")


PRESET = Preset(
    "https://generativelanguage.googleapis.com/v1beta/openai",
    "GEMINI_API_KEY",
    samples=False,
    shape=shape,
)
