"""What is entered into the ledger, and what reports read of it: plain values."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.domain.evaluation import Evaluation, Failure, Trial, fitness
from app.domain.operator import Completion, Draft, Point, Prompt, Role
from app.domain.problem import Axis, ProblemDigest
from app.domain.program import Program, ProgramId
from app.domain.run import Run
from app.domain.search.archive import Quality
from app.domain.search.back_pressure import InFlightLimits
from app.domain.search.budget import Budget, Charge
from app.domain.search.cohort import Cohort, CohortId, CutReason, ProposalId, State, TrialId
from app.domain.search.shares import Claimant


class BadCopy(ValueError):
    """A copy of a run is damaged, or of another version of the ledger."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table of the ledger.

    Attributes:
      values: JSON values by column, every column.
    """

    table: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StoredProblem:
    """What the ledger keeps of a problem, enough to load it again.

    Attributes:
      format: The name of the format that reads it.
      files: Relative POSIX path to contents.
      options: Values beside the files that shape its evaluation.
    """

    format: str
    name: str
    files: Mapping[str, bytes]
    options: Mapping[str, Any]


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
    limits: InFlightLimits
    parent: ProposalId | None = None
    in_process: bool = False


@dataclass(frozen=True, slots=True)
class InsideRun:
    """A proposal whose child a run inside its own finds.

    Attributes:
      proposal, ordinal, state: Of the proposal.
      reserved: Proposals that are set aside for the run; 0 once what it left was given back.
      run: None until it is begun.
    """

    proposal: ProposalId
    ordinal: int
    state: State
    reserved: int
    run: Run | None


@dataclass(frozen=True, slots=True)
class InsideTotals:
    """What the runs inside a run have spent together; it is part of what that run has spent."""

    runs: int = 0
    proposals: int = 0
    tokens: int = 0
    cost_usd: float = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """A cohort to be added: where, by which operator, under which ordinals.

    Attributes:
      drafts: One per ordinal when the parents are already known (seeds), else ().
      seeding: Whether the proposals are the run's seeds.
      together: Whether one conversation makes the children of all.
      reserved: Proposals that are set aside for a run inside each; () where there is none.
      fleet: Label of the fleet that generates it; "" for workers without a label.
    """

    island: int
    operator: str
    ordinals: tuple[int, ...]
    drafts: tuple[Draft, ...] = ()
    seeding: bool = False
    together: bool = False
    reserved: tuple[int, ...] = ()
    fleet: str = ""

    @property
    def proposals(self) -> int:
        """Proposals of the budget that it takes."""
        return len(self.ordinals) + sum(self.reserved)


@dataclass(frozen=True, slots=True)
class TracedProposal:
    """What a trace says of a proposal.

    Attributes:
      planned_us: Microseconds since 1970 when it was planned, by the database's clock.
      outcome: The reason of a cut or the kind of a failure; "" without one.
    """

    id: ProposalId
    ordinal: int
    island: int
    operator: str
    planned_us: int
    state: State
    program: ProgramId | None
    outcome: str


@dataclass(frozen=True, slots=True)
class Backlog:
    """Unsettled proposals of a run.

    Attributes:
      generating: How many wait for their operator.
      evaluating: How many are under test.
      islands: How many each island has, seeds not counted; absent where none.
      seeding: How many of them are seeds.
      reserved: Proposals that are set aside for runs inside them.
      planned: How many wait for their operator, by island and label of the fleet that generates.
      testing: How many are under test, by island.
    """

    generating: int = 0
    evaluating: int = 0
    islands: Mapping[int, int] = field(default_factory=dict)
    seeding: int = 0
    reserved: int = 0
    planned: Mapping[tuple[int, str], int] = field(default_factory=dict)
    testing: Mapping[int, int] = field(default_factory=dict)

    @property
    def unspent(self) -> int:
        """Proposals that the budget counts and that are not settled, or may be given back."""
        return self.unsettled + self.reserved

    @property
    def unsettled(self) -> int:
        """Proposals of the budget that are not settled."""
        return self.generating + self.evaluating - self.seeding


@dataclass(frozen=True, slots=True)
class CompletionKey:
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
class MemberResult:
    """The new state of one member: it enters testing with a program, or is settled.

    Attributes:
      stages_left: How many stages an admitted program was not measured at.
      point: See `Offspring`; one that is stored already stays.
      fleet: Label of the fleet that tests it; None where it is not to be tested.
    """

    proposal: ProposalId
    state: State
    program: ProgramId | None = None
    changes: str = ""
    failure: Failure | None = None
    cut: CutReason | None = None
    fitness: float | None = None
    verified: bool = False
    stages_left: int = 0
    point: Point | None = None
    fleet: str | None = None


@dataclass(frozen=True, slots=True)
class Account:
    """Completions of a run in one role by one model.

    Attributes:
      reused: How many of them were read from earlier runs.
      unpriced: How many were paid for at an unknown price.
      prompt_tokens, cached_tokens, completion_tokens: Of those that were paid for; `cached_tokens`
        are the prompt tokens an endpoint had read before.
      reused_tokens: Of those that were not, prompts included.
      latency_seconds: Summed over those that were asked for.
      cost_usd: Of those with a price; None where none has one.
    """

    role: str
    model: str
    completions: int
    reused: int
    unpriced: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    reused_tokens: int
    latency_seconds: float
    cost_usd: float | None


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


class Asker(enum.StrEnum):
    """The part of a step that prompts a model about a proposal."""

    OPERATOR = "operator"
    JUDGES = "judges"


@dataclass(frozen=True, slots=True)
class StoredReply:
    """A completion as it is kept for people to read.

    Attributes:
      turn: From 0 on, within the conversation of its asker.
      prompt: Digest of the prompt.
      system, user: Its texts, as far as they were kept; None where the run keeps none.
    """

    asker: Asker
    turn: int
    prompt: str
    system: str | None
    user: str | None
    completion: Completion


@dataclass(frozen=True, slots=True)
class ComparedRuns:
    """The runs of one `evoq compare`, which are named COMPARISON.PROBLEM.ARM.SEED.

    Attributes:
      runs: How many have begun; `finished` of them have finished.
    """

    name: str
    problems: Sequence[str]
    arms: Sequence[str]
    runs: int
    finished: int


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
class LeasedProposals:
    """Proposals this process has leased: one, or those whose children one conversation makes.

    Attributes:
      cohort: Their cohort, with these members only and without trials.
      size: How many members the whole cohort has.
    """

    cohort: Cohort
    size: int

    @property
    def id(self) -> ProposalId:
        """The proposal that has the lease: the first."""
        return self.cohort.members[0].id


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of a conversation about proposals of a cohort, as it is saved.

    Attributes:
      cohort: With the members that the conversation is about.
      asker: What asks; operators and judges have conversations of their own.
      number: From 0 on.
      booked: What it adds to the run's account.
      prompts: What was asked; () where only the account changes.
      completions: One a prompt; None where there is none yet, or where it is saved already.
      drafts: The parents that were drawn, one a member; () if they are saved already.
      logged_chars: Characters that are kept of each text of a prompt; 0 keeps none.
    """

    cohort: Cohort
    asker: Asker
    number: int
    booked: Charge
    prompts: Sequence[Prompt] = ()
    completions: Sequence[Completion | None] = ()
    drafts: Sequence[Draft] = ()
    logged_chars: int = 0

    @property
    def proposal(self) -> ProposalId:
        """The proposal that the conversation is stored under: the first."""
        return self.cohort.members[0].id


@dataclass(frozen=True, slots=True)
class WaitingTrial:
    """A trial without an evaluation, for a message.

    Attributes:
      fleet: Label of the fleet that it is for.
    """

    id: TrialId
    cohort: CohortId
    stage: str
    fleet: str = ""


@dataclass(frozen=True, slots=True)
class TrialQueue:
    """The trials of a run that wait for a sandbox of one fleet.

    Attributes:
      fleet: Its label.
      claimant: What the run's share follows from.
      batch: Most trials that one place takes at a time.
      waiting: The oldest, in order of id.
      named: Those that the reader named.
      places: Of all workers of the fleet together, whichever run; see `Capacity.sandbox`.
    """

    claimant: Claimant
    batch: int
    waiting: tuple[TrialId, ...]
    named: tuple[TrialId, ...]
    places: int | None
    fleet: str = ""


@dataclass(frozen=True, slots=True)
class LeasedTrial:
    """A trial this process has leased, with the programs it plays.

    Attributes:
      attempt: Number of this attempt, from 1.
    """

    id: TrialId
    cohort: CohortId
    trial: Trial
    programs: Mapping[ProgramId, Program]
    attempt: int


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The evaluation of a trial."""

    id: TrialId
    cohort: CohortId
    evaluation: Evaluation


WORKER_KINDS = ("gpu", "cpu", "control")


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker process from its start to its end.

    Attributes:
      id: Unique; another start is another worker.
      kind: The first of `WORKER_KINDS` whose queue it serves.
      usd_per_hour: What it costs, busy or not; None where no price is set.
      settings: What it applies of the settings that workers own, by dotted key.
      protections: What a sandbox of it reported when it booted, each protection with the remedy
        that it takes, "" where it is on; None where none has booted.
      fault: Why it evaluates nothing now; "" where it works.
      queues: Those that it serves, with the labels of fleets.
    """

    id: str
    kind: str
    usd_per_hour: float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    protections: tuple[tuple[str, str], ...] | None = None
    fault: str = ""
    queues: tuple[str, ...] = WORKER_KINDS


@dataclass(frozen=True, slots=True)
class QueueDemand:
    """What a running run has for the workers of one queue; the view `demand` of the ledger.

    Attributes:
      tag: Of the workers that it asks for; "" for those without a tag.
      waiting: Steps that no worker holds; `leased` are those that one holds.
      places: Of workers, that its steps and those planned next could use at once.  At least one
        while it has budget left; 0 of a run that one process works on, or whose time is over.
    """

    run: int
    queue: str
    tag: str
    waiting: int
    leased: int
    places: int

    @property
    def steps(self) -> int:
        return self.waiting + self.leased


LIVE_SECONDS = 20.0
"""Time since its last report for which a worker counts as live: several of its intervals."""
PRESENT_SECONDS = 7.0
"""Time since its last report after which a run is said to wait for a worker."""


@dataclass(frozen=True, slots=True)
class Presence:
    """Which steps have a worker now.

    Attributes:
      generating, evaluating: Whether a worker with such places reported a few seconds ago.
      faults: Why workers of the last `LIVE_SECONDS` evaluate nothing, each reason once.
      queues: Those that a worker with places reported a few seconds ago.
    """

    generating: bool
    evaluating: bool
    faults: tuple[str, ...] = ()
    queues: frozenset[str] = field(default=frozenset(WORKER_KINDS), compare=False)


@dataclass(frozen=True, slots=True)
class Capacity:
    """How much can be at work at once, in one worker or in all live ones together.

    Attributes:
      model: Requests that may be in flight at models: what the windows of the endpoints in use
        admit now, and no more than there are threads that ask.  None where no worker that generates
        has reported.
      sandbox: Trials that may be in a sandbox.  None where no worker that evaluates has reported.
    """

    model: int | None = None
    sandbox: int | None = None


@dataclass(frozen=True, slots=True)
class WorkerTime:
    """What the workers of one kind spent on one run, or on none.

    Attributes:
      seconds: Of time that a worker was there, shared among the runs it had steps of.
      cost_usd: Of those with a price; None where none has one.
      unpriced_seconds: Of those without.
    """

    kind: str
    workers: int
    seconds: float
    cost_usd: float | None
    unpriced_seconds: float = 0.0


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


VALIDATE = "validate"
"""The operator of a cohort without members, whose trials measure programs on validation data."""
BRANCH = "branch"
"""The operator of a cohort without members, whose trials are the candidates of a pattern."""


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
