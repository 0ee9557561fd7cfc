"""OpenRouter: many vendors behind one address; model names are `vendor/model`.

What the vendor behind a model does not take, OpenRouter drops rather than refuses.  How many
choices come back is up to the vendor, so samples are asked for one by one.

Source: https://openrouter.ai/docs/api-reference/overview and …/parameters.
"""

from app.adapters.model.providers.presets.openai import shape
from app.adapters.model.providers.presets.preset import Preset

PRESET = Preset("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", samples=False, shape=shape)
