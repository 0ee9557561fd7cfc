"""Summary of a run: counts, load, costs, the best program and the baselines to compare it with."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from app.domain.digits import number_texts
from app.domain.evaluation import Failure, fitness_names, merged_metrics
from app.domain.events import Changed, EventKind, Noticed
from app.domain.problem import Problem
from app.domain.program import Program, ProgramId
from app.domain.remedies import Explanation
from app.domain.run import Run, RunState
from app.domain.search.back_pressure import reason, share_of_budget
from app.domain.search.cohort import CutReason, State
from app.engine.back_pressure import pressure
from app.ports.history import Reused, Settled
from app.ports.ledger import Transaction
from app.ports.proposals import Backlog
from app.ports.protocols import Store
from app.ports.runs import InsideTotals
from app.reports.costs import Costs, read_costs
from app.reports.explanations import read_explanation
from app.reports.funnel import Funnel, read_funnel
from app.reports.measured import MeasuredProgram, measured_program

MOST_NOTICES = 20


@dataclass(frozen=True, slots=True)
class StageLoad:
    """Load of one stage of a run.

    Attributes:
      in_flight: Proposals in the stage now.
      limit: Number of proposals in flight above which none is planned.
      why: How the limit was determined.
      batch: Upper bound of the steps in one message.
    """

    in_flight: int
    limit: int
    why: str
    batch: int = 1

    @property
    def text(self) -> str:
        """The load as one line."""
        batch = f", {self.batch} a message" if self.batch > 1 else ""
        return f"{self.in_flight} of {self.limit} ({self.why}{batch})"


@dataclass(frozen=True, slots=True)
class RunLoad:
    """Proposals in flight: waiting for their operator, and under test."""

    generating: StageLoad
    evaluating: StageLoad


@dataclass(frozen=True, slots=True)
class Places:
    """The places of all live workers, and how many of them are taken.

    Attributes:
      model: Requests that may be in flight at models; None where no worker has reported.
      sandbox: Trials that may be in a sandbox; None where no worker has reported.
      at_work: Trials of all runs that are in a sandbox.
      of_run: Those of this run.
    """

    model: int | None
    sandbox: int | None
    at_work: int
    of_run: int

    @property
    def text(self) -> str:
        """The places as one line."""
        if self.model is None and self.sandbox is None:
            return "no worker has reported any"
        models = "none" if self.model is None else str(self.model)
        sandboxes = "none" if self.sandbox is None else str(self.sandbox)
        return (
            f"{models} at models, {sandboxes} in sandboxes; {self.at_work} trials at work, "
            f"{self.of_run} of this run"
        )


@dataclass(frozen=True, slots=True)
class ValidatedProgram:
    """A program that was measured on validation data.

    Attributes:
      names: Baselines and references that it is; () for others.
      admitted: Its proposal; None for a reference, which is none of the search.
      measured: By validation data; without a fitness after a failure.
      failure: Why it is left out; None where it was measured.
    """

    names: tuple[str, ...]
    admitted: Settled | None
    measured: MeasuredProgram
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class BestProgram:
    """The result of a run: the fittest program by validation, where it has ended, else by search.

    Attributes:
      program: Its files.
      settled: Its proposal; the ordinal of a seed is negative.
      validation: What validation measured of it; None where it did not choose it.
    """

    measured: MeasuredProgram
    program: Program
    settled: Settled
    validation: MeasuredProgram | None = None

    @property
    def source(self) -> str:
        """The text of its only file; of several files their texts, each below its path."""
        return self.program.text


UNMEASURED = (CutReason.DUPLICATE, CutReason.SIMILAR, CutReason.SAME_BEHAVIOUR)
"""Reasons for which a program is cut before its evaluation, in the order in which they apply."""


@dataclass(frozen=True, slots=True)
class Savings:
    """What a run did not evaluate because it was known.

    Attributes:
      programs: Programs that were cut before their evaluation, by each of `UNMEASURED`.
      reused: Trials that took the result of an equal one.
    """

    programs: Mapping[str, int] = field(default_factory=dict)
    reused: Reused = field(default_factory=Reused)

    @property
    def text(self) -> str:
        """The savings as one line."""
        programs = ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in self.programs.items())
        trials = self.reused.trials
        return f"{programs}; {trials} trials reused ({self.reused.wall_seconds:.1f} s)"


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts, costs and results of a run at one moment.

    Attributes:
      iterations: Settled proposals of the budget.
      measured: Those that were measured and offered to the archive; their state is `admitted`.
      entered: Those of them that a cell of the archive took.
      cuts: Cut proposals by reason.
      failures: Failed proposals by kind.
      savings: What was not evaluated.
      best: None while no program has been measured.
      start: The highest fitness of a seed; None before one was measured.
      baselines: Named seeds, in the problem's order; a failed one has no fitness.
      validated: What validation measured, the fittest by it first, those that failed last.
      seconds: From the run's creation to its last event.
      notices: Texts for the user, oldest first.
      load: Proposals in flight; None once the run has ended.
      places: Of the workers; None once the run has ended.
      inside: What the runs inside have spent; it is part of what the run has.
      explanation: Why most proposals came to nothing; None where no three ended alike.
      funnel: How far its proposals came.
    """

    run: Run
    iterations: int
    measured: int
    entered: int
    cuts: Mapping[str, int]
    failures: Mapping[str, int]
    best: BestProgram | None
    start: float | None = None
    baselines: Mapping[str, MeasuredProgram] = field(default_factory=dict)
    validated: tuple[ValidatedProgram, ...] = ()
    seconds: float = 0.0
    notices: tuple[str, ...] = ()
    savings: Savings = field(default_factory=Savings)
    costs: Costs = field(default_factory=Costs)
    load: RunLoad | None = None
    places: Places | None = None
    inside: InsideTotals = field(default_factory=InsideTotals)
    explanation: Explanation | None = None
    funnel: Funnel = field(default_factory=Funnel)

    @property
    def seq(self) -> int:
        """The last event of the run at that moment; 0 before the first."""
        return self.run.events

    @property
    def told_apart(self) -> tuple[float | None, ...]:
        """The fitness values that differ in every text of the run; see `number_texts`."""
        best = self.best.measured.fitness if self.best else None
        return best, self.start, *(seed.fitness for seed in self.baselines.values())

    @property
    def best_text(self) -> str:
        """The fitness of the best program, told apart from the start and from baselines."""
        return number_texts(self.told_apart)[0]


def summarise(store: Store, run: int, problem: Problem | None) -> Summary:
    """Reads a run's summary in one transaction.

    Args:
      store: The ledger.
      run: The run.
      problem: Its problem; None where this version cannot read it: then no baseline is named.
    """
    with store.begin(snapshot=True) as tx:
        return read_summary(tx, run, problem)


def read_summary(tx: Transaction, run: int, problem: Problem | None) -> Summary:
    """Reads a run's summary; `tx` is a snapshot, so that all counts are those at `seq`."""
    row = tx.runs.get(run)
    states, failures = tx.history.states(run), tx.history.failures(run)
    admitted, cuts = states.get(State.ADMITTED, 0), tx.history.cuts(run)
    validated = _validated(tx, run, problem) if problem else ()
    settled = sum(n for state, n in states.items() if state.final)
    last = tx.events.read(run, after=row.events - 1, limit=1) if row.events else []
    return Summary(
        run=row,
        iterations=settled,
        measured=admitted,
        entered=tx.history.entered(run),
        cuts=cuts,
        failures=failures,
        best=_best(tx, row, validated),
        start=tx.history.start(run),
        baselines=_baselines(tx, row, problem) if problem else {},
        validated=validated,
        seconds=last[0].seconds if last else 0.0,
        notices=notices(tx, run),
        savings=Savings(
            {reason.value: cuts.get(reason, 0) for reason in UNMEASURED},
            tx.history.reused(run),
        ),
        costs=read_costs(tx, row, admitted),
        load=None if row.state.final else run_load(tx, row, tx.proposals.backlog(run)),
        places=None if row.state.final else read_places(tx, run),
        inside=tx.runs.sum_inside(run) if row.rules.nested else InsideTotals(),
        explanation=read_explanation(tx, row, failures, cuts, settled),
        funnel=read_funnel(tx, run),
    )


def run_load(tx: Transaction, run: Run, backlog: Backlog) -> RunLoad:
    """Returns a run's load, with the limits that the planner would use now; changes nothing."""
    now, limits = pressure(tx.proposals, run, backlog), run.limits
    generating = reason(now.flow, evaluating=False, cap=now.caps.generating)
    allowed = share_of_budget(run.budget.proposals, run.proposals - backlog.unspent)
    if not now.caps.fixed and backlog.unsettled >= allowed:
        generating = f"the budget of {run.budget.proposals} allows {allowed} in flight"
    evaluating = reason(now.flow, evaluating=True, cap=now.caps.evaluating)
    return RunLoad(
        StageLoad(backlog.generating, limits.generating, generating, limits.generate_batch),
        StageLoad(backlog.evaluating, limits.evaluating, evaluating, limits.evaluate_batch),
    )


def read_places(tx: Transaction, run: int) -> Places:
    """Reads the places of the workers, and the trials that are in a sandbox now."""
    capacity = tx.workers.capacity()
    at_work = Counter[int]()
    for queue in tx.trials.queues(()):
        at_work[queue.claimant.run] += queue.claimant.at_work
    return Places(capacity.model, capacity.sandbox, at_work.total(), at_work[run])


def notices(tx: Transaction, run: int) -> tuple[str, ...]:
    """Returns the first `MOST_NOTICES` texts for the user of a run, oldest first."""
    kinds = (EventKind.NOTICED, EventKind.CHANGED)
    facts = [event.fact for event in tx.events.read(run, limit=MOST_NOTICES, kinds=kinds)]
    return tuple(
        f"changed {fact.text}" if isinstance(fact, Changed) else fact.text
        for fact in facts
        if isinstance(fact, Noticed | Changed)
    )


def _best(tx: Transaction, run: Run, validated: Sequence[ValidatedProgram]) -> BestProgram | None:
    """Returns the result of a run; validation chooses it once the run has finished."""
    chosen = next(
        (program for program in validated if program.admitted and not program.failure), None
    )
    if chosen is not None and run.state is not RunState.FINISHED:
        chosen = None
    best = chosen.admitted if chosen else tx.history.best(run.id)
    if best is None or best.program is None:
        return None
    program = tx.programs.get([best.program])[best.program]
    measured = measured_program(tx, run, best.program, best.fitness, verified=best.verified)
    return BestProgram(measured, program, best, chosen.measured if chosen else None)


_FIRST = 20
"""Proposals of one program among which its admission is looked for."""


def _validated(tx: Transaction, run: int, problem: Problem) -> tuple[ValidatedProgram, ...]:
    """Returns what validation has measured; the fitter by the search first of those that tie."""
    named: dict[ProgramId, list[str]] = {}
    references = {name: program.id for name, program in problem.references.items()}
    for name, program in (*problem.baselines.items(), *references.items()):
        named.setdefault(program, []).append(name)
    validated = []
    for validation in tx.history.validations(run):
        if validation.waiting:
            continue
        settled = tx.history.of_program(run, validation.program, _FIRST)
        admitted = next((s for s in settled if s.state is State.ADMITTED), None)
        measured = MeasuredProgram(
            validation.program,
            validation.fitness,
            merged_metrics(validation.program, validation.evaluations),
            all(evaluation.verified for evaluation in validation.evaluations),
            fitness_names(validation.program, validation.evaluations),
        )
        names = tuple(named.get(validation.program, ()))
        validated.append(ValidatedProgram(names, admitted, measured, validation.failure))
    return tuple(sorted(validated, key=_rank, reverse=True))


def _rank(validated: ValidatedProgram) -> tuple[float, float]:
    by_data, by_search = validated.measured.fitness, None
    if validated.admitted is not None:
        by_search = validated.admitted.fitness
    return (
        -math.inf if by_data is None else by_data,
        -math.inf if by_search is None else by_search,
    )


def _baselines(tx: Transaction, run: Run, problem: Problem) -> dict[str, MeasuredProgram]:
    """Returns the named seeds with their measurements; the seeding cohort settles first."""
    seeds = {
        proposal.program: proposal
        for proposal in tx.history.settled(run.id, limit=len(problem.seeds))
        if proposal.seed
    }
    return {
        name: measured_program(
            tx, run, program, seeds[program].fitness, verified=seeds[program].verified
        )
        for name, program in problem.baselines.items()
        if program in seeds
    }
