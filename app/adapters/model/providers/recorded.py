"""Models that read completions from the ledger: a cache, and the replay of a recorded run."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from app.adapters.model.providers.partial_results import merged, partial_result
from app.domain.operator import Completion, Prompt
from app.ports.completions import CompletionKey
from app.ports.protocols import NEVER, LanguageModel, Misconfigured, Stop, Store


class CachedModel:
    """Looks a completion up in the ledger first, and asks the model for what is missing.

    The completions of all runs are the cache; nothing is stored beside them.  Of two callers that
    ask the same at once, both pay.
    """

    def __init__(self, model: LanguageModel, store: Store) -> None:
        self._model = model
        self._store = store

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def places(self) -> int | None:
        """Those of the model behind the cache."""
        return self._model.places

    def parameters(self, prompt: Prompt) -> Mapping[str, object]:
        """Returns the parameters of the model behind the cache."""
        return self._model.parameters(prompt)

    def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
        """Returns a completion for each prompt, in order; those of the ledger are marked `reused`.

        Raises:
          Stopped: It was asked to stop.
          Unavailable: The ledger or the model cannot be reached.
        """
        keys = [
            CompletionKey(prompt.digest, prompt.sample, self._model.parameters(prompt))
            for prompt in prompts
        ]
        with self._store.begin() as tx:
            recorded = tx.completions.recall(keys)
        known = {
            position: _reused(completion, prompts[position])
            for position, completion in enumerate(recorded)
            if completion is not None
        }
        missing = [position for position in range(len(prompts)) if position not in known]
        if not missing:
            return list(known.values())
        ask = partial(self._model.complete, stop=stop)
        fresh = partial_result(ask, [prompts[place] for place in missing])
        return merged([list(known), missing], [list(known.values()), fresh])


class ReplayModel:
    """Returns what a recorded run was answered to the same prompt of the same proposal."""

    def __init__(self, run: str, store: Store) -> None:
        """Reads nothing yet.

        Args:
          run: Name or number of the recorded run.
          store: The ledger that holds it.
        """
        self._run = run
        self._store = store

    @property
    def name(self) -> str:
        return self._run

    @property
    def places(self) -> None:
        """There is no limit."""
        return None

    def parameters(self, prompt: Prompt) -> Mapping[str, object]:  # noqa: ARG002
        """Returns which run is replayed."""
        return {"provider": "replay", "model": self._run}

    def complete(
        self,
        prompts: Sequence[Prompt],
        stop: Stop = NEVER,  # noqa: ARG002
    ) -> list[Completion]:
        """Returns the recorded completions, in order, free of charge.

        Raises:
          Misconfigured: There is no such run, or it holds no completion of a prompt.
        """
        with self._store.begin() as tx:
            run = tx.runs.named(self._run)
            if run is None:
                raise Misconfigured(f"no run {self._run!r} to replay: see `evoq list-runs`")
            recorded = tx.completions.replay(
                run.id, [(prompt.digest, prompt.sample) for prompt in prompts]
            )
        completions = []
        for prompt, completion in zip(prompts, recorded, strict=True):
            if completion is None:
                raise Misconfigured(
                    f"run {self._run!r} was not asked what proposal {prompt.sample} asks: replay "
                    "it with the same problem, settings and seed, both with --reproducible"
                )
            completions.append(_reused(completion, prompt))
        return completions


def _reused(completion: Completion, prompt: Prompt) -> Completion:
    """Returns a recorded completion as it counts now: with its tokens, and without cost or time."""
    return replace(completion, role=prompt.role, reused=True, cost_usd=0.0, latency_seconds=0.0)
