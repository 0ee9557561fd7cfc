"""A recorded run as a model: what it was answered is answered again, and nobody is asked."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from app.domain.operator import Completion, Prompt
from app.ports.protocols import Misconfigured, Store


class ReplayModel:
    """Reads from the ledger what a run was answered to the same prompt of the same proposal."""

    def __init__(self, run: str, store: Store) -> None:
        """Reads nothing yet.

        Args:
          run: Name or number of the recorded run.
          store: The ledger it is in.
        """
        self._run = run
        self._store = store

    @property
    def name(self) -> str:
        return self._run

    def parameters(self, prompt: Prompt) -> Mapping[str, Any]:  # noqa: ARG002
        """Returns which run is replayed."""
        return {"provider": "replay", "model": self._run}

    def complete(self, prompts: Sequence[Prompt]) -> list[Completion]:
        """Returns the recorded completions, in order, as what they cost this time: nothing.

        Raises:
          Misconfigured: There is no such run, or it was never asked this.
        """
        with self._store.begin() as tx:
            recorded = tx.runs.named(self._run)
            if recorded is None:
                raise Misconfigured(f"no run {self._run!r} to replay: see `evoq list-runs`")
            found = tx.completions.replay(
                recorded.id, [(one.digest, one.sample) for one in prompts]
            )
        replies = []
        for prompt, one in zip(prompts, found, strict=True):
            if one is None:
                raise Misconfigured(
                    f"run {self._run!r} was not asked what proposal {prompt.sample} asks: replay "
                    "it with the same problem, settings and seed, both with --reproducible"
                )
            replies.append(
                replace(one, role=prompt.role, reused=True, cost_usd=0.0, latency_seconds=0.0)
            )
        return replies
