"""Servers of language models on this machine: which answer, and what they serve.

The standard library alone asks them, and never through a proxy, because commands do so at once.
"""

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

SECONDS = 2.0
"""A server of this machine lists its models within milliseconds, also while it writes."""
NOBODY = "nothing listens there"
_BYTES = 1 << 22
_OLLAMA_CONTEXT = 4096
"""Source: https://docs.ollama.com/faq, "How can I specify the context window size?"."""


JsonObject: TypeAlias = dict[str, object]


@dataclass(frozen=True, slots=True)
class Kind:
    """A server program, and the port on which it listens by default."""

    name: str
    port: int

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"


VLLM = Kind("vLLM", 8000)
LLAMACPP = Kind("llama.cpp", 8080)
LM_STUDIO = Kind("LM Studio", 1234)
OLLAMA = Kind("Ollama", 11434)
KINDS = (VLLM, LLAMACPP, LM_STUDIO, OLLAMA)
"""In the order in which one is taken: first those that somebody started for one model."""
USUAL = tuple(kind.base_url for kind in KINDS)


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model that a server offers.

    Attributes:
      context_tokens: Tokens of the longest prompt with its reply; None where the server says none.
    """

    name: str
    context_tokens: int | None = None

    @property
    def text(self) -> str:
        """The model as people read it."""
        size = self.context_tokens
        return self.name if size is None else f"{self.name} ({size:,} tokens of context)"


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A server that answers.

    Attributes:
      kind: The program's name; "OpenAI-compatible" where it is none of `KINDS`.
      models: Those that write texts; the one that is loaded, or was used last, is the first.
    """

    kind: str
    base_url: str
    models: tuple[LocalModel, ...]

    @property
    def text(self) -> str:
        """The server as people read it."""
        first, *others = (model.text for model in self.models)
        more = f", and {len(others)} more models" if others else ""
        return f"{self.kind} at {self.base_url}: {first}{more}"


@dataclass(frozen=True, slots=True)
class NoServer:
    """An address at which no server offers a model, and why."""

    base_url: str
    reason: str


def local_servers(
    base_urls: Sequence[str] = USUAL, key: str = ""
) -> tuple[list[LocalServer], list[NoServer]]:
    """Asks each address, and returns the servers that offer a model, and the other addresses."""
    found, absent = [], []
    for base_url in base_urls:
        answer = server_at(base_url, key)
        if isinstance(answer, LocalServer):
            found.append(answer)
        else:
            absent.append(answer)
    return found, absent


def server_at(base_url: str, key: str = "") -> LocalServer | NoServer:
    """Returns the server at an address, or why it offers no model."""
    base_url = base_url.rstrip("/")
    root = base_url.removesuffix("/v1")
    try:
        listed = _listed(_get(f"{base_url}/models", key))
    except (OSError, ValueError) as error:
        return NoServer(base_url, _reason(error))
    names = [name for entry in listed if _writes(name := str(entry.get("id") or ""))]
    if any(entry.get("owned_by") == "vllm" for entry in listed):
        kind, models = VLLM.name, [_vllm(entry) for entry in listed if entry.get("id") in names]
    elif any(entry.get("owned_by") == "llamacpp" for entry in listed):
        size = _llamacpp_context(root, key)
        kind, models = LLAMACPP.name, [LocalModel(name, size) for name in names]
    elif _asked(f"{root}/api/version", key) is not None:
        kind, models = OLLAMA.name, _ollama(root, key, names)
    elif (details := _asked(f"{root}/api/v0/models", key)) is not None:
        kind, models = LM_STUDIO.name, _lm_studio(details)
    else:
        kind, models = "OpenAI-compatible", [LocalModel(name) for name in names]
    if not models:
        return NoServer(base_url, "it answers, and serves no model that writes texts")
    return LocalServer(kind, base_url, tuple(models))


def _writes(name: str) -> bool:
    """Returns whether a name is that of a model that writes texts, as far as a name tells."""
    return bool(name) and "embed" not in name.lower()


def _vllm(entry: JsonObject) -> LocalModel:
    return LocalModel(str(entry["id"]), _whole(entry.get("max_model_len")))


def _llamacpp_context(root: str, key: str) -> int | None:
    """Returns the tokens of one slot; what a model was trained for can be more."""
    properties = _asked(f"{root}/props", key) or {}
    slot = properties.get("default_generation_settings")
    return _whole(slot.get("n_ctx")) if isinstance(slot, dict) else None


def _ollama(root: str, key: str, names: Sequence[str]) -> list[LocalModel]:
    """Returns Ollama's models, those that are loaded first, with the context of the first."""
    loaded = _asked(f"{root}/api/ps", key) or {}
    sizes = {
        str(entry.get("name")): _whole(entry.get("context_length"))
        for entry in _entries(loaded.get("models"))
    }
    ordered = sorted(names, key=lambda name: name not in sizes)
    first, *others = ordered or [""]
    if not first:
        return []
    size = sizes.get(first) or _ollama_context(root, key, first)
    return [LocalModel(first, size), *(LocalModel(name, sizes.get(name)) for name in others)]


def _ollama_context(root: str, key: str, name: str) -> int | None:
    """Returns the tokens with which a model is loaded: its `num_ctx`, else Ollama's default.

    What is longer Ollama cuts without an error, so the default counts where a server was started
    with another, which it does not tell.
    """
    shown = _asked(f"{root}/api/show", key, {"model": name}) or {}
    for line in str(shown.get("parameters") or "").splitlines():
        option, _, value = line.strip().partition(" ")
        if option == "num_ctx" and value.strip().isdigit():
            return int(value)
    known = shown.get("model_info")
    sizes = known.items() if isinstance(known, dict) else ()
    trained = next((_whole(n) for name, n in sizes if name.endswith(".context_length")), None)
    return None if trained is None else min(trained, _OLLAMA_CONTEXT)


def _lm_studio(details: JsonObject) -> list[LocalModel]:
    entries = [
        entry
        for entry in _entries(details.get("data"))
        if _writes(str(entry.get("id") or "")) and entry.get("type") != "embeddings"
    ]
    ordered = sorted(entries, key=lambda entry: entry.get("state") != "loaded")
    return [
        LocalModel(
            str(entry["id"]),
            _whole(entry.get("loaded_context_length")) or _whole(entry.get("max_context_length")),
        )
        for entry in ordered
    ]


def _listed(answer: JsonObject) -> list[JsonObject]:
    if not isinstance(answer.get("data"), list):
        raise ValueError("it answers, but lists no models")
    return _entries(answer["data"])


def _entries(value: object) -> list[JsonObject]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _whole(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    return None


def _asked(url: str, key: str, body: JsonObject | None = None) -> JsonObject | None:
    """Returns what a server answers to a request that only some programs know, else None."""
    try:
        return _get(url, key, body)
    except (OSError, ValueError):
        return None


def _get(url: str, key: str, body: JsonObject | None = None) -> JsonObject:
    """Returns the JSON object at an address.

    Raises:
      OSError: There is no answer, or its status is an error.
      ValueError: The answer is no JSON object.
    """
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    if key:
        request.add_header("Authorization", f"Bearer {key}")
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(request, timeout=SECONDS) as response:
            answer = json.loads(response.read(_BYTES))
    except http.client.HTTPException as error:
        raise ValueError("what listens there does not speak HTTP") from error
    if not isinstance(answer, dict):
        raise ValueError("it answers, but lists no models")
    return answer


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"it answers {error.code} {error.reason}"
    if isinstance(error, urllib.error.URLError):
        error = error.reason if isinstance(error.reason, Exception) else error
    if isinstance(error, ConnectionRefusedError):
        return NOBODY
    if isinstance(error, TimeoutError):
        return f"no answer within {SECONDS:g} s"
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
        return "it answers, but not with JSON"
    return str(error)
