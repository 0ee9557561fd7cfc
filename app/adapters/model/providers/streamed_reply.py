"""A streamed answer as one value: the parts of its choices, put together.  No I/O."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.adapters.model.providers.chat import content_text
from app.adapters.model.providers.repetition import repeats
from app.domain.prompting.tokens import estimated

REASONING = ("reasoning_content", "reasoning")
"""Fields of a message in which servers write the thoughts of a model."""
_CHARS_A_TOKEN = 4
# Most servers send one token in each part.
_ONE_TOKEN_CHARS = 12
# Characters between two checks for a repetition.
_LOOK_CHARS = 600
# A reply of this many times `max_tokens` shows that the endpoint ignores the limit.
_OVERLONG = 2


@dataclass(slots=True)
class _Choice:
    """What has arrived of one choice."""

    text: list[str] = field(default_factory=list)
    refusal: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    finish: str | None = None
    chars: int = 0
    looked_at_chars: int = 0


class StreamedReply:
    """Collects the parts of a streamed answer.

    Attributes:
      ended: Why it is ended early, as a finish reason; "" while it is not.
      usage: The endpoint's count of tokens; None before it.
    """

    def __init__(self, most_tokens: int) -> None:
        """Begins with nothing.

        Args:
          most_tokens: That a choice may have.
        """
        self.ended = ""
        self.usage: Mapping[str, Any] | None = None
        self._most_chars = _OVERLONG * _CHARS_A_TOKEN * most_tokens
        self._choices: dict[int, _Choice] = {}
        self._head: dict[str, Any] = {}

    def add(self, event: object) -> int:
        """Adds a part; returns about how many tokens it has."""
        if not isinstance(event, dict):
            return 0
        for name in ("model", "system_fingerprint"):
            if event.get(name):
                self._head.setdefault(name, event[name])
        if isinstance(event.get("usage"), dict):
            self.usage = event["usage"]
        choices = event.get("choices")
        parts = choices if isinstance(choices, list) else []
        return sum(self._add(part) for part in parts if isinstance(part, dict))

    @property
    def choices(self) -> int:
        """Choices of which a part has arrived."""
        return len(self._choices)

    @property
    def finished(self) -> bool:
        """Whether every choice has said how it ended; False without a choice."""
        return bool(self._choices) and all(each.finish for each in self._choices.values())

    def document(self) -> dict[str, Any]:
        """Returns the answer in the form of one that was not streamed."""
        choices = [
            {
                "index": index,
                "message": {
                    "content": "".join(each.text),
                    **({"refusal": "".join(each.refusal)} if each.refusal else {}),
                    **({REASONING[0]: "".join(each.reasoning)} if each.reasoning else {}),
                },
                "finish_reason": self.ended or each.finish,
            }
            for index, each in sorted(self._choices.items())
        ]
        return {**self._head, "choices": choices, "usage": self.usage}

    def estimated_usage(self, messages: list[dict[str, str]]) -> dict[str, int]:
        """Returns an estimate of the tokens of the prompt and of what has arrived."""
        written = ("".join(each.reasoning + each.text) for each in self._choices.values())
        return {
            "prompt_tokens": sum(estimated(message["content"]) for message in messages),
            "completion_tokens": sum(map(estimated, written)),
        }

    def _add(self, part: Mapping[str, Any]) -> int:
        index, delta = part.get("index"), part.get("delta")
        choice = self._choices.setdefault(index if isinstance(index, int) else 0, _Choice())
        if isinstance(part.get("finish_reason"), str):
            choice.finish = part["finish_reason"]
        if not isinstance(delta, dict):
            return 0
        text = content_text(delta.get("content"))
        refusal = delta.get("refusal")
        thought = next((delta[n] for n in REASONING if isinstance(delta.get(n), str)), "")
        thought = thought or _thought(delta.get("content"))
        if isinstance(refusal, str) and refusal:
            choice.refusal.append(refusal)
        if text:
            choice.text.append(text)
        if thought:
            choice.reasoning.append(thought)
        chars = len(text) + len(thought) + (len(refusal) if isinstance(refusal, str) else 0)
        choice.chars += chars
        if chars and choice.chars - choice.looked_at_chars >= _LOOK_CHARS and not choice.finish:
            self._look(choice, choice.text if text else choice.reasoning)
        return (1 if chars <= _ONE_TOKEN_CHARS else chars // _CHARS_A_TOKEN) if chars else 0

    def _look(self, choice: _Choice, written: list[str]) -> None:
        choice.looked_at_chars = choice.chars
        text = "".join(written)
        written[:] = [text]
        if repeats(text):
            self.ended = "repetition"
        elif choice.chars > self._most_chars:
            self.ended = "length"


def _thought(content: object) -> str:
    """Returns the reasoning in a part of Mistral's, which is a list of pieces."""
    if not isinstance(content, list):
        return ""
    thoughts = [
        each["thinking"] for each in content if isinstance(each, dict) and "thinking" in each
    ]
    return "".join(content_text(thought) for thought in thoughts)
