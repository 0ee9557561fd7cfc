"""A vLLM server.

It takes `n`, with a seed of its own for each choice, `seed` and `max_tokens` for every model, and
answers 503 without `Retry-After` when its queue is full, never 429.

Source: measured on 0.32.0; https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html.
"""

from app.adapters.model.providers.presets.preset import Preset

PRESET = Preset("http://localhost:8000/v1", "VLLM_API_KEY", needs_key=False)
