"""The server of llama.cpp, `llama-server`.

Source: https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md (address,
`--api-key` and its variable `LLAMA_API_KEY`).
"""

from app.adapters.model.providers.presets.preset import Preset

PRESET = Preset("http://localhost:8080/v1", "LLAMA_API_KEY", needs_key=False, samples=False)
