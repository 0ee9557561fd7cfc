"""A model that reads from the ledger what was once answered to the same question, in any run."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from app.adapters.model.providers.partial_results import ended, joined
from app.domain.operator import Completion, Prompt
from app.ports.protocols import Store
from app.ports.records import CompletionKey


class Described(Protocol):
    """A language model that says beforehand what it will ask with."""

    @property
    def name(self) -> str: ...

    def complete(self, prompts: Sequence[Prompt]) -> list[Completion]: ...

    def parameters(self, prompt: Prompt) -> Mapping[str, Any]:
        """Returns what `Completion.parameters` of the prompt's completion will be."""
        ...


class CachedModel:
    """Asks the ledger first, and the model for what was never answered.

    The ledger's own completions are the cache: nothing is kept beside them, and what any run was
    answered since its parameters are recorded can be found.  Two that ask at once both pay.
    """

    def __init__(self, model: Described, store: Store) -> None:
        self._model = model
        self._store = store

    @property
    def name(self) -> str:
        return self._model.name

    def complete(self, prompts: Sequence[Prompt]) -> list[Completion]:
        """Returns one completion a prompt, in order; those that were found are marked `reused`.

        Raises:
          Unavailable: The ledger or the model cannot be reached.
        """
        asked = [
            CompletionKey(prompt.digest, prompt.sample, self._model.parameters(prompt))
            for prompt in prompts
        ]
        with self._store.begin() as tx:
            found = tx.completions.recall(asked)
        known = {n: _reused(one, prompts[n]) for n, one in enumerate(found) if one is not None}
        missing = [n for n in range(len(prompts)) if n not in known]
        fresh = ended(self._model.complete, [prompts[n] for n in missing]) if missing else []
        return joined([list(known), missing], [list(known.values()), fresh])


def _reused(one: Completion, prompt: Prompt) -> Completion:
    """Returns the completion as it costs this time: its tokens are those it took then."""
    return replace(one, role=prompt.role, reused=True, cost_usd=0.0, latency_seconds=0.0)
