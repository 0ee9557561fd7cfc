"""Costs of a run: completions by role and model, worker time by kind; folded from the ledger."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from app.domain.run import Run
from app.domain.search.model_mix import WINDOW, Written
from app.ports.completions import Account
from app.ports.ledger import Transaction
from app.ports.workers import WorkerTime


@dataclass(frozen=True, slots=True)
class Costs:
    """Resources a run used, and their cost as far as prices are known.

    Attributes:
      models: One account for each role and model, in that order.
      workers: One for each kind of worker; workers report their time some seconds late.
      written: What models were last drawn by, by role and model; {} where they are not drawn so.
      admitted: Number of admitted programs.
      booked_tokens, booked_usd: Charges against the budget.  They include the upper bound of
        requests without a reply, of replies whose tokens the endpoint did not count, and duplicate
        replies to requests that two workers sent.
    """

    models: tuple[Account, ...] = ()
    workers: tuple[WorkerTime, ...] = ()
    admitted: int = 0
    booked_tokens: int = 0
    booked_usd: float = 0.0
    written: Mapping[str, Mapping[str, Written]] = field(default_factory=dict)

    @property
    def completions(self) -> int:
        return sum(account.completions for account in self.models)

    @property
    def reused(self) -> int:
        """Completions that were read from earlier runs."""
        return sum(account.reused for account in self.models)

    @property
    def prompt_tokens(self) -> int:
        return sum(account.prompt_tokens for account in self.models)

    @property
    def completion_tokens(self) -> int:
        return sum(account.completion_tokens for account in self.models)

    @property
    def uncounted_tokens(self) -> int:
        """Tokens charged beyond those of completions."""
        return max(0, self.booked_tokens - self.prompt_tokens - self.completion_tokens)

    @property
    def uncounted_usd(self) -> float:
        """Dollars charged beyond the prices of completions."""
        return max(0.0, self.booked_usd - (self.models_usd or 0.0))

    @property
    def prefix_hit_rate(self) -> float | None:
        """Share of the prompt tokens that endpoints had in their prefix cache; None if none."""
        cached = sum(account.cached_tokens for account in self.models)
        return cached / self.prompt_tokens if self.prompt_tokens else None

    @property
    def _paid_usd(self) -> list[float | None]:
        return [account.cost_usd for account in self.models if account.completions > account.reused]

    @property
    def models_usd(self) -> float | None:
        """Cost of the completions with a price; None if there are completions and none has one."""
        return _sum(self._paid_usd)

    @property
    def workers_usd(self) -> float | None:
        """Cost of the worker time with a price; None if there is worker time and none has one."""
        return _sum([time.cost_usd for time in self.workers])

    @property
    def cost_usd(self) -> float | None:
        """Cost of models and workers; None where nothing that was used has a price."""
        return _sum([*self._paid_usd, *(time.cost_usd for time in self.workers)])

    @property
    def per_admitted_usd(self) -> float | None:
        """Cost per admitted program; None where there is none, or no price."""
        if not self.admitted or self.cost_usd is None:
            return None
        return self.cost_usd / self.admitted


def read_costs(tx: Transaction, run: Run, admitted: int) -> Costs:
    """Reads the costs of a run in two queries, and one more for each mix."""
    models, workers = tuple(tx.completions.accounts(run.id)), tuple(tx.workers.of_run(run.id))
    mixes = run.rules.asking.mixes
    written = {role.value: tx.completions.written(run.id, role, WINDOW) for role in mixes}
    return Costs(models, workers, admitted, run.tokens, run.cost_usd, written)


def _sum(amounts: Sequence[float | None]) -> float | None:
    """Returns the sum of the known amounts; None where there are amounts and none is known."""
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known or not amounts else None
