"""What an endpoint says is wrong, in whatever shape it says it.  No I/O."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_NO_STATUS = 0


@dataclass(frozen=True, slots=True)
class Said:
    """An error in an endpoint's own words.

    Attributes:
      message: Its text; the whole body where that has no shape that is known.
      kinds: Every name the endpoint has for it: `code`, `type`, `status`, and Google's reasons.
      param: The field of the request it is about; None where it does not say.
      status: The HTTP status it names in its body; 0 where it names none.
    """

    message: str
    kinds: frozenset[str] = frozenset()
    param: str | None = None
    status: int = _NO_STATUS


def read(body: str) -> Said:
    """Returns what the body of a refusal says."""
    return error_in(document(body)) or Said(" ".join(body.split()))


def document(body: str | bytes) -> Any:
    """Returns the JSON value that a body is; None where it is none, such as a proxy's page."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):  # not even UTF-8, or nested too deep
        return None


def error_in(value: Any) -> Said | None:
    """Returns the error that a JSON value tells of; None where it tells of none.

    Source: OpenAI's `{"error": {…}}`; Google's, which is that in a list
    (https://github.com/google-gemini/gemini-cli/issues/6454); OpenRouter's, which may come with
    200, in a choice (https://github.com/maximhq/bifrost/issues/5425), and with the vendor's own
    words (https://github.com/open-webui/computer/issues/293); FastAPI's `detail`.
    """
    match value:
        case [first, *_]:
            return error_in(first)
        case {"error": {**error}} | {"choices": [{"error": {**error}}, *_]}:
            return _told(error)
        case {"error": str(message)} | {"detail": str(message)} | {"message": str(message)}:
            return Said(message)
        case {"detail": [*wrong]}:
            return Said("; ".join(_wrong(one) for one in wrong))
    return None


def _told(error: Mapping[Any, Any]) -> Said:
    message, param, code = error.get("message"), error.get("param"), error.get("code")
    names = [code, error.get("type"), error.get("status")]
    details = error.get("details")
    for one in details if isinstance(details, list) else ():
        names.append(one.get("reason") if isinstance(one, dict) else None)
    words = message if isinstance(message, str) and message else json.dumps(error)
    match error.get("metadata"):  # what the vendor behind OpenRouter said
        case {"raw": str(raw)} if raw not in words:
            words = f"{words}: {raw}"
    return Said(
        words,
        frozenset(name for name in names if isinstance(name, str)),
        param if isinstance(param, str) else None,
        code if isinstance(code, int) and 400 <= code <= 599 else _NO_STATUS,
    )


def _wrong(one: object) -> str:
    """Returns one of FastAPI's complaints as text: the field, then what is wrong with it."""
    match one:
        case {"loc": [*_, field], "msg": str(message)}:
            return f"{field}: {message}"
    return json.dumps(one)
