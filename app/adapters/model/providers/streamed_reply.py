"""An answer of a model, whole or put together from the parts of a stream.  No I/O."""

from dataclasses import dataclass, field, replace

from app.adapters.model.providers.repetition import repeats
from app.domain.prompting.tokens import estimated

BROKEN_OFF = "error"
"""How a choice ended that broke off behind the endpoint; it is left out of the answer."""
_CHARS_A_TOKEN = 4
# Most servers send one token in each part.
_ONE_TOKEN_CHARS = 12
# Characters between two checks for a repetition.
_LOOK_CHARS = 600
# A reply of this many times `max_tokens` shows that the endpoint ignores the limit.
_OVERLONG = 2


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens of a request or of one completion; `cached` is a part of `prompt`."""

    prompt: int = 0
    cached: int = 0
    completion: int = 0


@dataclass(frozen=True, slots=True)
class AnswerChoice:
    """One text of an answer.

    Attributes:
      finish: How it ended, in the endpoint's word; "" without one.
      thoughts: Whether the model's thoughts came apart from it.
      tokens: Its tokens; None where only those of all choices are counted.
    """

    text: str
    finish: str
    thoughts: bool = False
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one request.

    Attributes:
      choices: In order, without those that broke off behind the endpoint.
      usage: Tokens of the whole request; None without a count.
      names: The names that the endpoint gives its model and its build.
    """

    choices: tuple[AnswerChoice, ...]
    usage: TokenUsage | None = None
    names: tuple[str, ...] = ()


def answer_choice(text: str, refusal: str, finish: str, *, thoughts: bool) -> AnswerChoice:
    """Returns one text of an answer; a refusal in its place is the text where there is no other."""
    if refusal and not text:
        text, finish = refusal, "refusal"
    return AnswerChoice(text, finish, thoughts)


@dataclass(slots=True)
class _Choice:
    """What has arrived of one choice."""

    text: list[str] = field(default_factory=list)
    refusal: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    finish: str = ""
    chars: int = 0
    looked_at_chars: int = 0


class StreamedReply:
    """Collects the parts of a streamed answer, which a wire form reads.

    Attributes:
      ended: Why it is ended early, as a finish reason; "" while it is not.
      complete: Whether the endpoint has said that nothing more follows.
      error: That the endpoint has sent in place of a part; None without one.
      names: The names that the endpoint gives its model and its build, by field.
      usage: The endpoint's count of tokens; None before it.
    """

    def __init__(self, most_tokens: int) -> None:
        """Begins with nothing.

        Args:
          most_tokens: That a choice may have.
        """
        self.ended = ""
        self.complete = False
        self.error: object = None
        self.names: dict[str, str] = {}
        self.usage: TokenUsage | None = None
        self._counted_apart = False
        self._most_chars = _OVERLONG * _CHARS_A_TOKEN * most_tokens
        self._choices: dict[int, _Choice] = {}

    def write(self, number: int, text: str = "", *, thought: str = "", refusal: str = "") -> int:
        """Adds to a choice, and begins it with the first call; returns about how many tokens."""
        choice = self._choice(number)
        if text:
            choice.text.append(text)
        if thought:
            choice.thoughts.append(thought)
        if refusal:
            choice.refusal.append(refusal)
        chars = len(text) + len(thought) + len(refusal)
        if not chars:
            return 0
        choice.chars += chars
        if choice.chars - choice.looked_at_chars >= _LOOK_CHARS and not choice.finish:
            self._look(choice, choice.text if text else choice.thoughts)
        return 1 if chars <= _ONE_TOKEN_CHARS else chars // _CHARS_A_TOKEN

    def finish(self, number: int, finish: str) -> None:
        """Notes how a choice has ended."""
        self._choice(number).finish = finish

    def count(self, usage: TokenUsage, *, apart: bool) -> None:
        """Notes the endpoint's count of tokens so far.

        Args:
          usage: The count.
          apart: Whether it came in an event without a choice.  Several of these are added up:
            llama.cpp counts its choices one by one.
        """
        if apart and self._counted_apart and self.usage is not None:
            usage = replace(usage, completion=self.usage.completion + usage.completion)
        self.usage, self._counted_apart = usage, apart

    @property
    def begun(self) -> bool:
        """Whether a part of a choice has arrived."""
        return bool(self._choices)

    @property
    def whole(self) -> bool:
        """Whether nothing is missing: every choice has said how it ended, or the endpoint has."""
        finished = self.begun and all(each.finish for each in self._choices.values())
        return finished or self.complete or bool(self.ended)

    def answer(self) -> Answer:
        """Returns what has arrived, as the answer."""
        choices = [
            answer_choice(
                "".join(each.text),
                "".join(each.refusal),
                self.ended or each.finish,
                thoughts=bool(each.thoughts),
            )
            for _, each in sorted(self._choices.items())
            if (self.ended or each.finish) != BROKEN_OFF
        ]
        return Answer(tuple(choices), self.usage, tuple(self.names.values()))

    def estimate_usage(self, prompt_tokens: int) -> None:
        """Sets the usage to the tokens of the prompt, and an estimate of those that arrived."""
        written = ("".join(each.thoughts + each.text) for each in self._choices.values())
        self.usage = TokenUsage(prompt_tokens, completion=sum(map(estimated, written)))

    def _choice(self, number: int) -> _Choice:
        choice = self._choices.get(number)
        if choice is None:
            choice = self._choices[number] = _Choice()
        return choice

    def _look(self, choice: _Choice, written: list[str]) -> None:
        choice.looked_at_chars = choice.chars
        text = "".join(written)
        written[:] = [text]
        if repeats(text):
            self.ended = "repetition"
        elif choice.chars > self._most_chars:
            self.ended = "length"
