"""Refusals of a prompt that is longer than its model takes, and the numbers in them.

Pure functions of an endpoint's words.
"""

import re
from dataclasses import dataclass

from app.adapters.model.providers.error_body import ErrorBody

_KINDS = frozenset(
    (
        *("context_length_exceeded", "exceed_context_size_error", "string_above_max_length"),
        *("model_max_prompt_tokens_exceeded", "tokens_limit_reached", "request_too_large"),
    )
)
_TOO_LARGE = 413
_OF_REQUESTS = (400, _TOO_LARGE, 422)
_BY_THE_MINUTE = 429
_NUMBER = r"(\d[\d,]*)"
_WORDS = re.compile(
    r"maximum (?:context|prompt|model|input) length|context[ _-]?(?:length|size|window)"
    r"|max_(?:model|seq|input)_len|exceeds? (?:the )?context|exceeds? max(?:imum)? length"
    r"|range of input length|reduce the length of|exceeded model token limit"
    r"|(?:input|prompt)s?\b.{0,80}\b(?:too long|too large|too many tokens|longer than)"
    r"|too many (?:input |prompt )?tokens|too large for|request(?: body)? too large"
    r"|input token count.{0,40}exceeds|input tokens exceed"
    r"|`inputs`.{0,60}must (?:be <=|have less than)|tokens to keep from the initial prompt"
    r"|entity too large",
    re.IGNORECASE | re.DOTALL,
)
_OF_THE_REPLY = re.compile(
    r"maximum value for .?max_(?:completion_)?tokens|at most \d+ completion tokens", re.IGNORECASE
)
"""Refusals of `max_tokens` that mention the context and concern no prompt."""

_REPLY = (
    rf"{_NUMBER} (?:tokens )?(?:in|for) the (?:completion|output)",
    rf"and {_NUMBER} `max_new_tokens`",
    rf"requested {_NUMBER} output tokens",
    rf"max_(?:completion_)?tokens'? is too large: {_NUMBER}",
    rf"\d[\d,]* \+ {_NUMBER} > ",
)
_COUNTED = (
    rf"{_NUMBER} (?:tokens )?(?:in|from) the (?:input )?messages",
    rf"{_NUMBER} of text input",
    rf"(?:has|passed|contains) {_NUMBER} input tokens",
    rf"messages resulted in {_NUMBER}",
    rf"(?:prompt|request) (?:has|contains) {_NUMBER}",
    rf"(?:input|prompt|request) \((?:length )?{_NUMBER}(?: tokens)?\)",
    rf"given: {_NUMBER} `?inputs",
    rf"{_NUMBER} \+ \d[\d,]* > ",
    rf"{_NUMBER} tokens > \d",
    rf"prompt is too long: {_NUMBER}",
    rf"token count(?: of)? \(?{_NUMBER}",
    rf"prompt length:? {_NUMBER}",
    rf"received {_NUMBER}",
    rf"given: {_NUMBER}",
)
_TOTAL = (rf"requested:? (?:about |a total of )?{_NUMBER}",)
"""The prompt and the longest reply together."""
_CONTEXT = (
    rf"maximum input length of {_NUMBER}",
    rf"{_NUMBER} maximum context length",
    rf"max_(?:seq|model|input)_len\D{{0,20}}{_NUMBER}",
    rf"\[\d+, ?{_NUMBER}\]",
    rf"\d[\d,]* tokens > {_NUMBER} maximum",
    rf"\d[\d,]* \+ \d[\d,]* > {_NUMBER}",
    rf"(?:context|prompt|model|input|sequence)[ _](?:length|size|window|limit)\D{{0,40}}{_NUMBER}",
    rf"must be <= {_NUMBER}",
    rf"less than {_NUMBER} tokens",
    rf"tokens allowed \(?{_NUMBER}",
    rf"limit of {_NUMBER} tokens",
    rf"cannot exceed {_NUMBER}",
    rf"max(?:imum)? size: {_NUMBER}",
    rf"limit:? {_NUMBER}",
)
_SHARED = re.compile(r"context|max_(?:seq|model)_len", re.IGNORECASE)
_FOR_THE_REPLY = 4
"""Share of a context that a reply is left where the endpoint counts none: a reply in a full context
is cut off at once."""


@dataclass(frozen=True, slots=True)
class Overflow:
    """A refusal of a prompt for its length.

    Attributes:
      context: Tokens that the endpoint names as the most; None where it names none.
      counted: Tokens that it counted in the prompt; None where it does not say.
      reply: Tokens that it set aside for the reply within `context`; None where it does not say.
      room: Tokens that the prompt may have, 0 or more; None where that is not known.
    """

    context: int | None = None
    counted: int | None = None
    reply: int | None = None
    room: int | None = None


def overflow(status: int, error: ErrorBody, max_tokens: int) -> Overflow | None:
    """Returns what a refusal says of a prompt that is too long; None for another refusal.

    Args:
      status: The HTTP status.
      error: The endpoint's words.
      max_tokens: The longest reply that was asked for.
    """
    if not _is_one(status, error):
        return None
    text = error.message
    total = _first(_TOTAL, text)
    reply = _first(_REPLY, text)
    if reply is None and total is not None:
        reply = max_tokens if total > max_tokens else None
    counted = error.prompt_tokens or _first(_COUNTED, text)
    if counted is None and total is not None:
        counted = total - (reply or 0)
    context = error.context_tokens or _first(_CONTEXT, text)
    if context is None:
        return Overflow(None, counted, reply)
    if re.search(_CONTEXT[0], text, re.IGNORECASE):
        return Overflow(context + (reply or 0), counted, reply, context)
    taken = reply
    if taken is None:
        taken = min(max_tokens, context // _FOR_THE_REPLY) if _SHARED.search(text) else 0
    return Overflow(context, counted, reply, max(0, context - taken))


def _is_one(status: int, error: ErrorBody) -> bool:
    if status == _TOO_LARGE or not _KINDS.isdisjoint(error.kinds):
        return True
    # The prompt has more tokens than the endpoint allows in any minute.
    if status == _BY_THE_MINUTE:
        return "too large for" in error.message
    if status not in _OF_REQUESTS and status < 500:
        return False
    return bool(_WORDS.search(error.message)) and not _OF_THE_REPLY.search(error.message)


def _first(patterns: tuple[str, ...], text: str) -> int | None:
    for pattern in patterns:
        if match := re.search(pattern, text, re.IGNORECASE):
            return int(match.group(1).replace(",", ""))
    return None
