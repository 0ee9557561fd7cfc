"""What the sandbox itself costs on this machine, measured there and then."""

import json
import statistics
from dataclasses import dataclass

from app.domain.problem import Evaluator, Job, Limits, Mode
from app.ports.protocols import Sandbox

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
class Overhead:
    """What comes on top of a program's own time.

    Attributes:
      call_microseconds: One call with one number, median of many.
      trial_milliseconds: A trial of an evaluator that does nothing, in a warm cell, median.
      boot_seconds: A cell with an empty evaluator.
    """

    mode: Mode
    call_microseconds: float
    trial_milliseconds: float
    boot_seconds: float

    @property
    def told(self) -> str:
        """One line for a person."""
        return (
            f"overhead in {self.mode.value} mode, measured now: a call "
            f"{self.call_microseconds:.0f} µs, a trial {self.trial_milliseconds:.1f} ms, "
            f"booting a cell {self.boot_seconds:.2f} s"
        )


def overhead(sandbox: Sandbox, mode: Mode) -> Overhead:
    """Measures what the sandbox costs in `mode`.

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
