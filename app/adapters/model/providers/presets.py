"""Endpoints by name: address, key variable and peculiarities.  No I/O."""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import urlsplit

from app.config.models import Provider

Request: TypeAlias = Mapping[str, object]
"""The arguments of one chat request, by OpenAI's names."""

_REASONING = ("o1", "o3", "o4", "gpt-5", "gpt-oss-20b", "gpt-oss-120b")
_CHATTING = ("gpt-5-chat",)
_HIGHEST_TEMPERATURE_OF_ANTHROPIC = 1.0


def _unchanged(request: Request) -> Request:
    """Returns the request as it is."""
    return request


def without(request: Request, *names: str) -> Request:
    """Returns the request without these parameters."""
    return {name: value for name, value in request.items() if name not in names}


def reasons(model: str) -> bool:
    """Returns whether a name is that of one of OpenAI's reasoning models."""
    name = model.lower().rpartition("/")[2]
    return name.startswith(_REASONING) and not name.startswith(_CHATTING)


def openai_request(request: Request) -> Request:
    """Returns the request in the form that OpenAI's model takes.

    Reasoning models take `max_completion_tokens` for `max_tokens` and refuse `temperature` and
    `top_p`.  Their names tell which models reason, as in OpenEvolve.

    Source: the endpoint's messages "Unsupported parameter: 'max_tokens' is not supported with this
    model. Use 'max_completion_tokens' instead." and "Unsupported value: 'temperature' does not
    support 0.2 with this model."; https://github.com/BerriAI/litellm/issues/13781 (gpt-5-chat does
    not reason).
    """
    if not reasons(str(request["model"])):
        return request
    limited = {"max_completion_tokens": request["max_tokens"]} if "max_tokens" in request else {}
    return {**without(request, "temperature", "top_p", "max_tokens"), **limited}


def _without_seed(request: Request) -> Request:
    """Returns the request without what DeepSeek's and Google's endpoints do not take.

    DeepSeek takes no `n` and no `seed`.  Google's endpoint refuses every parameter that it does not
    know with a 400, `seed` among them: "Invalid JSON payload received. Unknown name "seed": Cannot
    find field."  Several candidates are not enabled for every model of Google's.

    Source: https://api-docs.deepseek.com, its page "Create Chat Completion";
    https://github.com/algorithmicsuperintelligence/openevolve/issues/105 (`seed`).
    """
    return without(request, "seed", "n")


def _anthropic_request(request: Request) -> Request:
    """Returns the request without what Anthropic's endpoint ignores or refuses.

    `n` must be exactly 1; a `temperature` above 1 counts as 1; `seed` and `reasoning_effort` are
    ignored.

    Source: https://platform.claude.com/docs/en/api/openai-sdk.
    """
    kept = dict(without(request, "seed", "n", "reasoning_effort"))
    if isinstance(asked := kept.get("temperature"), int | float):
        kept["temperature"] = min(_HIGHEST_TEMPERATURE_OF_ANTHROPIC, asked)
    return kept


class Api(enum.StrEnum):
    """The wire form of an endpoint's requests and answers; see `choose.WIRES`."""

    OPENAI = "openai"


@dataclass(frozen=True, slots=True)
class Preset:
    """An endpoint known by name.

    Attributes:
      base_url: Its address; of a local server, the address on which it listens by default.
      key_variable: Environment variable that usually holds its key.
      needs_key: Whether it refuses requests without a key.
      samples: Whether it takes `n` above 1.
      shape: Turns a request into one that the endpoint takes.
      api: The form of its requests and answers.
    """

    base_url: str
    key_variable: str
    needs_key: bool = True
    samples: bool = True
    shape: Callable[[Request], Request] = _unchanged
    api: Api = Api.OPENAI


NO_ENDPOINT = Preset("", "", needs_key=False)
"""A provider that is not reached over HTTP."""

UNKNOWN = Preset("", "OPENAI_API_KEY", needs_key=False, shape=openai_request)
"""An endpoint of which only the address is known."""


PRESETS: Mapping[Provider, Preset] = {
    Provider.OPENAI: Preset("https://api.openai.com/v1", "OPENAI_API_KEY", shape=openai_request),
    # Cached prompt tokens are counted under a name of DeepSeek's own: see `openai`.
    Provider.DEEPSEEK: Preset(
        "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY", samples=False, shape=_without_seed
    ),
    # The time to wait after a 429 is in the body, as `retryDelay`.  Source:
    # https://ai.google.dev/gemini-api/docs/openai (address, key);
    # https://cloud.google.com/apis/design/errors (`google.rpc.RetryInfo`).
    Provider.GEMINI: Preset(
        "https://generativelanguage.googleapis.com/v1beta/openai",
        "GEMINI_API_KEY",
        samples=False,
        shape=_without_seed,
    ),
    Provider.ANTHROPIC: Preset(
        "https://api.anthropic.com/v1",
        "ANTHROPIC_API_KEY",
        samples=False,
        shape=_anthropic_request,
    ),
    # Many vendors behind one address, with models named `vendor/model`.  OpenRouter drops what
    # the vendor does not take, and the number of choices is up to the vendor.  Source:
    # https://openrouter.ai/docs/api-reference/overview and …/parameters.
    Provider.OPENROUTER: Preset(
        "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", samples=False, shape=openai_request
    ),
    # Takes `n`, with a seed of its own for each choice, and `max_tokens` for every model;
    # answers 503 without `Retry-After` when its queue is full, never 429.  Source: 0.32.0;
    # https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html.
    Provider.VLLM: Preset("http://localhost:8000/v1", "VLLM_API_KEY", needs_key=False),
    # `llama-server`.  Source: the README in `tools/server` of github.com/ggml-org/llama.cpp.
    Provider.LLAMACPP: Preset(
        "http://localhost:8080/v1", "LLAMA_API_KEY", needs_key=False, samples=False
    ),
    # `n` is not among the fields that Ollama supports; `seed` is.  Source:
    # https://docs.ollama.com/api/openai-compatibility.
    Provider.OLLAMA: Preset(
        "http://localhost:11434/v1", "OLLAMA_API_KEY", needs_key=False, samples=False
    ),
    Provider.HUMAN: NO_ENDPOINT,
    Provider.REPLAY: NO_ENDPOINT,
}
"""The providers, each with its endpoint; a row for each member of `Provider`."""


def preset_at(base_url: str) -> Preset:
    """Returns the preset of a hosted endpoint by its address; `UNKNOWN` for any other."""
    host = urlsplit(base_url).hostname
    hosted = (preset for preset in PRESETS.values() if preset.needs_key)
    return next((each for each in hosted if urlsplit(each.base_url).hostname == host), UNKNOWN)
