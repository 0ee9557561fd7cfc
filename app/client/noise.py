"""Noise: how far measurements of one program differ, which hides whether another is better."""

import statistics
from dataclasses import dataclass, replace

from app.client.measuring import Measurement
from app.domain.evaluation import fitness
from app.domain.problem import Problem
from app.ports.protocols import Sandbox

_REPETITIONS = 4
_SECONDS = 5.0
"""All repetitions take about so long together at most."""
_NOTABLE = 0.05
"""Share of the mean from which on the deviation is reported."""


@dataclass(frozen=True, slots=True)
class Noise:
    """The fitness of one program by several measurements of its last stage, at least two."""

    measured: tuple[float, ...]

    @property
    def deviation(self) -> float:
        """The standard deviation."""
        return statistics.stdev(self.measured)

    @property
    def notable(self) -> bool:
        """Whether the deviation is more than a twentieth of the mean."""
        return self.deviation > _NOTABLE * abs(statistics.fmean(self.measured))


def measure_noise(problem: Problem, sandbox: Sandbox, first: Measurement) -> Noise | None:
    """Measures the first seed again, each time with another seed for random numbers.

    Args:
      problem: Its last stage is repeated.
      sandbox: Runs the trials.
      first: The measurement of the seed in a run.

    Returns:
      None for a game, and where the seed stays below the last stage, fails, or takes too long.

    Raises:
      Unavailable: The sandbox does not answer.
    """
    stage, seed = problem.final_stage, problem.seeds[0]
    if problem.players > 1 or first.fitness is None or first.stages[-1] != stage:
        return None
    earlier = [found for trial, found in first.trials.items() if trial.stage != stage]
    last = [found for trial, found in first.trials.items() if trial.stage == stage]
    measured, seconds = [first.fitness], sum(found.wall_seconds for found in last)
    left = _SECONDS
    for repetition in range(1, _REPETITIONS + 1):
        if seconds > left:
            break
        again = []
        for trial in problem.trials_of(seed.id, stage):
            job = problem.prepare(trial, {seed.id: seed})
            outcome = sandbox.run(replace(job, seed=job.seed + repetition))
            again.append(problem.interpret(trial, {seed.id: seed}, outcome))
        found = fitness(seed.id, [*earlier, *again])
        if found is None or any(each.failure for each in again):
            break
        measured.append(found)
        left -= sum(each.wall_seconds for each in again)
    return Noise(tuple(measured)) if len(measured) > 1 else None
