"""A model that answers from a function; for tests and demonstrations."""

from collections.abc import Callable, Sequence

from app.adapters.model.providers.partial_results import merged, partial_result
from app.domain.operator import Completion, Prompt
from app.ports.protocols import NEVER, Stop


class ScriptedModel:
    """Answers each prompt with the result of a function, at once and free of charge."""

    def __init__(self, answer: Callable[[Prompt], str]) -> None:
        self._answer = answer

    @property
    def name(self) -> str:
        return "scripted"

    @property
    def places(self) -> None:
        """There is no limit."""
        return None

    def parameters(self, prompt: Prompt) -> dict[str, object]:  # noqa: ARG002
        """Returns nothing: the answer follows from the prompt alone."""
        return {}

    def complete(
        self,
        prompts: Sequence[Prompt],
        stop: Stop = NEVER,  # noqa: ARG002
    ) -> list[Completion]:
        """Returns a completion for each prompt, in order; the function may raise `Unavailable`."""
        results = [partial_result(self._completed, [prompt]) for prompt in prompts]
        return merged([[position] for position in range(len(prompts))], results)

    def _completed(self, prompts: Sequence[Prompt]) -> list[Completion]:
        return [Completion(self._answer(prompt), self.name, role=prompt.role) for prompt in prompts]
