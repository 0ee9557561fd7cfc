"""A folder on which candidates run, as a `Problem`: each candidate is a program of its own.

`app.patterns.queue` makes the files: the folder, and the module that runs a candidate in it.  What
a candidate says and changes is an artifact, which is neither shortened nor read here.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from app.adapters.problems.building import Jobs, evaluator_of, origin
from app.adapters.problems.files import Source
from app.adapters.problems.options import Options
from app.domain.evaluation import Evaluation, Failure, FailureKind, Trial
from app.domain.problem import Job, Limits, Mode, Outcome, Problem, ProblemError
from app.domain.program import Program, ProgramId
from app.domain.secrets import redacted

NAME = "workspace"
OPTIONS: frozenset[str] = frozenset()

ENTRY = "evoq_candidate.py"
STAGE = "candidate"
"""The function of that module which runs a candidate."""
SECONDS = "seconds"
"""Key of a candidate's document: its time limit, which wins over the problem's."""
SUFFIX = ".json"
RESULT_BYTES = 4 << 20
"""Of an answer and a patch together, as text; the bound of a patch is lower."""
_TRIAL_SECONDS = 3600.0


def recognises(paths: Sequence[Path]) -> bool:  # noqa: ARG001
    """Returns False: no path of the disk is such a problem."""
    return False


def read(paths: Sequence[Path], config: Path | None = None, *, strict: bool = False) -> Source:  # noqa: ARG001
    """Refuses: such a problem is made by a pattern."""
    raise ProblemError(
        "is no problem to search on",
        where=str(paths[0]),
        remedy="Run a pattern on it: `evoq branch PATTERN --on cpu`.",
    )


def build(name: str, files: Mapping[str, bytes], options: Options) -> Problem:
    """Returns the problem of a folder's files and the module that runs candidates."""
    limits = replace(options.limits_of(_TRIAL_SECONDS), result_bytes=RESULT_BYTES)
    jobs = Jobs(evaluator_of(files, ENTRY, options), SUFFIX, Mode.COMPATIBLE, {STAGE: limits})
    return Problem(
        **origin(NAME, name, files, options),
        instructions="",
        seeds=(Program("{}", "json"),),
        prepare=_Preparing(jobs, limits).prepare,
        interpret=interpret,
        language="json",
        suffix=SUFFIX,
        stages=(STAGE,),
    )


@dataclass(frozen=True, slots=True)
class _Preparing:
    jobs: Jobs
    limits: Limits

    def prepare(self, trial: Trial, programs: Mapping[ProgramId, Program]) -> Job:
        """Returns the job of a candidate; its number, the name of its case, shapes its seed."""
        job = self.jobs.prepare(trial, programs)
        seconds = json.loads(programs[trial.players[0]].source).get(SECONDS)
        wall = self.limits.wall_seconds if seconds is None else float(seconds)
        seed = (job.seed + int(trial.cases[0] or 0)) % 2**32
        cpu = max(self.limits.cpu_seconds, 2 * wall)
        return replace(
            job,
            cases=(),
            seed=seed,
            limits=replace(self.limits, wall_seconds=wall, cpu_seconds=cpu),
        )


def interpret(
    trial: Trial,
    programs: Mapping[ProgramId, Program],  # noqa: ARG001
    outcome: Outcome,
) -> Evaluation:
    """Returns the artifacts of a candidate as they are, or why it left none."""
    artifacts: Mapping[str, str] = {}
    failure = outcome.failure
    if failure is None:
        artifacts = json.loads(outcome.result or b"{}").get("artifacts", {})
    else:
        printed = (outcome.stderr or outcome.stdout).decode("utf-8", "replace").strip()
        detail = f"{failure.detail}\n{printed[-2000:]}" if printed else failure.detail
        failure = Failure(failure.kind, redacted(detail))
    if failure is None and not artifacts:
        failure = Failure(FailureKind.INVALID_RESULT, f"the {trial.stage} left no answer")
    return Evaluation(
        artifacts=artifacts,
        failure=failure,
        wall_seconds=outcome.wall_seconds,
        cpu_seconds=outcome.cpu_seconds,
        peak_memory_mib=outcome.peak_memory_mib,
        boot_seconds=outcome.boot_seconds,
    )
