"""A model that answers from a function; for tests and demonstrations."""

from collections.abc import Callable, Sequence
from typing import Any

from app.adapters.model.providers.partial_results import ended, joined
from app.domain.operator import Completion, Prompt


class ScriptedModel:
    """Answers each prompt with what a function makes of it; costs and waits for nothing."""

    def __init__(self, answer: Callable[[Prompt], str]) -> None:
        self._answer = answer

    @property
    def name(self) -> str:
        return "scripted"

    def parameters(self, prompt: Prompt) -> dict[str, Any]:  # noqa: ARG002
        """Returns nothing: the answer follows from the prompt alone."""
        return {}

    def complete(self, prompts: Sequence[Prompt]) -> list[Completion]:
        """Returns one completion a prompt, in order; the function may raise `Unavailable`."""
        ends = [ended(self._said, [prompt]) for prompt in prompts]
        return joined([[place] for place in range(len(prompts))], ends)

    def _said(self, prompts: Sequence[Prompt]) -> list[Completion]:
        return [Completion(self._answer(one), self.name, role=one.role) for one in prompts]
