"""The error in the body of an endpoint's answer, in any of the known forms.  No I/O."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

_NO_STATUS = 0


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """An error in an endpoint's own words.

    Attributes:
      message: Its text; the whole body where its form is unknown.
      kinds: Every name that the endpoint gives it: `code`, `type`, `status`, and Google's reasons.
      param: The field of the request that it concerns; None where it names none.
      status: The HTTP status that the body names; 0 where it names none.
      context_tokens, prompt_tokens: Size of the context and of the prompt, where fields of the body
        name them, as llama.cpp's do; 0 where none does.
    """

    message: str
    kinds: frozenset[str] = frozenset()
    param: str | None = None
    status: int = _NO_STATUS
    context_tokens: int = 0
    prompt_tokens: int = 0


def read(body: str) -> ErrorBody:
    """Returns the error in the body of a refusal."""
    return error_in(document(body)) or ErrorBody(" ".join(body.split()))


def document(body: str | bytes) -> object:
    """Returns the JSON value of a body; None for another body, such as a proxy's page."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        # The body is no JSON, not even UTF-8, or nested too deep.
        return None


def error_in(value: object) -> ErrorBody | None:
    """Returns the error in a JSON value; None where it has none.

    Source: OpenAI's `{"error": {…}}`; Google's, which is that in a list
    (https://github.com/google-gemini/gemini-cli/issues/6454); OpenRouter's, which may come with
    200, in a choice (https://github.com/maximhq/bifrost/issues/5425), and with the vendor's own
    words (https://github.com/open-webui/computer/issues/293); FastAPI's `detail`.
    """
    match value:
        case [first, *_]:
            return error_in(first)
        case {"error": {**error}} | {"choices": [{"error": {**error}}, *_]}:
            return _from_object(error)
        case {"error": str(message)} | {"detail": str(message)} | {"message": str(message)}:
            return ErrorBody(message)
        case {"detail": [*complaints]}:
            return ErrorBody("; ".join(_complaint(complaint) for complaint in complaints))
    return None


def _from_object(error: Mapping[object, object]) -> ErrorBody:
    message, param, code = error.get("message"), error.get("param"), error.get("code")
    names = [code, error.get("type"), error.get("status")]
    details = error.get("details")
    for detail in details if isinstance(details, list) else ():
        names.append(detail.get("reason") if isinstance(detail, dict) else None)
    text = message if isinstance(message, str) and message else json.dumps(error)
    # OpenRouter puts the message of the vendor behind it here.
    match error.get("metadata"):
        case {"raw": str(raw)} if raw not in text:
            text = f"{text}: {raw}"
    return ErrorBody(
        text,
        frozenset(name for name in names if isinstance(name, str)),
        param if isinstance(param, str) else None,
        code if isinstance(code, int) and 400 <= code <= 599 else _NO_STATUS,
        _count(error.get("n_ctx")),
        _count(error.get("n_prompt_tokens")),
    )


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def _complaint(complaint: object) -> str:
    """Returns one of FastAPI's complaints as text: the field, then what is wrong with it."""
    match complaint:
        case {"loc": [*_, field], "msg": str(message)}:
            return f"{field}: {message}"
    return json.dumps(complaint)
