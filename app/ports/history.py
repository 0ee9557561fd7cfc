"""Folds over a run's proposals and trials.  Every result is bounded, or as long as requested."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from app.domain.evaluation import Evaluation, Failure, fitness
from app.domain.operator import Role
from app.domain.program import ProgramId
from app.domain.run import Run
from app.domain.search.archive import Quality
from app.domain.search.cohort import CohortId, CutReason, ProposalId, State, TrialId


@dataclass(frozen=True, slots=True)
class Settled:
    """One settled proposal as reports see it.

    Attributes:
      ordinal: From 0; of seeds from -1 down.
      seed: Whether it is one of the run's seeds.
      seconds: After the run's creation.
      wall_seconds, cpu_seconds, boot_seconds: Summed over its trials.
      peak_memory_mib: Of its largest trial; None where none measured it.
      epoch: The island's epoch when its parents were drawn.
      tokens, cost_usd: Of the completions paid for in its name; None where no price is known.
      stages_left: How many stages an admitted program was not measured at.
      metrics: The numbers that the evaluator reported of its program in its trials, by name.
    """

    ordinal: int
    state: State
    island: int
    operator: str
    generation: int
    program: ProgramId | None
    parents: tuple[ProgramId, ...]
    fitness: float | None
    verified: bool
    failure: Failure | None
    seconds: float
    wall_seconds: float
    cpu_seconds: float
    changes: str = ""
    tokens: int = 0
    cost_usd: float | None = None
    role: Role = Role.GENERATOR
    peak_memory_mib: float | None = None
    boot_seconds: float = 0.0
    epoch: int = 0
    seed: bool = False
    stages_left: int = 0
    cut: CutReason | None = None
    cohort: CohortId = 0
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def quality(self) -> Quality | None:
        """What it is compared by; None if it has no fitness."""
        return None if self.fitness is None else Quality(-self.stages_left, self.fitness)


@dataclass(frozen=True, slots=True)
class Validation:
    """What was measured of a program on validation data.

    Attributes:
      evaluations: Of its trials that have ended, in order.
      waiting: Trials that have not.
    """

    program: ProgramId
    evaluations: tuple[Evaluation, ...]
    waiting: int

    @property
    def failure(self) -> Failure | None:
        """The first failure of a trial, which leaves the program out."""
        failures = (one.failure for one in self.evaluations if one.failure)
        return next(failures, None)

    @property
    def fitness(self) -> float | None:
        """The fitness by validation data; None while trials wait, and after a failure."""
        if self.waiting or self.failure:
            return None
        return fitness(self.program, self.evaluations)


class Reached(enum.IntEnum):
    """How far a proposal came; who reached one of these has reached all before it."""

    # Its operator was begun.
    ASKED = 0
    # Its model replied; of an operator that asks none, it ended.
    ANSWERED = 1
    # The reply is a program.
    USABLE = 2
    # The program is neither its parent nor another program of the run.
    NEW = 3
    # No trial of it failed.
    RAN = 4
    # It was measured at every stage.
    MEASURED = 5
    # Its quality is above that of its first parent.
    BETTER = 6
    # Its quality is above that of every program admitted before.
    BEST = 7


@dataclass(frozen=True, slots=True)
class FunnelGroup:
    """Proposals of one operator and one model that came equally far, and what was spent on them.

    Attributes:
      model: The model that wrote the child; "" where none replied.
      erred: How many of them failed in a trial.
      requests: Completions that were paid for, repair turns included.
      prompt_tokens, reply_tokens, model_seconds: Of these completions.
      sandbox_seconds: Real time of their trials.
    """

    operator: str
    model: str
    reached: Reached
    proposals: int
    erred: int
    requests: int
    prompt_tokens: int
    reply_tokens: int
    model_seconds: float
    sandbox_seconds: float


@dataclass(frozen=True, slots=True)
class Birth:
    """The first admission of a program.

    Attributes:
      parent: Its first parent; None of a seed.
      ordinal: From 0; of seeds from -1 down.
      children: Programs whose first parent it is, in whatever admission of theirs.
    """

    program: ProgramId
    parent: ProgramId | None
    fitness: float
    operator: str
    island: int
    ordinal: int
    children: int


@dataclass(frozen=True, slots=True)
class PlannedGame:
    """A game of a cohort, as the ledger has it.

    Attributes:
      trial: The trial that it is.
      number: Of the game between these two.
      ended: Whether its result is recorded; else `at_work` says whether a worker plays it now.
      position: The last position, as the referee wrote it; "" where it wrote none.
    """

    trial: TrialId
    first: ProgramId
    second: ProgramId
    number: int
    ended: bool
    at_work: bool
    position: str


@dataclass(frozen=True, slots=True)
class Reused:
    """Trials of a run that took the result of an equal one, and what that one took."""

    trials: int = 0
    wall_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class DetailCount:
    """The first line of a failure's detail, and how many failures have it.

    Attributes:
      newest: The whole detail of the newest of these failures.
    """

    detail: str
    count: int
    newest: str


@dataclass(frozen=True, slots=True)
class Spent:
    """What the completions of all runs took.

    Attributes:
      cost_usd: Of those with a price.
    """

    runs: int
    tokens: int
    cost_usd: float


@dataclass(frozen=True, slots=True)
class LockWaits:
    """The sessions of the ledger that wait for a lock which another session holds.

    Attributes:
      sessions: Number of the sessions that wait now.
      longest_seconds: Time that the first of them has waited; 0 without any.
    """

    sessions: int
    longest_seconds: float


class History(Protocol):
    """Settled proposals of a run, for reports and for the search's own stopping rules."""

    def best(self, run: int) -> Settled | None:
        """Returns the admitted proposal of the best quality, seeds included; None if none.

        Ties: the older.  Of a run whose ranking is relative: the proposal of its champion, with the
        fitness that the champion has now.
        """
        ...

    def fittest(self, run: int, limit: int) -> list[tuple[Settled, list[Evaluation]]]:
        """Returns the admitted proposals of the best quality with their evaluations, best first.

        Ties: the older.
        """
        ...

    def validations(self, run: int) -> list[Validation]:
        """Returns what was measured on validation data, in the order in which it was planned."""
        ...

    def best_quality(self, run: Run, besides: Sequence[ProposalId] = ()) -> Quality | None:
        """Returns the best quality among admitted proposals but `besides`; None if there is none.

        Of a run whose ranking is relative: the quality of its champion.
        """
        ...

    def start(self, run: int) -> float | None:
        """Returns the highest fitness of a seed; None before one was measured."""
        ...

    def settled(self, run: int, after: int = 0, limit: int = 1000) -> list[Settled]:
        """Returns settled proposals in order of settling, skipping the first `after`."""
        ...

    def of_program(self, run: int, program: ProgramId, limit: int) -> list[Settled]:
        """Returns the first settled proposals whose child is this program, oldest first."""
        ...

    def of_ordinal(self, run: int, ordinal: int) -> Settled | None:
        """Returns the settled proposal with this ordinal; None where there is none."""
        ...

    def lineage(self, run: int, program: ProgramId, limit: int) -> list[Settled]:
        """Returns the admission of a program, of its first parent, of that one's parent and so on.

        Newest first.  Of a program that was admitted more than once, the first time counts.
        """
        ...

    def ancestry(self, run: int, programs: Sequence[ProgramId]) -> list[Birth]:
        """Returns the first admissions of programs and of all their ancestors by first parents.

        Parents come before their children.  A program that was never admitted is left out.
        """
        ...

    def placed(self, run: int, limit: int) -> list[tuple[Settled, list[Evaluation]]]:
        """Returns the first `limit` admitted proposals with their evaluations, in order of id."""
        ...

    def metrics(self, run: int, ordinals: Sequence[int]) -> dict[int, dict[str, float]]:
        """Returns what the evaluator reported of the programs of proposals, by their ordinals.

        A proposal of which nothing was measured is absent.
        """
        ...

    def evaluations(self, run: int, program: ProgramId) -> list[Evaluation]:
        """Returns a program's evaluations in the cohorts that it was a child of, in order."""
        ...

    def rated(self, run: int, program: ProgramId, island: int | None) -> list[Evaluation]:
        """Returns a player's scores and metrics in the games of one generation, in order.

        Args:
          run: The run.
          program: The player.
          island: Where its newest settled generation is wanted; None, and where it has played in
            none there, for the first one that it played in.
        """
        ...

    def games(self, run: int, cohort: CohortId, limit: int) -> list[PlannedGame]:
        """Returns the games of a cohort: those at work, those that wait, then the newest ended."""
        ...

    def states(self, run: int) -> dict[State, int]:
        """Returns how many proposals of the budget are in each state."""
        ...

    def admitted(self, run: int, limit: int) -> int:
        """Returns how many proposals of the budget were admitted, at most `limit`."""
        ...

    def entered(self, run: int) -> int:
        """Returns how many proposals of the budget a cell took when they were offered to it."""
        ...

    def failures(self, run: int) -> dict[str, int]:
        """Returns how many proposals of the budget failed, by failure kind."""
        ...

    def uptime_seconds(self) -> float:
        """Returns for how long the ledger's server has been running."""
        ...

    def lock_waits(self) -> LockWaits:
        """Returns who waits for a lock of the ledger at this moment."""
        ...

    def usual_failure(self, run: int, kind: str, among: int) -> DetailCount | None:
        """Returns the commonest first line among the newest failures of a kind; None without any.

        Args:
          run: The run.
          kind: The failure kind.
          among: How many failures are read.
        """
        ...

    def cuts(self, run: int) -> dict[str, int]:
        """Returns how many proposals of the budget were cut, by reason."""
        ...

    def funnel(self, run: int, limit: int) -> list[FunnelGroup]:
        """Returns how far the first `limit` proposals of the budget came that were begun.

        One group for each operator, model and step reached, in that order.
        """
        ...

    def reused(self, run: int) -> Reused:
        """Returns how many trials of a run were not run, because an equal one had been."""
        ...

    def ledger_bytes(self) -> int:
        """Returns the size of the ledger's database."""
        ...

    def spent(self) -> Spent:
        """Returns the totals of all runs together."""
        ...
