"""Runs: one search, its limits and its state."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from app.domain.problem import Axis, ProblemDigest
from app.domain.search.back_pressure import InFlightLimits
from app.domain.search.budget import Budget


class RunState(enum.StrEnum):
    """Where a run stands.  The last three are final, though `resume` may reopen the last two."""

    RUNNING = "running"
    PAUSED = "paused"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    FAILED = "failed"

    @property
    def final(self) -> bool:
        return self in (RunState.FINISHED, RunState.CANCELLED, RunState.FAILED)


@dataclass(frozen=True, slots=True)
class Run:
    """One search.

    Attributes:
      settings: Snapshot of the run's settings, without secrets; sections `search`, `llm`,
        `prompts`, `sandbox`, `queue`, `budget`.
      operators: Name to weight; how cohorts choose their operator.
      axes: The feature grid as it stands.
      reason: Why the state is what it is; "" while it needs no explanation.
      cohorts: Planned so far, the founding one not counted.
      proposals: Planned so far, the seeds not counted; never more than `budget.proposals`.
      events: Sequence number of the last event.
      tokens, cost_usd: Of the completions that were paid for.
      longest_prompt_tokens: Of the prompts they answered; 0 before the first.
      elapsed_seconds: Since the run was created, by the database's clock.
    """

    id: int
    name: str
    problem: ProblemDigest
    problem_name: str
    strategy: str
    settings: Mapping[str, Any]
    operators: Mapping[str, float]
    axes: tuple[Axis, ...]
    seed: int
    islands: int
    budget: Budget
    limits: InFlightLimits
    state: RunState
    reason: str = ""
    cohorts: int = 0
    proposals: int = 0
    events: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    longest_prompt_tokens: int = 0
    elapsed_seconds: float = 0.0

    def rng(self, ordinal: int, purpose: str) -> Random:
        """Returns the generator for this point of the run; the same point gives the same draws."""
        return Random(f"{self.seed}/{ordinal}/{purpose}")

    def draw_operator(self, ordinal: int) -> str:
        """Returns the operator of the cohort whose first proposal has this ordinal."""
        names = sorted(self.operators)
        weights = [self.operators[name] for name in names]
        return self.rng(ordinal, "operator").choices(names, weights)[0]
