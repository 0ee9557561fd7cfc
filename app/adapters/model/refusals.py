"""What an endpoint's refusal means: ask again, ask otherwise, or tell a person."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from app.adapters.model.chat import ModelSpec
from app.adapters.model.gate import Ended

_RETRIED = frozenset((408, 409, 425, 429))
_BUSY = frozenset((429, 503))
_WITHHELD = frozenset(("content_filter", "content_policy_violation"))
_ADJUSTABLE = ("max_tokens", "top_p", "temperature", "reasoning_effort", "seed", "n")
_UNKNOWN = re.compile(
    r"unsupported|not support|unknown|unrecognized|unexpected|not permitted|not allowed|deprecated"
    r"|cannot find|must be exactly 1|cannot both|only the default",
    re.IGNORECASE,
)
_RETRY_DELAY = re.compile(r'"retryDelay"\s*:\s*"([0-9.]+)s"')  # google.rpc.RetryInfo
_LONGEST_SECONDS = 86_400.0
_REMEDIES = {
    400: "check the model's name and parameters, and prompts.max_prompt_tokens against its context",
    401: "check the key in the variable that llm.api_key_variable names",
    402: "the account has no credit left: pay, or choose another model",
    403: "this key may not use this model: choose another model or another key",
    404: "check llm.base_url (it usually ends in /v1) and the model's name",
}


@dataclass(frozen=True, slots=True)
class Passing:
    """Why one attempt came to nothing, though the next may not.

    Attributes:
      billed: Whether the endpoint took the request and may have done its work.
    """

    ended: Ended
    reason: str
    retry_after_seconds: float = 0.0
    cause: BaseException | None = None
    billed: bool = False


@dataclass(frozen=True, slots=True)
class Untaken:
    """The model does not take a parameter, and can be asked without it."""

    parameter: str
    message: str


def passing(status: int, code: str | None) -> bool:
    """Says whether a refused request may succeed when it is repeated."""
    return (status in _RETRIED and code != "insufficient_quota") or status >= 500


def busy(status: int) -> bool:
    """Says whether the endpoint is there and has too much to do.

    vLLM never sends 429: over its queue's limit it sends 503, without a `Retry-After`.
    """
    return status in _BUSY


def withheld(code: str | None) -> bool:
    """Says whether it was the prompt's subject that was refused."""
    return code in _WITHHELD


def parameter(asked: Mapping[str, Any], status: int, param: str | None, message: str) -> str | None:
    """Returns the parameter a model does not take and can be asked without; None for others.

    Endpoints say it in their own words; what is misread here costs one more refusal.
    """
    if status not in (400, 422) or not _UNKNOWN.search(message):
        return None
    sent = [name for name in _ADJUSTABLE if name in asked]
    if param is not None:
        return param if param in sent else None
    return next((one for one in sent if re.search(rf"(?<![\w.]){one}(?![\w.])", message)), None)


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


def retry_after_seconds(headers: Mapping[str, str], body: str = "") -> float:
    """Returns how long the endpoint asks to be left alone; 0.0 where it does not say."""
    delayed = _RETRY_DELAY.search(body)
    value = headers.get("retry-after", delayed.group(1) if delayed else "")
    try:
        return max(0.0, min(float(value), _LONGEST_SECONDS))
    except ValueError:
        pass
    try:
        then = parsedate_to_datetime(value)
    except ValueError:
        return 0.0
    seconds = (then - datetime.now(then.tzinfo or UTC)).total_seconds()
    return max(0.0, min(seconds, _LONGEST_SECONDS))
