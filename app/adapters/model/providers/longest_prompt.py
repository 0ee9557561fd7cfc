"""The longest prompt that a model takes, as far as its refusals have shown it."""

from collections.abc import Sequence

from app.adapters.model.providers.overflow import Overflow
from app.adapters.model.providers.refusals import shown
from app.adapters.model.providers.spec import ModelSpec
from app.domain.operator import Prompt
from app.domain.prompting.tokens import estimated, shortened
from app.ports.protocols import PromptTooLong

_MARGIN = 0.9


class LongestPrompt:
    """Learns from refusals how long the prompts of one model may be.

    Safe to share between threads: a length that another thread has just learnt costs one refusal.
    """

    def __init__(self, spec: ModelSpec) -> None:
        """Knows nothing yet.

        Args:
          spec: The model.
        """
        self._spec = spec
        self._tokens: int | None = None

    def check(self, prompts: Sequence[Prompt]) -> None:
        """Makes sure that no prompt is known to be too long, which saves the request.

        A prompt of which nothing can be left out is asked all the same: the length is an estimate,
        and the endpoint's context may have grown.

        Raises:
          PromptTooLong: One is.
        """
        tokens = self._tokens
        if tokens is None:
            return
        for prompt in prompts:
            if not prompt.shortest and estimated(prompt.system + prompt.user) > tokens:
                message = (
                    f"{self._spec} takes prompts of about "
                    f"{tokens} tokens, as its refusal of a longer one said"
                )
                raise PromptTooLong(message, prompt, tokens)

    def refused(self, prompt: Prompt, status: int, words: str, found: Overflow) -> PromptTooLong:
        """Learns from the refusal of a prompt; returns the error to raise."""
        estimate = estimated(prompt.system + prompt.user)
        tokens = shortened(estimate, found.room, found.counted)
        self._tokens = tokens if self._tokens is None else min(self._tokens, tokens)
        spec = self._spec
        message = (
            f"{spec} answered HTTP {status}: "
            f"{shown(spec, words).rstrip('.') or 'the prompt is too long'}; {self._remedy(found)}"
        )
        return PromptTooLong(message, prompt, tokens)

    def answered(self, prompt: Prompt) -> None:
        """Forgets a length that a prompt exceeds which was answered."""
        if self._tokens is not None and estimated(prompt.system + prompt.user) > self._tokens:
            self._tokens = None

    def _remedy(self, found: Overflow) -> str:
        larger = "serve it with a larger context, or name another model in llm.model"
        if found.context is None or found.counted is None or found.reply is None:
            return larger
        left = int((found.context - found.counted) * _MARGIN)
        if left < 1 or left >= found.reply:
            return larger
        return f"set llm.max_tokens={left}, which leaves room for the prompt, or {larger}"
