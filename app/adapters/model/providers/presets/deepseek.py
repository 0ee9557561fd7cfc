"""DeepSeek's own endpoint.

It takes no `n` and no `seed`, and its reasoner ignores `temperature` and `top_p`.  Cached prompt
tokens are counted under a name of their own, `prompt_cache_hit_tokens`.

Source: https://api-docs.deepseek.com (address), its page "Create Chat Completion" (parameters).
"""

from app.adapters.model.providers.presets.preset import Preset, Request, without


def shape(request: Request) -> Request:
    """Returns the request without what the endpoint does not know."""
    return without(request, "seed", "n")


PRESET = Preset("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY", samples=False, shape=shape)
