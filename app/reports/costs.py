"""What a run cost: completions by role and model, workers by kind; folds over the ledger."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from app.domain.run import Run
from app.ports.ledger import Transaction
from app.ports.records import Account, WorkerTime


@dataclass(frozen=True, slots=True)
class Costs:
    """What a run took, as far as prices are known.

    Attributes:
      models: One a role and model, in that order.
      workers: One a kind; what workers wrote so far, which is some seconds behind.
      admitted: Programs that all of it was for.
      booked_tokens, booked_usd: What counts against the budget: with what requests may have taken
        that nobody answered, with what an endpoint did not count, and with answers to what another
        worker had asked too.
    """

    models: tuple[Account, ...] = ()
    workers: tuple[WorkerTime, ...] = ()
    admitted: int = 0
    booked_tokens: int = 0
    booked_usd: float = 0.0

    @property
    def prompt_tokens(self) -> int:
        return sum(one.prompt_tokens for one in self.models)

    @property
    def completion_tokens(self) -> int:
        return sum(one.completion_tokens for one in self.models)

    @property
    def uncounted_tokens(self) -> int:
        """What is booked beyond the tokens of completions."""
        return max(0, self.booked_tokens - self.prompt_tokens - self.completion_tokens)

    @property
    def uncounted_usd(self) -> float:
        """What is booked beyond the prices of completions."""
        return max(0.0, self.booked_usd - (self.models_usd or 0.0))

    @property
    def prefix_hit_rate(self) -> float | None:
        """Share of the prompt tokens that endpoints had read before; None without any."""
        cached = sum(one.cached_tokens for one in self.models)
        return cached / self.prompt_tokens if self.prompt_tokens else None

    @property
    def _paid_usd(self) -> list[float | None]:
        return [one.cost_usd for one in self.models if one.completions > one.reused]

    @property
    def models_usd(self) -> float | None:
        """Of the completions with a price; None where there are completions and none has one."""
        return _sum(self._paid_usd)

    @property
    def workers_usd(self) -> float | None:
        """Of the workers with a price; None where there are workers and none has one."""
        return _sum([one.cost_usd for one in self.workers])

    @property
    def cost_usd(self) -> float | None:
        """Of models and workers; None where nothing that was used has a price."""
        return _sum([*self._paid_usd, *(one.cost_usd for one in self.workers)])

    @property
    def per_admitted_usd(self) -> float | None:
        """Cost of one admitted program; None where there is none, or no price."""
        if not self.admitted or self.cost_usd is None:
            return None
        return self.cost_usd / self.admitted


def costs(tx: Transaction, run: Run, admitted: int) -> Costs:
    """Reads what a run cost: two queries, a row for each role and model, and each kind."""
    models, workers = tuple(tx.accounts(run.id)), tuple(tx.shifts(run.id))
    return Costs(models, workers, admitted, run.tokens, run.cost_usd)


def costs_document(found: Costs) -> dict[str, Any]:
    """Returns the costs as JSON values; null is what has no price."""
    return {
        "completions": sum(one.completions for one in found.models),
        "reused": sum(one.reused for one in found.models),
        "unpriced": sum(one.unpriced for one in found.models),
        "prompt_tokens": found.prompt_tokens,
        "completion_tokens": found.completion_tokens,
        "booked_tokens": found.booked_tokens,
        "booked_usd": found.booked_usd,
        "prefix_hit_rate": found.prefix_hit_rate,
        "models_usd": found.models_usd,
        "workers_usd": found.workers_usd,
        "cost_usd": found.cost_usd,
        "per_admitted_usd": found.per_admitted_usd,
        "models": [asdict(one) for one in found.models],
        "workers": [asdict(one) for one in found.workers],
    }


def _sum(known: Sequence[float | None]) -> float | None:
    """Returns the sum of what is known; None where nothing of something is."""
    told = [one for one in known if one is not None]
    return sum(told) if told or not known else None
