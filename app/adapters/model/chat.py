"""The chat protocol as plain values: what is asked, what was answered, what a status means."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from app.adapters.model.presets import UNKNOWN, openai
from app.adapters.model.presets.preset import Preset
from app.domain.operator import Completion, Prompt

OPENAI_URL = openai.PRESET.base_url
_RETRIED = frozenset((408, 409, 425, 429))
_WITHHELD = frozenset(("content_filter", "content_policy_violation"))
_REMEDIES = {
    400: "check the model's name and parameters, and prompts.max_prompt_chars against its context",
    401: "check the key in the variable that llm.api_key_variable names",
    402: "the account has no credit left: pay, or choose another model",
    403: "this key may not use this model: choose another model or another key",
    404: "check llm.base_url (it usually ends in /v1) and the model's name",
}


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One model and how it is asked.

    Attributes:
      weight: Its share of the prompts, relative to the other models'.
      api_key: "" where the endpoint asks for none.
      key_variable: Where the key was looked for; named in messages, the key never is.
      preset: What the endpoint takes.
      temperature, top_p: None leaves them to the endpoint.
      max_tokens: Longest completion, reasoning included.
      timeout_seconds: Of one attempt.
      deadline_seconds: For one prompt, with all its attempts and pauses.
      retries: Attempts after the first.
      retry_delay_seconds: Longest first pause; doubled for each further one.
      max_in_flight: Requests of this process at the endpoint at once.
      seeded: Whether a seed is sent, where the endpoint takes one.
      system_message: Takes the place of every prompt's system text; None leaves it.
      prompt_usd, cached_usd, completion_usd: Price of a million tokens; None: not known, and for
        cached prompt tokens that of the others.
    """

    name: str
    weight: float = 1.0
    base_url: str = OPENAI_URL
    api_key: str = field(default="", repr=False)
    key_variable: str = "OPENAI_API_KEY"
    preset: Preset = UNKNOWN
    temperature: float | None = 0.7
    top_p: float | None = None
    max_tokens: int = 4096
    timeout_seconds: float = 60.0
    deadline_seconds: float = 300.0
    retries: int = 3
    retry_delay_seconds: float = 1.0
    max_in_flight: int = 128
    seeded: bool = True
    reasoning_effort: str | None = None
    system_message: str | None = None
    prompt_usd: float | None = None
    cached_usd: float | None = None
    completion_usd: float | None = None


def request(spec: ModelSpec, prompt: Prompt, seed: int) -> dict[str, Any]:
    """Returns the arguments of a chat request."""
    system = prompt.system if spec.system_message is None else spec.system_message
    asked: dict[str, Any] = {
        "model": spec.name,
        "messages": [
            *([{"role": "system", "content": system}] if system else []),
            {"role": "user", "content": prompt.user},
        ],
    }
    told = {
        "max_tokens": spec.max_tokens,
        "temperature": spec.temperature,
        "top_p": spec.top_p,
        "reasoning_effort": spec.reasoning_effort,
        "seed": seed if spec.seeded else None,
    }
    asked |= {name: value for name, value in told.items() if value is not None}
    return dict(spec.preset.shape(asked))


def parameters(spec: ModelSpec, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what shapes the answer to a request beside its prompt; see `Completion.parameters`.

    Args:
      spec: Who is asked.
      asked: What `request` made of the prompt.
    """
    told = {name: value for name, value in asked.items() if name != "messages"}
    told["endpoint"] = spec.base_url.rpartition("://")[2].rpartition("@")[2]
    if spec.system_message is not None:
        told["system"] = spec.system_message
    return told


def completion(
    spec: ModelSpec, prompt: Prompt, content: bytes, latency_seconds: float
) -> Completion | None:
    """Reads the body of a 200; None where it is not a chat completion.

    A completion without a text is the model's answer, and empty; one without choices is none.
    """
    try:
        match json.loads(content):
            case {"choices": [{"message": {**message}, **choice}, *_], **rest}:
                text, finish = message.get("content"), choice.get("finish_reason")
                if not text and isinstance(message.get("refusal"), str):
                    text, finish = message["refusal"], "refusal"
            case _:
                return None
    except ValueError:  # not JSON, or not even UTF-8
        return None
    usage = rest.get("usage")
    spent = _spent(usage if isinstance(usage, dict) else {})
    return Completion(
        text=text if isinstance(text, str) else "",
        model=spec.name,
        finish=finish if isinstance(finish, str) else "",
        prompt_tokens=spent.prompt,
        completion_tokens=spent.completion,
        latency_seconds=latency_seconds,
        cost_usd=_cost_usd(spec, spent),
        cached_tokens=spent.cached,
        role=prompt.role,
        revision=_revision(spec, rest),
    )


def passing(status: int, code: str | None) -> bool:
    """Says whether a refused request may succeed when it is repeated."""
    return (status in _RETRIED and code != "insufficient_quota") or status >= 500


def withheld(code: str | None) -> bool:
    """Says whether it was the prompt's subject that was refused."""
    return code in _WITHHELD


def refusal(spec: ModelSpec, status: int, message: str) -> str:
    """Returns what a person needs to know of a request that no retry will help."""
    remedy = _REMEDIES.get(status, "read the endpoint's message above")
    if status == 429:
        remedy = _REMEDIES[402]
    if status == 401:
        state = "set" if spec.api_key else "not set"
        remedy += f" ({spec.key_variable}, which is {state})"
    said = message.replace(spec.api_key, "<key>") if spec.api_key else message
    return f"model {spec.name!r} at {spec.base_url} answered HTTP {status}: {said[:400]}; {remedy}"


def retry_after_seconds(headers: Mapping[str, str]) -> float:
    """Returns how long the endpoint asks to be left alone; 0.0 where it does not say."""
    value = headers.get("retry-after", "")
    try:
        return max(0.0, min(float(value), 86_400.0))
    except ValueError:
        pass
    try:
        then = parsedate_to_datetime(value)
    except ValueError:
        return 0.0
    return max(0.0, (then - datetime.now(then.tzinfo or UTC)).total_seconds())


@dataclass(frozen=True, slots=True)
class _Spent:
    """Tokens of one completion; `cached` are among `prompt`."""

    prompt: int
    cached: int
    completion: int


def _spent(usage: Mapping[str, Any]) -> _Spent:
    prompt, details = _count(usage, "prompt_tokens"), usage.get("prompt_tokens_details")
    cached = _count(details, "cached_tokens") if isinstance(details, dict) else 0
    cached = cached or _count(usage, "prompt_cache_hit_tokens")  # DeepSeek's name for the same
    return _Spent(prompt, min(prompt, cached), _count(usage, "completion_tokens"))


def _cost_usd(spec: ModelSpec, spent: _Spent) -> float | None:
    if spec.prompt_usd is None or spec.completion_usd is None:
        return None
    cached_usd = spec.prompt_usd if spec.cached_usd is None else spec.cached_usd
    fresh = spent.prompt - spent.cached
    paid = fresh * spec.prompt_usd + spent.cached * cached_usd
    return (paid + spent.completion * spec.completion_usd) / 1e6


def _revision(spec: ModelSpec, answered: Mapping[Any, Any]) -> str:
    told = (answered.get("model"), answered.get("system_fingerprint"))
    return "@".join(one for one in told if isinstance(one, str) and one not in ("", spec.name))


def _count(usage: Mapping[str, Any], name: str) -> int:
    value = usage.get(name)
    return value if isinstance(value, int) and value > 0 else 0
