"""The chat protocol as plain values: what is asked, what was answered, what a status means."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from app.domain.operator import Completion, Prompt

OPENAI_URL = "https://api.openai.com/v1"
_REASONING = ("o1", "o3", "o4", "gpt-5", "gpt-oss-20b", "gpt-oss-120b")
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
      temperature, top_p: None leaves them to the endpoint; reasoning models get neither.
      max_tokens: Longest completion, reasoning included.
      timeout_seconds: Of one attempt.
      retries: Attempts after the first.
      seeded: Whether a seed is sent; Google's endpoint never gets one.
      system_message: Takes the place of every prompt's system text; None leaves it.
      prompt_usd, completion_usd: Price of a million tokens.
    """

    name: str
    weight: float = 1.0
    base_url: str = OPENAI_URL
    api_key: str = field(default="", repr=False)
    key_variable: str = "OPENAI_API_KEY"
    temperature: float | None = 0.7
    top_p: float | None = None
    max_tokens: int = 4096
    timeout_seconds: float = 60.0
    retries: int = 3
    seeded: bool = True
    reasoning_effort: str | None = None
    system_message: str | None = None
    prompt_usd: float = 0.0
    completion_usd: float = 0.0

    @property
    def reasons(self) -> bool:
        """Whether it is one of OpenAI's reasoning models, by its name."""
        return self.name.lower().rpartition("/")[2].startswith(_REASONING)


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
    if spec.reasons:
        asked["max_completion_tokens"] = spec.max_tokens
    else:
        asked["max_tokens"] = spec.max_tokens
        if spec.temperature is not None:
            asked["temperature"] = spec.temperature
        if spec.top_p is not None:
            asked["top_p"] = spec.top_p
    if spec.reasoning_effort is not None:
        asked["reasoning_effort"] = spec.reasoning_effort
    if spec.seeded and "generativelanguage.googleapis.com" not in spec.base_url:
        asked["seed"] = seed
    return asked


def completion(spec: ModelSpec, content: bytes, wall_seconds: float) -> Completion | None:
    """Reads the body of a 200; None where it is not a chat completion.

    A completion without a text is the model's answer, and empty; one without choices is none.
    """
    try:
        match json.loads(content):
            case {"choices": [{"message": {**message}, **choice}, *_], **rest}:
                text, finish = message.get("content"), choice.get("finish_reason")
            case _:
                return None
    except ValueError:  # not JSON, or not even UTF-8
        return None
    usage = rest.get("usage")
    asked, answered = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    model = rest.get("model")
    return Completion(
        text=text if isinstance(text, str) else "",
        model=model if isinstance(model, str) and model else spec.name,
        finish=finish if isinstance(finish, str) else "",
        prompt_tokens=asked,
        completion_tokens=answered,
        wall_seconds=wall_seconds,
        cost_usd=(asked * spec.prompt_usd + answered * spec.completion_usd) / 1e6,
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


def _count(usage: object, name: str) -> int:
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and value > 0 else 0
