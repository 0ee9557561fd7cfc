"""A streamed answer as one value: the parts of its choices, put together.  No I/O."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.adapters.model.providers.chat import content_text
from app.adapters.model.providers.repetition import repeats
from app.domain.prompting.tokens import estimated

REASONING = ("reasoning_content", "reasoning")
"""Fields of a message in which servers write the thoughts of a model."""
_HEAD = ("model", "system_fingerprint")
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


def _sum(before: Mapping[str, Any] | None, usage: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the count of an answer whose choices llama.cpp counts one by one."""
    added: dict[str, Any] = dict(usage)
    for name in ("completion_tokens", "total_tokens"):
        earlier, own = (before or {}).get(name), usage.get(name)
        if isinstance(earlier, int) and isinstance(own, int):
            prompt = usage.get("prompt_tokens") if name == "total_tokens" else 0
            added[name] = earlier + own - (prompt if isinstance(prompt, int) else 0)
    return added


class StreamedReply:
    """Collects the parts of a streamed answer.

    Attributes:
      ended: Why it is ended early, as a finish reason; "" while it is not.
      error: That the endpoint has sent in place of a part; None without one.
      usage: The endpoint's count of tokens; None before it.
    """

    def __init__(self, most_tokens: int) -> None:
        """Begins with nothing.

        Args:
          most_tokens: That a choice may have.
        """
        self.ended = ""
        self.error: object = None
        self.usage: Mapping[str, Any] | None = None
        self._counted = False
        self._most_chars = _OVERLONG * _CHARS_A_TOKEN * most_tokens
        self._choices: dict[int, _Choice] = {}
        self._head: dict[str, Any] = {}

    def add(self, event: object) -> int:
        """Adds a part; returns about how many tokens it has."""
        if not isinstance(event, dict):
            return 0
        if event.get("error"):
            self.error = event["error"]
            return 0
        if isinstance(usage := event.get("usage"), dict):
            alone = not event.get("choices")
            self.usage = _sum(self.usage, usage) if alone and self._counted else usage
            self._counted = alone
        for name in _HEAD:
            if name not in self._head and event.get(name):
                self._head[name] = event[name]
        tokens, parts = 0, event.get("choices")
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, dict):
                tokens += self._add(part)
        return tokens

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
        number = index if isinstance(index, int) else 0
        choice = self._choices.get(number)
        if choice is None:
            choice = self._choices[number] = _Choice()
        if isinstance(finish := part.get("finish_reason"), str):
            choice.finish = finish
        if not isinstance(delta, dict):
            return 0
        content = delta.get("content")
        # Nearly every part is a text and nothing else.
        if isinstance(content, str) and content and len(delta) == 1:
            choice.text.append(content)
            return self._count(choice, len(content), choice.text)
        text = content_text(content)
        refusal = delta.get("refusal")
        thought = next((delta[n] for n in REASONING if isinstance(delta.get(n), str)), "")
        thought = thought or _thought(content)
        if isinstance(refusal, str) and refusal:
            choice.refusal.append(refusal)
        if text:
            choice.text.append(text)
        if thought:
            choice.reasoning.append(thought)
        chars = len(text) + len(thought) + (len(refusal) if isinstance(refusal, str) else 0)
        return self._count(choice, chars, choice.text if text else choice.reasoning)

    def _count(self, choice: _Choice, chars: int, written: list[str]) -> int:
        """Counts characters that were added to a text; returns about how many tokens they are."""
        choice.chars += chars
        if chars and choice.chars - choice.looked_at_chars >= _LOOK_CHARS and not choice.finish:
            self._look(choice, written)
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
