"""Cohorts: proposals drawn from one snapshot and promoted together.

A steady-state MAP-Elites step is a cohort of one.  A FunSearch-Lite generation, a best-of-N, a beam
level and a tournament are larger cohorts under other promotion rules.
"""

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from app.domain.evaluation import Evaluation, Failure, Trial, fitness, mean_scores
from app.domain.operator import Draft, Role
from app.domain.program import ProgramId

ProposalId: TypeAlias = int
CohortId: TypeAlias = int
TrialId: TypeAlias = int


class State(enum.StrEnum):
    """The state of a proposal.  The last three are final."""

    PLANNED = "planned"
    TESTING = "testing"
    ADMITTED = "admitted"
    """The program was offered to the archive, and its cell decided."""
    CUT = "cut"
    """The proposal was settled without an offer and without a fault; see `CutReason`."""
    FAILED = "failed"

    @property
    def final(self) -> bool:
        return self in (State.ADMITTED, State.CUT, State.FAILED)


class CutReason(enum.StrEnum):
    """Why a proposal was cut."""

    BELOW_THRESHOLD = "below_threshold"
    """The program was measured, and not promoted to the next stage."""
    DUPLICATE = "duplicate"
    """The program is in the run already, by its fingerprint."""
    SIMILAR = "similar"
    """The program is nearly the text of another program of its island."""
    SAME_BEHAVIOUR = "same_behaviour"
    """The probe of the program gave the same result as the probe of another program."""
    WITHDRAWN = "withdrawn"
    """The proposal was in flight when its cohort was decided without it."""
    RETURNED = "returned"
    """The proposal was not begun when its cohort was decided, and the budget does not count it."""
    CANCELLED = "cancelled"
    """The proposal was in flight when its run's time was spent, or was not affordable."""


@dataclass(frozen=True, slots=True)
class Member:
    """A proposal in its cohort.

    Attributes:
      draft: None until `generate` draws the parents.
      program: The child; None until the operator has ended.
      length: Characters of the child's source; 0 while there is none.
      seed: Whether it is one of the run's seeds, which every island is offered.
      begun: Whether a worker has leased it, or one of its cohort with which it is bred.
      reserved: Proposals of the budget that are set aside for a run inside it.
    """

    id: ProposalId
    ordinal: int
    state: State
    draft: Draft | None = None
    program: ProgramId | None = None
    length: int = 0
    seed: bool = False
    begun: bool = False
    reserved: int = 0

    @property
    def role(self) -> Role:
        """The role of the model that writes the child."""
        return self.draft.role if self.draft else Role.GENERATOR


@dataclass(frozen=True, slots=True)
class Cohort:
    """A cohort in flight: its members, and every trial made for it (None while it runs).

    Attributes:
      recorded: The trials whose evaluations were recorded just now.
      late: Whether its deadline has passed.
    """

    id: CohortId
    run: int
    island: int
    operator: str
    members: tuple[Member, ...]
    trials: Mapping[Trial, Evaluation | None]
    recorded: tuple[Trial, ...] = ()
    late: bool = False

    @property
    def living(self) -> tuple[Member, ...]:
        return tuple(m for m in self.members if m.state is State.TESTING)

    @property
    def pending(self) -> tuple[Member, ...]:
        """The members that have no child yet; a promotion that ranks the members waits for them."""
        return tuple(m for m in self.members if m.state is State.PLANNED)

    @property
    def seeding(self) -> bool:
        """Whether the members are the run's seeds."""
        return any(m.seed for m in self.members)

    def member(self, program: ProgramId) -> Member | None:
        """Returns the living member whose child that is; None for an incumbent."""
        return next((m for m in self.living if m.program == program), None)

    @property
    def running(self) -> bool:
        return any(evaluation is None for evaluation in self.trials.values())

    def in_flight(self, settled: Collection[ProposalId]) -> bool:
        """Returns whether steps of these members, which settle now, may be in progress.

        They are where a member has no child, or a trial without an evaluation has no other player
        who is not settled.
        """
        left = {m.program for m in self.living if m.id not in settled}
        gone = {m.program for m in self.living if m.id in settled}
        waiting = (trial for trial, evaluation in self.trials.items() if evaluation is None)
        return any(m.id in settled for m in self.pending) or any(
            gone & {*trial.players} and not left & {*trial.players} for trial in waiting
        )

    @property
    def unfinished(self) -> tuple[ProposalId, ...]:
        """The members without a child, and those with a trial that has not ended.

        A repetition does not count: without it, what was measured before it is the fitness.
        """
        going = {
            player
            for trial, evaluation in self.trials.items()
            if evaluation is None and not trial.repetition
            for player in trial.players
        }
        return tuple(
            m.id for m in (*self.pending, *self.living) if not m.program or m.program in going
        )

    def without(self, members: Collection[ProposalId]) -> "Cohort":
        """Returns the cohort as it is once these members are cut and nothing more is measured."""
        left = (replace(m, state=State.CUT) if m.id in members else m for m in self.members)
        measured = {trial: e for trial, e in self.trials.items() if e is not None}
        return replace(self, members=tuple(left), trials=measured)

    def waits_at(self, stage: str) -> bool:
        """Returns whether a trial of a stage has no evaluation yet."""
        return any(
            t.measures == stage and evaluation is None for t, evaluation in self.trials.items()
        )

    def evaluations(self, player: ProgramId, stage: str | None = None) -> tuple[Evaluation, ...]:
        """Returns the player's evaluations at a stage (None: at all), in the order of trials.

        Those of repetitions are among them.
        """
        return tuple(
            e
            for t, e in self.trials.items()
            if e and (stage is None or t.measures == stage) and player in t.players
        )

    def failure(self, player: ProgramId, stage: str) -> Failure | None:
        """Returns the first failure the player is to blame for at a stage."""
        for evaluation in self.evaluations(player, stage):
            failure = evaluation.failure
            if failure and failure.culprit in (None, player):
                return failure
        return None

    def passed(self, player: ProgramId, stage: str, *, whole: bool = True) -> bool:
        """Returns whether every trial of a player at a stage succeeded; without `whole`, any."""
        evaluations = self.evaluations(player, stage)
        if not whole:
            return any(player in evaluation.scores for evaluation in evaluations)
        return bool(evaluations) and self.failure(player, stage) is None

    def fitness(self, player: ProgramId, stages: tuple[str, ...]) -> float | None:
        """Returns the player's fitness over `stages`, later ones overriding.

        What was measured repeatedly at a stage is the mean.
        """
        return fitness(player, [mean_scores(player, self._repetitions(player, s)) for s in stages])

    def measurements(self, player: ProgramId, stage: str) -> list[float]:
        """Returns the player's fitness by each measurement of a stage that has ended, in order."""
        values = (fitness(player, one) for one in self._repetitions(player, stage))
        return [value for value in values if value is not None]

    def _repetitions(self, player: ProgramId, stage: str) -> list[list[Evaluation]]:
        """Returns the player's evaluations by each measurement of a stage, in order."""
        by_number: dict[int, list[Evaluation]] = {}
        for trial, evaluation in self.trials.items():
            if evaluation and trial.measures == stage and player in trial.players:
                by_number.setdefault(trial.repetition, []).append(evaluation)
        return [by_number[number] for number in sorted(by_number)]

    def failed(self, stage: str) -> tuple[ProposalId, ...]:
        return tuple(
            m.id for m in self.living if m.program and self.failure(m.program, stage) is not None
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do about a cohort now.  The empty verdict means: wait for more results.

    Attributes:
      cut: Members that are tested no further; members without a child among them.
      withdraw: Members that are cut because the deadline of the cohort has passed.
    """

    test: tuple[Trial, ...] = ()
    admit: tuple[ProgramId, ...] = ()
    cut: tuple[ProposalId, ...] = ()
    fail: tuple[ProposalId, ...] = ()
    withdraw: tuple[ProposalId, ...] = ()
