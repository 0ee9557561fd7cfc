"""One program through all stages of a problem, in a sandbox of this process."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from app import bootstrap
from app.adapters.sandbox.choose import AnySandbox
from app.adapters.sandbox.protection import Protection
from app.cli.screen import Screen
from app.config.settings import SandboxSettings
from app.domain.evaluation import (
    Evaluation,
    Failure,
    FailureKind,
    Trial,
    fitness,
    merged_metrics,
)
from app.domain.mode_reasons import reasons
from app.domain.modes import alike, differences, explained, other
from app.domain.problem import Evaluator, EvaluatorBroken, Job, Problem
from app.domain.program import Program, ProgramId
from app.domain.search.promotion import Shortfall, shortfall
from app.ports.protocols import Sandbox

PYTHON = ".py"


@dataclass(frozen=True, slots=True)
class Measurement:
    """What all stages together said of a program.

    Attributes:
      fitness: None after a failure.
      features: Of the last stage that ran.
      verified: Whether evaluator and program were separate processes in every stage.
      stages: Those that ran, in order.
      stopped: The threshold it stayed below; None where no threshold applied or it reached all.
      evaluations: One a stage that ran.
    """

    fitness: float | None
    metrics: Mapping[str, float]
    features: Mapping[str, float]
    failure: Failure | None
    wall_seconds: float
    cpu_seconds: float
    verified: bool
    stages: tuple[str, ...]
    evaluations: tuple[Evaluation, ...] = ()
    stopped: Shortfall | None = None


@contextmanager
def open_cells(settings: SandboxSettings, screen: Screen) -> Iterator[AnySandbox]:
    """Opens a sandbox and ends its cells afterwards; the screen shows what has to be built.

    Raises:
      Unavailable: The backend asked for does not answer.
    """
    sandbox = bootstrap.open_sandbox(settings, screen.note)
    try:
        yield sandbox
    finally:
        sandbox.close()


def evaluator_of(problem: Problem) -> Evaluator:
    """Returns a problem's own scoring code, as its trials carry it."""
    seed = problem.seeds[0]
    return problem.prepare(Trial(problem.stages[0], (seed.id,)), {seed.id: seed}).evaluator


def measure(
    problem: Problem,
    sandbox: AnySandbox,
    program: Program,
    thresholds: Sequence[float] = (),
) -> Measurement:
    """Puts a program through every stage, up to its first failure or the first threshold missed.

    A run judges a program by its problem's `thresholds`; without them every stage runs.

    Raises:
      EvaluatorBroken: The problem's own code cannot be used.
      Unavailable: The sandbox does not answer.
    """
    done: list[Evaluation] = []
    stopped: Shortfall | None = None
    for rung, stage in enumerate(problem.stages):
        trial, players = Trial(stage, (program.id,)), {program.id: program}
        outcome = sandbox.run(problem.prepare(trial, players))
        done.append(problem.interpret(trial, players, outcome))
        if done[-1].failure is not None:
            break
        stopped = shortfall(problem.stages, thresholds, rung, fitness(program.id, done))
        if stopped:
            break
    failure = done[-1].failure
    return Measurement(
        fitness=None if failure else fitness(program.id, done),
        metrics=merged_metrics(program.id, done),
        features=dict(done[-1].features.get(program.id, {})),
        failure=failure,
        wall_seconds=sum(one.wall_seconds for one in done),
        cpu_seconds=sum(one.cpu_seconds for one in done),
        verified=all(one.verified for one in done),
        stages=problem.stages[: len(done)],
        evaluations=tuple(done),
        stopped=stopped,
    )


def compared(
    sandbox: Sandbox,
    problem: Problem,
    trial: Trial,
    programs: Mapping[ProgramId, Program],
    here: Evaluation,
) -> str:
    """Returns in words how a seed's trial differs in the other mode; "" where it does not.

    Args:
      sandbox: Runs the trial again, once if all is alike, else twice.
      problem: The seed's.
      trial: Of one player.
      programs: The player's program.
      here: What the trial measured in the problem's mode.

    Raises:
      Unavailable: The sandbox does not answer.
    """
    job = problem.prepare(trial, programs)
    if not _both(job):
        return ""
    [player] = trial.players
    there = _other_mode(sandbox, problem, trial, programs, job)
    if alike(player, here, there):
        return ""
    again = _other_mode(sandbox, problem, trial, programs, job)
    found = differences(player, here, there, again)
    titles = {program: name for name, program in problem.baselines.items()}
    seed = titles.get(player, player[:12])
    why = reasons([job.evaluator.files[job.evaluator.entry].decode("utf-8", "replace")])
    return explained(seed, trial.stage, job.mode, found, why)


def _both(job: Job) -> bool:
    """Returns whether the job's programs can run in both modes: only Python has a stand-in."""
    return all(suffix == PYTHON for suffix, _ in job.programs)


def _other_mode(
    sandbox: Sandbox,
    problem: Problem,
    trial: Trial,
    programs: Mapping[ProgramId, Program],
    job: Job,
) -> Evaluation:
    try:
        outcome = sandbox.run(replace(job, mode=other(job.mode)))
    except EvaluatorBroken as error:
        return Evaluation(failure=Failure(FailureKind.RUNTIME, str(error)))
    return problem.interpret(trial, programs, outcome)


def protection_lines(protections: Sequence[Protection]) -> list[str]:
    """Returns one line on the protections that stand, and one on each that is missing."""
    on = [p.name for p in protections if p.on]
    lines = [f"sandbox: {len(on)} of {len(protections)} protections on: {'; '.join(on)}"]
    lines += [f"sandbox: missing: {p.name} ({p.remedy})" for p in protections if not p.on]
    return lines


def cells_line(told: SandboxSettings) -> str:
    """Returns how many cells a worker keeps, and for how long."""
    trials = 1 if told.one_container_per_trial else told.trials_per_cell
    replaced = f"after {trials} trials or {told.minutes_per_cell:g} min"
    return f"up to {told.cells} at work and {told.spares} booted ahead; each replaced {replaced}"
