"""What the refusal of an endpoint means: repeat the request, change it, or inform a person."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import aiohttp
import httpx2
import openai

from app.adapters.model.congestion.gate import Ended
from app.adapters.model.providers.error_body import ErrorBody
from app.adapters.model.providers.http_client import text_of
from app.adapters.model.providers.spec import ModelSpec
from app.adapters.proxies import answered_by_proxy, proxy_of

_RETRIED = frozenset((408, 409, 425, 429))
_BUSY = frozenset((429, 503))
_WITHHELD = frozenset(("content_filter", "content_policy_violation"))
_NO_QUOTA = "insufficient_quota"
_BAD_KEY = re.compile(r"api[ _-]?key", re.IGNORECASE)
_NO_CREDIT = re.compile(r"credit|billing|quota", re.IGNORECASE)
_LONGEST_MESSAGE = 400
_RETRY_DELAY = re.compile(r'"retryDelay"\s*:\s*"([0-9.]+)s"')
"""The field of Google's `google.rpc.RetryInfo`."""
_LONGEST_SECONDS = 86_400.0
_UNMADE = (
    aiohttp.ClientConnectorError,
    aiohttp.ConnectionTimeoutError,
    aiohttp.ClientHttpProxyError,
    aiohttp.InvalidURL,
    httpx2.InvalidURL,
    httpx2.UnsupportedProtocol,
)
_PROXY = (aiohttp.ClientProxyConnectionError, aiohttp.ClientHttpProxyError)
BROKEN = (
    openai.APIConnectionError,
    httpx2.InvalidURL,
    httpx2.HTTPError,
    httpx2.StreamError,
    aiohttp.ClientError,
)
"""Errors of a connection that was never made, or broke."""
_EXCEPT_FROM_PROXY = "if the endpoint needs no proxy, name its host in NO_PROXY"
_REMEDIES = {
    400: "check the model's name and parameters",
    401: "check the key in the variable that its api_key_variable names",
    402: "the account has no credit left: pay, or choose another model",
    403: "this key may not use this model: choose another model or another key",
    404: "check its base_url (it usually ends in /v1) and the model's name",
}


@dataclass(frozen=True, slots=True)
class TransientFailure:
    """Why one attempt failed, though the next may succeed.

    Attributes:
      cause: None where its text could repeat a part of the request.
      billed: Whether the endpoint took the request and may have done its work.
      message: In the endpoint's words, without the key; "" where it sent none.
    """

    ended: Ended
    reason: str
    retry_after_seconds: float = 0.0
    cause: BaseException | None = None
    billed: bool = False
    message: str = ""


def broken(error: BaseException, base_url: str, *, tokens: int = 0) -> TransientFailure:
    """Returns the failure of a connection that was never made, or broke.

    A refusing proxy and an invalid address count as connections that were never made.

    Args:
      error: One of `BROKEN`.
      base_url: Of the endpoint.
      tokens: That had arrived.
    """
    causes: list[BaseException] = [error]
    while (cause := causes[-1].__cause__) is not None:
        causes.append(cause)
    if not any(isinstance(each, _UNMADE) for each in causes):
        begun = f" after {tokens} tokens of a reply" if tokens else ""
        reason = f"the connection broke{begun} ({causes[-1]!r})"
        return TransientFailure(Ended.FAILED, reason, cause=error, billed=True)
    proxy = proxy_of(base_url) if any(isinstance(each, _PROXY) for each in causes) else None
    if proxy is None:
        return TransientFailure(Ended.FAILED, f"cannot be connected to ({causes[-1]})", cause=error)
    answers = (each.status for each in causes if isinstance(each, aiohttp.ClientHttpProxyError))
    status = next(answers, None)
    why = f"cannot be connected to ({causes[-1]})" if status is None else f"answered HTTP {status}"
    reason = f"cannot be reached: {proxy} {why}; {_EXCEPT_FROM_PROXY}"
    return TransientFailure(Ended.FAILED, reason)


def by_proxy(spec: ModelSpec, response: httpx2.Response, status: int) -> str:
    """Returns the reason of a refusal that is a proxy's; "" where the endpoint's.

    Args:
      spec: The model.
      response: The answer.
      status: Of the answer, or of the error in its body.
    """
    proxy, body = proxy_of(spec.base_url), text_of(response)
    if proxy is None or not answered_by_proxy(spec.base_url, status, response.headers, body):
        return ""
    return f"{proxy} answered HTTP {status} in place of the endpoint; {_EXCEPT_FROM_PROXY}"


def transient(status: int, kinds: Collection[str]) -> bool:
    """Returns whether a refused request may succeed when it is repeated."""
    return (status in _RETRIED and _NO_QUOTA not in kinds) or status >= 500


def repeated(
    spec: ModelSpec, response: httpx2.Response, status: int, error: ErrorBody
) -> TransientFailure:
    """Returns the failure of a refused request that is to be repeated.

    vLLM never sends 429: over its queue's limit it sends 503, without a `Retry-After`.
    """
    return TransientFailure(
        Ended.BUSY if status in _BUSY else Ended.FAILED,
        f"HTTP {status}",
        retry_after_seconds(response.headers, text_of(response)),
        message=shown(spec, error.message),
    )


def withheld(kinds: Collection[str]) -> bool:
    """Returns whether the endpoint refused the subject of the prompt."""
    return not _WITHHELD.isdisjoint(kinds)


def refusal(spec: ModelSpec, status: int, error: ErrorBody) -> str:
    """Returns the message about a request that no retry will help."""
    meant = status
    if status == 429 or (status == 400 and _NO_CREDIT.search(error.message)):
        meant = 402
    elif status == 400 and _BAD_KEY.search(error.message):
        meant = 401
    remedy = _REMEDIES.get(meant, "read the endpoint's message above")
    if meant == 401:
        state = "set" if spec.api_key else "not set"
        remedy += f" ({spec.key_variable}, which is {state})"
    words = shown(spec, error.message) or "nothing more"
    return f"{spec} answered HTTP {status}: {words}; {remedy}"


def given_up(spec: ModelSpec, last: TransientFailure, attempts: int) -> str:
    """Returns the message about a request that failed after all its attempts."""
    words = f": {last.message.rstrip('.')}" if last.message else ""
    return (
        f"{spec}: {last.reason}, after {attempts} attempt(s){words}. It is asked again later; if "
        "this lasts, check the endpoint"
    )


def moved(spec: ModelSpec, address: str) -> str:
    """Returns the message about a redirection on which the request was lost."""
    return (
        f"{spec}: the endpoint redirects to {shown(spec, address)}, and the "
        "request is lost on the way: set its base_url to where it is"
    )


def shown(spec: ModelSpec, text: str) -> str:
    """Returns the part of an endpoint's message that may be shown: short, and without the key."""
    return (text.replace(spec.api_key, "<key>") if spec.api_key else text)[:_LONGEST_MESSAGE]


def retry_after_seconds(headers: Mapping[str, str], body: str = "") -> float:
    """Returns the time before which the endpoint wants no request; 0.0 where it names none."""
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
    # A date of `asctime` or with the zone -0000 has no zone, and HTTP's dates are in GMT.
    if then.tzinfo is None:
        then = then.replace(tzinfo=UTC)
    seconds = (then - datetime.now(UTC)).total_seconds()
    return max(0.0, min(seconds, _LONGEST_SECONDS))
