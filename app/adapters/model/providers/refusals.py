"""What an endpoint's refusal means: ask again, ask otherwise, or tell a person."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
import httpx2
import openai

from app.adapters.model.congestion.gate import Ended
from app.adapters.model.providers.chat import ModelSpec
from app.adapters.model.providers.error_body import Said

_RETRIED = frozenset((408, 409, 425, 429))
_BUSY = frozenset((429, 503))
_WITHHELD = frozenset(("content_filter", "content_policy_violation"))
_NO_QUOTA = "insufficient_quota"
_BAD_KEY = re.compile(r"api[ _-]?key", re.IGNORECASE)
_NO_CREDIT = re.compile(r"credit|billing|quota", re.IGNORECASE)
_LONGEST_SAID = 400
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
      cause: None where its text could hold what an endpoint repeated of a request.
      billed: Whether the endpoint took the request and may have done its work.
      said: In the endpoint's words, without the key; "" where it said nothing.
    """

    ended: Ended
    reason: str
    retry_after_seconds: float = 0.0
    cause: BaseException | None = None
    billed: bool = False
    said: str = ""


@dataclass(frozen=True, slots=True)
class Untaken:
    """The model does not take a parameter, and can be asked without it."""

    parameter: str
    message: str


def broken(error: openai.OpenAIError | aiohttp.ClientError) -> Passing:
    """Returns what a connection means that was never made, or broke.

    The transport calls all of these time-outs; only what lies under them tells which it was.
    """
    causes: list[BaseException] = [error]
    while (under := causes[-1].__cause__) is not None:
        causes.append(under)
    unmade = (aiohttp.ClientConnectorError, httpx2.ConnectError, httpx2.UnsupportedProtocol)
    if any(isinstance(one, unmade) for one in causes):
        return Passing(Ended.FAILED, f"cannot be connected to ({causes[-1]})", cause=error)
    reason = f"the connection broke ({causes[-1]!r})"
    return Passing(Ended.FAILED, reason, cause=error, billed=True)


def passing(status: int, kinds: Collection[str]) -> bool:
    """Says whether a refused request may succeed when it is repeated."""
    return (status in _RETRIED and _NO_QUOTA not in kinds) or status >= 500


def busy(status: int) -> bool:
    """Says whether the endpoint is there and has too much to do.

    vLLM never sends 429: over its queue's limit it sends 503, without a `Retry-After`.
    """
    return status in _BUSY


def withheld(kinds: Collection[str]) -> bool:
    """Says whether it was the prompt's subject that was refused."""
    return not _WITHHELD.isdisjoint(kinds)


def parameter(asked: Mapping[str, Any], status: int, said: Said) -> str | None:
    """Returns the parameter a model does not take and can be asked without; None for others.

    Endpoints say it in their own words; what is misread here costs one more refusal.
    """
    if status not in (400, 422) or not _UNKNOWN.search(said.message):
        return None
    sent = [name for name in _ADJUSTABLE if name in asked]
    if said.param is not None:
        return said.param if said.param in sent else None
    words = (rf"(?<![\w.]){one}(?![\w.])" for one in sent)
    found = zip(sent, words, strict=True)
    return next((one for one, word in found if re.search(word, said.message)), None)


def refusal(spec: ModelSpec, status: int, said: Said) -> str:
    """Returns what a person needs to know of a request that no retry will help."""
    meant = status
    if status == 429 or (status == 400 and _NO_CREDIT.search(said.message)):
        meant = 402
    elif status == 400 and _BAD_KEY.search(said.message):
        meant = 401
    remedy = _REMEDIES.get(meant, "read the endpoint's message above")
    if meant == 401:
        state = "set" if spec.api_key else "not set"
        remedy += f" ({spec.key_variable}, which is {state})"
    words = shown(spec, said.message) or "nothing more"
    return f"model {spec.name!r} at {spec.base_url} answered HTTP {status}: {words}; {remedy}"


def given_up(spec: ModelSpec, last: Passing, attempts: int) -> str:
    """Returns what a person may want to know of requests that came to nothing for now."""
    words = f": {last.said.rstrip('.')}" if last.said else ""
    return (
        f"model {spec.name!r} at {spec.base_url}: {last.reason}, after {attempts} attempt(s){words}"
        ". It is asked again later; if this lasts, check the endpoint"
    )


def moved(spec: ModelSpec, address: str) -> str:
    """Returns what a person needs to know of a redirection on which the request was lost."""
    target = shown(spec, address).partition("?")[0].removesuffix("/chat/completions")
    return (
        f"model {spec.name!r} at {spec.base_url}: the endpoint redirects to {target}, and the "
        "request is lost on the way: set llm.base_url to where it is"
    )


def shown(spec: ModelSpec, text: str) -> str:
    """Returns what may be shown of an endpoint's words: no key, and not too much."""
    return (text.replace(spec.api_key, "<key>") if spec.api_key else text)[:_LONGEST_SAID]


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
    if then.tzinfo is None:  # `asctime`, or a zone of -0000: HTTP's dates are all Greenwich's
        then = then.replace(tzinfo=UTC)
    seconds = (then - datetime.now(UTC)).total_seconds()
    return max(0.0, min(seconds, _LONGEST_SECONDS))
