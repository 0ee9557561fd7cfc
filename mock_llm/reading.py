"""Requests: what a body asks for, or what is wrong with it, as OpenAI and vLLM say it."""

import json
from dataclasses import dataclass
from typing import Any

PREFIX = "simulated/"
"""What every model's name begins with in an answer, so that no ledger takes it for a real one."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error in OpenAI's shape.

    Attributes:
      param: The field of the request it is about, if it is about one.
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
class Asked:
    """A chat request.

    Attributes:
      model: The name without `simulated/`.
      prompt: The texts of all messages, in order.
      last: The text of the last message from the user.
      seed: None where the client gave none.
      max_tokens: None: as many as the reply has.
    """

    model: str
    prompt: str
    last: str
    n: int
    seed: int | None
    max_tokens: int | None


def read_request(body: bytes, models: frozenset[str]) -> Asked | Refusal:
    """Returns what is asked.

    Args:
      body: As it came.
      models: The names that are served; none: any name is.
    """
    try:
        told = json.loads(body)
    except ValueError as error:
        return Refusal(400, f"the body is not JSON: {error}")
    if not isinstance(told, dict):
        return Refusal(400, "the body is not a JSON object")
    model = told.get("model")
    if not isinstance(model, str) or not model:
        return Refusal(400, "`model` must be a name", param="model")
    model = model.removeprefix(PREFIX)
    if models and model not in models:
        return Refusal(
            404,
            f"The model `{model}` does not exist: there is {', '.join(sorted(models))}.",
            "not_found_error",
            "model",
            "model_not_found",
        )
    texts = _texts(told.get("messages"))
    if isinstance(texts, Refusal):
        return texts
    return _numbers(told) or Asked(
        model,
        "\n".join(text for _, text in texts),
        next((text for role, text in reversed(texts) if role == "user"), texts[-1][1]),
        told.get("n") or 1,
        told.get("seed"),
        told.get("max_completion_tokens") or told.get("max_tokens"),
    )


def _texts(messages: object) -> list[tuple[str, str]] | Refusal:
    """Returns role and text of each message."""
    wrong = Refusal(400, "`messages` must be a list of one or more messages", param="messages")
    if not isinstance(messages, list) or not messages:
        return wrong
    texts: list[tuple[str, str]] = []
    for message in messages:
        match message:
            case {"role": str(role), "content": str(text)}:
                texts.append((role, text))
            case {"role": str(role), "content": [*parts]}:
                told = [part.get("text") for part in parts if isinstance(part, dict)]
                texts.append((role, "".join(text for text in told if isinstance(text, str))))
            case _:
                return wrong
    return texts


def _numbers(told: dict[str, Any]) -> Refusal | None:
    """Returns what is wrong with the parameters; None where nothing is."""
    if told.get("stream"):
        return Refusal(400, "this simulation does not stream", param="stream")
    limits: tuple[tuple[str, type, float, float], ...] = (
        ("n", int, 1, 128),
        ("max_tokens", int, 1, 1e9),
        ("max_completion_tokens", int, 1, 1e9),
        ("seed", int, -(2**63), 2**63 - 1),
        ("temperature", float, 0, 2),
        ("top_p", float, 0, 1),
    )
    for name, kind, least, most in limits:
        value = told.get(name)
        if value is None:
            continue
        number = isinstance(value, int) if kind is int else isinstance(value, int | float)
        if not number or isinstance(value, bool) or not least <= value <= most:
            return Refusal(
                400, f"`{name}` must be from {least:g} to {most:g}, not {value!r}", param=name
            )
    return None
