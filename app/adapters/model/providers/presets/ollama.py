"""A local Ollama server.

`n` is not among the fields it supports; `seed` is.

Source: https://docs.ollama.com/api/openai-compatibility.
"""

from app.adapters.model.providers.presets.preset import Preset

PRESET = Preset("http://localhost:11434/v1", "OLLAMA_API_KEY", needs_key=False, samples=False)
