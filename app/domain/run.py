"""Runs: one search, its limits and its state."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from app.domain.events import Changed
from app.domain.operator import Role
from app.domain.problem import Axis, ProblemDigest
from app.domain.prompting.judging import Judges
from app.domain.prompting.rules import PromptRules
from app.domain.search.back_pressure import Caps, InFlightLimits
from app.domain.search.budget import Budget, PriceCeiling
from app.domain.search.cohort import ProposalId
from app.domain.search.fleets import FleetRules
from app.domain.search.gates import Gate
from app.domain.search.model_mix import ModelMix
from app.domain.search.nested import NestedRules
from app.domain.search.refining import Refining
from app.domain.search.rules import SearchRules
from app.domain.search.strategy import Ranking, Recipe


class RunState(enum.StrEnum):
    """The state of a run.  The last three are final, though `resume` may reopen the last two."""

    RUNNING = "running"
    PAUSED = "paused"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    FAILED = "failed"

    @property
    def final(self) -> bool:
        return self in (RunState.FINISHED, RunState.CANCELLED, RunState.FAILED)


@dataclass(frozen=True, slots=True)
class AskingRules:
    """How language models are prompted.

    Attributes:
      repair_turns: How often an unusable reply may be asked for again.
      roles: The roles that the settings name.
      judges: The models that judge measured programs; None where no model does.
      price_ceiling: The most that one completion may take.
      mixes: The models that are drawn by what came of their children, by role.
      generators: Names of the models that write children.
      agent_tokens: Most tokens of one agent; 0 where agents ask no model.
    """

    repair_turns: int
    roles: frozenset[Role]
    refining: Refining
    judges: Judges | None
    price_ceiling: PriceCeiling
    mixes: Mapping[Role, ModelMix]
    generators: frozenset[str] = frozenset()
    agent_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Rules:
    """A run's settings as steps read them, parsed once where the run is read from the ledger.

    Attributes:
      queue: The limits on proposals in flight that are set, not measured.
      recipe: The search method with its parameters; None where this process does not have it,
        because the package that provides it is not installed.
      gates: The parsed gates of `search`; None leaves them to the problem.
      grid_after: Measured programs after which the ranges of open axes are learnt.
      by_task: Whether the recipe asks for children by task; see `Brief`.
      nested: What the runs inside are created from; None where none may be.
      fleets: Which workers serve the run's steps.
      project: Whose quotas hold; "" for no project.
      limits: The fields of `Limits` by name; None leaves one to the problem.
    """

    search: SearchRules
    prompts: PromptRules
    asking: AskingRules
    queue: Caps
    recipe: Recipe | None
    gates: tuple[Gate, ...] | None
    grid_after: int
    by_task: bool
    nested: NestedRules | None = None
    fleets: FleetRules = field(default_factory=FleetRules)
    project: str = ""
    limits: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Revision:
    """Other settings for a run that has begun.

    Attributes:
      settings: All of them, as they are stored.
      operators: Name to weight.
      changes: What differs, a fact for each setting.
      fleets: Those of the run by these settings.
    """

    settings: Mapping[str, Any]
    operators: Mapping[str, float]
    budget: Budget
    changes: tuple[Changed, ...]
    fleets: FleetRules = field(default_factory=FleetRules)


@dataclass(frozen=True, slots=True)
class Run:
    """One search.

    Attributes:
      settings: Snapshot of the run's settings as they are stored, without secrets, for reports and
        for a resumed run; steps read `rules`.
      operators: Name to weight; how cohorts choose their operator.
      axes: The present feature grid.
      reason: Why the state is what it is; "" while it needs no explanation.
      cohorts: Planned so far, that of the seeds not counted.
      proposals: Planned so far, the seeds and what was given back not counted; never more than
        `budget.proposals`.  Those of runs inside count, and while they go on their whole slices.
      ordinals: Of all proposals but the seeds: the next one's ordinal.
      events: Sequence number of the last event.
      tokens, cost_usd: Of the completions that were paid for, those of runs inside included.
      longest_prompt_tokens: Of the prompts they answered; 0 before the first.
      elapsed_seconds: Since the run was created, by the database's clock.
      revision: How often its settings were changed.
      ranking: Whether fitness of different times is comparable; its strategy's.
      parent: The proposal of another run whose child this run is to find; None outside of all.
      in_process: Whether one process alone works on it, and workers leave it alone.
      fleet: Label of the fleet of the step that was leased with the run; "" without one.
    """

    id: int
    name: str
    problem: ProblemDigest
    problem_name: str
    strategy: str
    settings: Mapping[str, Any]
    rules: Rules
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
    ordinals: int = 0
    events: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    longest_prompt_tokens: int = 0
    elapsed_seconds: float = 0.0
    revision: int = 0
    ranking: Ranking = Ranking.ABSOLUTE
    parent: ProposalId | None = None
    in_process: bool = False
    fleet: str = ""

    @property
    def plans_nothing(self) -> bool:
        """Whether its trials are added from outside: the candidates of a pattern over folders."""
        return not self.operators

    def rng(self, ordinal: int, purpose: str) -> Random:
        """Returns the generator for this point of the run; the same point gives the same draws."""
        return Random(f"{self.seed}/{ordinal}/{purpose}")

    def draw_operator(self, ordinal: int) -> str:
        """Returns the operator of the cohort whose first proposal has this ordinal."""
        names = sorted(self.operators)
        weights = [self.operators[name] for name in names]
        return self.rng(ordinal, "operator").choices(names, weights)[0]
