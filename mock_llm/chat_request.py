"""Chat requests: parsing a body, and the errors of a wrong one in the shape of OpenAI and vLLM."""

import json
from dataclasses import dataclass
from typing import Any

PREFIX = "simulated/"
"""The prefix of every model's name in an answer, so that no ledger takes it for a real model."""


@dataclass(frozen=True, slots=True)
class ErrorReply:
    """An error in OpenAI's shape.

    Attributes:
      param: The field of the request that is wrong, if it is one field.
    """

    status: int
    message: str
    kind: str = "invalid_request_error"
    param: str | None = None
    code: str | int | None = None
    retry_after_seconds: float | None = None

    def document(self) -> dict[str, Any]:
        """Returns the body."""
        return {
            "error": {
                "message": f"{self.message} [simulation: evoq mock-llm]",
                "type": self.kind,
                "param": self.param,
                "code": self.status if self.code is None else self.code,
            }
        }


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A chat request.

    Attributes:
      model: The name without `simulated/`.
      prompt: The texts of all messages, in order.
      last: The text of the user's last message.
      seed: None where the client gave none.
      max_tokens: None: no limit.
      streamed: Whether the answer is a stream of events.
      counted: Whether a streamed answer ends with its usage.
    """

    model: str
    prompt: str
    last: str
    n: int
    seed: int | None
    max_tokens: int | None
    streamed: bool = False
    counted: bool = False


def read_request(body: bytes, models: frozenset[str]) -> ChatRequest | ErrorReply:
    """Returns the request in a body, or the error.

    Args:
      body: The body of the HTTP request.
      models: The names that are served; empty: any name is.
    """
    try:
        document = json.loads(body)
    except ValueError as error:
        return ErrorReply(400, f"the body is not JSON: {error}")
    if not isinstance(document, dict):
        return ErrorReply(400, "the body is not a JSON object")
    model = document.get("model")
    if not isinstance(model, str) or not model:
        return ErrorReply(400, "`model` must be a name", param="model")
    model = model.removeprefix(PREFIX)
    if models and model not in models:
        return ErrorReply(
            404,
            f"The model `{model}` does not exist: there is {', '.join(sorted(models))}.",
            "not_found_error",
            "model",
            "model_not_found",
        )
    texts = _texts(document.get("messages"))
    if isinstance(texts, ErrorReply):
        return texts
    return (
        _invalid_number(document)
        or _invalid_stream(document)
        or ChatRequest(
            model,
            "\n".join(text for _, text in texts),
            next((text for role, text in reversed(texts) if role == "user"), texts[-1][1]),
            document.get("n") or 1,
            document.get("seed"),
            document.get("max_completion_tokens") or document.get("max_tokens"),
            document.get("stream") or False,
            (document.get("stream_options") or {}).get("include_usage") is True,
        )
    )


def _texts(messages: object) -> list[tuple[str, str]] | ErrorReply:
    """Returns the role and the text of each message."""
    wrong = ErrorReply(400, "`messages` must be a list of one or more messages", param="messages")
    if not isinstance(messages, list) or not messages:
        return wrong
    texts: list[tuple[str, str]] = []
    for message in messages:
        match message:
            case {"role": str(role), "content": str(text)}:
                texts.append((role, text))
            case {"role": str(role), "content": [*parts]}:
                pieces = [part.get("text") for part in parts if isinstance(part, dict)]
                texts.append((role, "".join(text for text in pieces if isinstance(text, str))))
            case _:
                return wrong
    return texts


def _invalid_number(document: dict[str, Any]) -> ErrorReply | None:
    """Returns the error of the parameters; None where they are valid."""
    limits: tuple[tuple[str, type, float, float], ...] = (
        ("n", int, 1, 128),
        ("max_tokens", int, 1, 1e9),
        ("max_completion_tokens", int, 1, 1e9),
        ("seed", int, -(2**63), 2**63 - 1),
        ("temperature", float, 0, 2),
        ("top_p", float, 0, 1),
    )
    for name, kind, least, most in limits:
        value = document.get(name)
        if value is None:
            continue
        number = isinstance(value, int) if kind is int else isinstance(value, int | float)
        if not number or isinstance(value, bool) or not least <= value <= most:
            return ErrorReply(
                400, f"`{name}` must be from {least:g} to {most:g}, not {value!r}", param=name
            )
    return None


def _invalid_stream(document: dict[str, Any]) -> ErrorReply | None:
    """Returns the error of the parameters of a stream; None where they are valid."""
    streamed, options = document.get("stream"), document.get("stream_options")
    if streamed is not None and not isinstance(streamed, bool):
        return ErrorReply(400, f"`stream` must be a boolean, not {streamed!r}", param="stream")
    if options is None or (isinstance(options, dict) and streamed):
        return None
    wrong = "must be an object" if streamed else "is allowed with `stream` only"
    return ErrorReply(400, f"`stream_options` {wrong}", param="stream_options")
