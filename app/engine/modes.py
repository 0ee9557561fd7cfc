"""Modes: a seed is also measured in the mode that its problem does not use, and differences told.

Only the founding cohort's trials come here, so a run's proposals pay nothing for it.
"""

from collections.abc import Mapping
from dataclasses import replace

from app.domain.evaluation import Evaluation, Failure, FailureKind, Trial
from app.domain.mode_reasons import reasons
from app.domain.modes import alike, differences, explained, other
from app.domain.problem import EvaluatorBroken, Job, Problem
from app.domain.program import Program, ProgramId
from app.domain.run import Run
from app.ports.protocols import Sandbox

PYTHON = ".py"


def comparable(run: Run, problem: Problem, trial: Trial, job: Job) -> bool:
    """Returns whether a trial is a seed's, of a run that compares the modes."""
    asked = run.settings.get("sandbox", {}).get("compare_modes", False)
    seeds = {seed.id for seed in problem.seeds} if asked else set()
    return len(trial.players) == 1 and trial.players[0] in seeds and _both(job)


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
    there = _measured(sandbox, problem, trial, programs, job)
    if alike(player, here, there):
        return ""
    again = _measured(sandbox, problem, trial, programs, job)
    found = differences(player, here, there, again)
    titles = {program: name for name, program in problem.baselines.items()}
    seed = titles.get(player, player[:12])
    why = reasons([job.evaluator.files[job.evaluator.entry].decode("utf-8", "replace")])
    return explained(seed, trial.stage, job.mode, found, why)


def _both(job: Job) -> bool:
    """Whether the job's programs can run in both modes: only Python has a stand-in."""
    return all(suffix == PYTHON for suffix, _ in job.programs)


def _measured(
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
