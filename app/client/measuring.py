"""Measurements in a sandbox of this process: of programs, and of the sandbox's own overhead."""

import json
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace

from app.adapters.sandbox.choose import choose
from app.client.notes import Notes
from app.config.settings import SandboxSettings
from app.domain.evaluation import (
    Evaluation,
    Failure,
    FailureKind,
    Trial,
    fitness,
    fitness_names,
    merged_metrics,
)
from app.domain.modes import alike, differences, explained, other, reasons
from app.domain.problem import Evaluator, EvaluatorBroken, Job, Limits, Mode, Problem
from app.domain.program import Program, ProgramId
from app.domain.search.promotion import Shortfall, shortfall
from app.ports.protocols import Sandbox
from app.reports.artifacts import artifacts_document
from app.reports.program import failure_document

PYTHON = ".py"
"""Suffix of the programs that can run in both modes."""
_CALLS = 300
_TRIALS = 5
_EVALUATOR = b"""
import importlib.util, statistics, time

def evaluate(path):
    spec = importlib.util.spec_from_file_location("program", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    took = []
    for _ in range(%d):
        started = time.perf_counter()
        module.same(1.5)
        took.append(time.perf_counter() - started)
    return {"seconds": statistics.median(took)}

def nothing(path):
    return {"seconds": 0.0}
"""
_PROGRAM = b"def same(x):\n    return x\n"


@dataclass(frozen=True, slots=True)
class Measurement:
    """Results of a program in all stages that ran.

    Attributes:
      fitness: None after a failure.
      features: Those of the last stage that ran.
      verified: Whether evaluator and program were separate processes in every stage.
      stages: Stages that ran, in order.
      trials: The evaluation of each trial, in order.
      fitness_names: Metrics whose mean is the fitness; see `evaluation.fitness_names`.
      stopped: The threshold it stayed below; None where no threshold applied or it reached all.
    """

    fitness: float | None
    metrics: Mapping[str, float]
    features: Mapping[str, float]
    failure: Failure | None
    wall_seconds: float
    cpu_seconds: float
    verified: bool
    stages: tuple[str, ...]
    trials: Mapping[Trial, Evaluation] = field(default_factory=dict)
    fitness_names: tuple[str, ...] = ()
    stopped: Shortfall | None = None

    @property
    def artifacts(self) -> dict[str, str]:
        """The texts of all trials, later ones overriding earlier ones."""
        return {
            name: text
            for evaluation in self.trials.values()
            for name, text in evaluation.artifacts.items()
        }

    def document(self) -> dict[str, object]:
        """Returns the measurement as JSON values."""
        return {
            "fitness": self.fitness,
            "fitness_names": list(self.fitness_names),
            "metrics": dict(self.metrics),
            "features": dict(self.features),
            "failure": asdict(failed) if (failed := failure_document(self.failure)) else None,
            "wall_seconds": round(self.wall_seconds, 6),
            "cpu_seconds": round(self.cpu_seconds, 6),
            "verified": self.verified,
            "stages": list(self.stages),
            "artifacts": artifacts_document(self.artifacts),
            "stopped": self.stopped.document() if self.stopped else None,
        }


@dataclass(frozen=True, slots=True)
class Overhead:
    """Time that a sandbox adds to that of a program.

    Attributes:
      call_microseconds: One call with one number, median of many.
      trial_milliseconds: A trial of an empty evaluator in a warm sandbox, median.
      boot_seconds: Boot of a sandbox with an empty evaluator.
    """

    mode: Mode
    call_microseconds: float
    trial_milliseconds: float
    boot_seconds: float

    @property
    def text(self) -> str:
        """The overhead as one line."""
        return (
            f"overhead in {self.mode.value} mode, measured now: a call "
            f"{self.call_microseconds:.0f} µs, a trial {self.trial_milliseconds:.1f} ms, "
            f"booting a sandbox {self.boot_seconds:.2f} s"
        )


@dataclass(frozen=True, slots=True)
class Calls:
    """How often an evaluation of the first seed calls the program.

    Attributes:
      calls: Calls in all trials of all stages.
      seconds: Time that the trials took in compatible mode, where a call costs nothing.
    """

    calls: int
    seconds: float

    def text(self, cost: Overhead) -> str:
        """Returns what the calls cost, as one line."""
        return (
            f"calls: an evaluation calls the program {self.calls} times, which takes "
            f"{self.seconds:.2f} s in compatible mode and about {self.guarded_seconds(cost):.2f} s "
            f"more in guarded mode"
        )

    def guarded_seconds(self, cost: Overhead) -> float:
        """Returns the time that guarded mode adds."""
        return self.calls * cost.call_microseconds / 1e6


def count_calls(problem: Problem, sandbox: Sandbox) -> Calls | None:
    """Counts the calls of the first seed; None where the problem counts none, or the seed fails.

    Raises:
      Unavailable: The sandbox does not answer.
    """
    if not problem.calls:
        return None
    seed, calls, seconds = problem.seeds[0], 0, 0.0
    for stage in problem.stages:
        for trial in problem.trials_of(seed.id, stage):
            job = problem.prepare(trial, {seed.id: seed})
            counted = replace(job, function=problem.calls, mode=Mode.COMPATIBLE)
            outcome = sandbox.run(counted)
            if outcome.result is None:
                return None
            metrics = json.loads(outcome.result)["metrics"]
            calls, seconds = calls + int(metrics["calls"]), seconds + float(metrics["seconds"])
    return Calls(calls, seconds)


@contextmanager
def open_sandbox(
    settings: SandboxSettings, notes: Notes, *, may_build: bool = False
) -> Iterator[Sandbox]:
    """Opens a sandbox and closes it afterwards; notices show the progress of builds.

    Raises:
      Unavailable: The backend that the settings name does not answer.
    """
    sandbox = choose(settings, show_progress=notes.note, may_build=may_build)
    try:
        yield sandbox
    finally:
        sandbox.close()


def evaluator_of(problem: Problem) -> Evaluator:
    """Returns a problem's own scoring code, as its trials carry it."""
    return problem.first_job().evaluator


def validating(problem: Problem) -> Problem:
    """Returns a problem whose only stage is the validation of this one."""
    return replace(problem, stages=(problem.validation,), thresholds=(), probe="")


def measure(
    problem: Problem,
    sandbox: Sandbox,
    program: Program,
    thresholds: Sequence[float] = (),
) -> Measurement:
    """Evaluates a program in every stage, up to its first failure or the first threshold missed.

    Its behaviour is probed before, as in a run.  A run judges a program by its problem's
    `thresholds`; without them every stage runs.

    Raises:
      EvaluatorBroken: The problem's own code cannot be used.
      Unavailable: The sandbox does not answer.
    """
    done: dict[Trial, Evaluation] = {}
    failure: Failure | None = None
    stopped: Shortfall | None = None
    measured: dict[Trial, Evaluation] = {}
    if problem.probe:
        done |= (measured := _measure_stage(problem, sandbox, program, problem.probe))
        failure = _failure(problem, program, measured.values())
    for index, stage in enumerate(problem.stages if failure is None else ()):
        measured = _measure_stage(problem, sandbox, program, stage)
        done |= measured
        failure = _failure(problem, program, measured.values())
        if failure is not None:
            break
        stopped = shortfall(problem.stages, thresholds, index, fitness(program.id, done.values()))
        if stopped:
            break
    evaluations = tuple(done.values())
    # The points of games and what was measured before do not add up.
    last = next((trial.stage for trial in reversed(done)), "")
    games = problem.players > 1 and last == problem.final_stage
    scored = tuple(measured.values()) if games else evaluations
    features: dict[str, float] = {}
    for evaluation in measured.values():
        features.update(evaluation.features.get(program.id, {}))
    return Measurement(
        fitness=None if failure else fitness(program.id, scored),
        metrics=merged_metrics(program.id, evaluations),
        features=features,
        failure=failure,
        wall_seconds=sum(evaluation.wall_seconds for evaluation in evaluations),
        cpu_seconds=sum(evaluation.cpu_seconds for evaluation in evaluations),
        verified=all(evaluation.verified for evaluation in evaluations),
        stages=tuple(dict.fromkeys(trial.stage for trial in done)),
        trials=done,
        fitness_names=() if failure else fitness_names(program.id, scored),
        stopped=stopped,
    )


def _measure_stage(
    problem: Problem, sandbox: Sandbox, program: Program, stage: str
) -> dict[Trial, Evaluation]:
    """Runs the trials of a stage, up to the first failure where a program must pass all."""
    done: dict[Trial, Evaluation] = {}
    players = {seed.id: seed for seed in problem.seeds} | {program.id: program}
    for trial in problem.trials_of(program.id, stage):
        outcome = sandbox.run(problem.prepare(trial, players))
        done[trial] = problem.interpret(trial, players, outcome)
        if problem.cases.whole and done[trial].failure:
            break
    return done


def _failure(
    problem: Problem, program: Program, evaluations: Iterable[Evaluation]
) -> Failure | None:
    """Returns why a program failed at a stage; None where it goes on."""
    blamed = (None, program.id)
    failures = [
        e.failure if e.failure and e.failure.culprit in blamed else None for e in evaluations
    ]
    if problem.cases.whole or all(failures):
        return next(filter(None, failures), None)
    return None


def comparable(problem: Problem) -> bool:
    """Returns whether programs can be measured in guarded and in compatible mode.

    A program of several files has a stand-in for its entry, where nothing is built.
    """
    folder = problem.first_job().folder
    return folder is None or (bool(folder.entry) and not folder.copied)


def compare_modes(
    sandbox: Sandbox,
    problem: Problem,
    trial: Trial,
    programs: Mapping[ProgramId, Program],
    here: Evaluation,
) -> str:
    """Returns how a seed's trial differs in the other mode, as text; "" where it does not.

    Args:
      sandbox: Repeats the trial: once where the results are alike, else twice.
      problem: The seed's problem.
      trial: A trial of one program.
      programs: The player's program.
      here: Result of the trial in the problem's own mode.

    Raises:
      Unavailable: The sandbox does not answer.
    """
    job = problem.prepare(trial, programs)
    if any(suffix != PYTHON for suffix, _ in job.programs):
        return ""
    player = trial.players[0]
    there = _run_in_other_mode(sandbox, problem, trial, programs, job)
    if alike(player, here, there):
        return ""
    again = _run_in_other_mode(sandbox, problem, trial, programs, job)
    differing = differences(player, here, there, again)
    names = {program: name for name, program in problem.baselines.items()}
    seed = names.get(player, player[:12])
    both = here.failure is not None and there.failure is not None
    # The reasons explain why one mode alone fails.
    why = [] if both else reasons(_written(problem, job))
    return explained(seed, trial.stage, job.mode, differing, why)


def _written(problem: Problem, job: Job) -> list[str]:
    """Returns the Python text of the evaluator, without the driver that a format puts before it."""
    files, entry = job.evaluator.files, job.evaluator.entry
    beside = [name for name in files if name in problem.files]
    names = [entry] if entry in beside or not beside else beside
    return [files[name].decode("utf-8", "replace") for name in names]


def _run_in_other_mode(
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


def measure_overhead(sandbox: Sandbox, mode: Mode) -> Overhead:
    """Measures the overhead of the sandbox in `mode`.

    Raises:
      Unavailable: The sandbox does not answer.
      ValueError: The sandbox could not run a program of two lines.
    """
    files = {"evaluator.py": _EVALUATOR % _CALLS}
    evaluator = Evaluator(f"overhead {mode.value}", files)
    job = Job(evaluator, "evaluate", ((".py", _PROGRAM),), Limits(wall_seconds=20.0), mode)
    first = sandbox.run(job)
    if first.result is None:
        raise ValueError(f"the sandbox cannot run a program of two lines: {first.failure}")
    seconds: float = json.loads(first.result)["metrics"]["seconds"]
    empty = Job(evaluator, "nothing", job.programs, job.limits, mode)
    trials = [sandbox.run(empty).wall_seconds for _ in range(_TRIALS)]
    return Overhead(
        mode, 1e6 * seconds, 1e3 * statistics.median(trials), boot_seconds=first.boot_seconds
    )
