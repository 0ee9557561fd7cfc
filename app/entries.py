"""What is entered into the ledger, and what reports read of it: plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.domain.cohort import ProposalId, State
from app.domain.evaluation import Failure
from app.domain.operator import Draft
from app.domain.problem import Axis, ProblemDigest
from app.domain.program import ProgramId
from app.domain.run import Budget, Limits


@dataclass(frozen=True, slots=True)
class NewRun:
    """What a run is created from.  Field meanings: `app.domain.run.Run`."""

    name: str
    problem: ProblemDigest
    strategy: str
    settings: Mapping[str, Any]
    operators: Mapping[str, float]
    axes: tuple[Axis, ...]
    seed: int
    islands: int
    budget: Budget
    limits: Limits


@dataclass(frozen=True, slots=True)
class Plan:
    """A cohort to be added: where, by which operator, under which ordinals.

    Attributes:
      drafts: One per ordinal when the parents are already known (the founding cohort), else ().
    """

    island: int
    operator: str
    ordinals: tuple[int, ...]
    drafts: tuple[Draft, ...] = ()
    founding: bool = False


@dataclass(frozen=True, slots=True)
class Backlog:
    """Unsettled proposals of a run.

    Attributes:
      generating: How many wait for their operator.
      evaluating: How many are under test.
      islands: How many each island has, founding cohort not counted; absent where none.
      founding: How many of them are seeds.
    """

    generating: int = 0
    evaluating: int = 0
    islands: Mapping[int, int] = field(default_factory=dict)
    founding: int = 0

    @property
    def unsettled(self) -> int:
        """Proposals of the budget that are not settled."""
        return self.generating + self.evaluating - self.founding


@dataclass(frozen=True, slots=True)
class Asked:
    """All that shapes a completion.

    Attributes:
      prompt: The prompt's digest.
      sample: Which draw of the same text.
      parameters: See `Completion.parameters`.
    """

    prompt: str
    sample: int
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Child:
    """What became of one member: enters testing with a program, or is settled."""

    proposal: ProposalId
    state: State
    program: ProgramId | None = None
    changes: str = ""
    failure: Failure | None = None
    fitness: float | None = None
    verified: bool = False


@dataclass(frozen=True, slots=True)
class Settled:
    """One settled proposal as reports see it.

    Attributes:
      ordinal: From 0; negative for seeds.
      seconds: After the run's creation.
      wall_seconds, cpu_seconds: Summed over its trials.
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
