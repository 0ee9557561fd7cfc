"""The cost of a guarded call: the evaluator's process calls the program's with many shapes.

The evaluator measures wall time around its loop; CPU time is that of both processes of the trial,
less that of a trial without calls.  `python -m benchmarks.guarded_calls [calls]`.
"""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from app.adapters.sandbox.process import ProcessSandbox
from app.domain.problem import Evaluator, Job, Limits, Mode
from app.ports.protocols import Sandbox

EVALUATOR = b"""
import importlib.util, os, time

def load(path):
    spec = importlib.util.spec_from_file_location("program", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

def evaluate(path):
    program = load(path)
    calls, shape = int(os.environ["CALLS"]), os.environ["SHAPE"]
    if shape.startswith("array"):
        import numpy
        value = numpy.arange(int(shape[5:]), dtype="float64")
    else:
        value = {
            "scalar": 1.5, "floats": [0.5 * n for n in range(1000)],
            "rows": [[0.5 * n, n, "x"] for n in range(300)], "text": "word " * 200,
            "record": {"name": "a", "size": 3, "rates": [0.1, 0.2]}, "callback": lambda x: x,
        }[shape]
    same = program.twice if shape == "callback" else program.same
    same(value)
    started = time.perf_counter()
    for _ in range(calls):
        same(value)
    return {"combined_score": time.perf_counter() - started}
"""
PROGRAM = b"""
def same(x):
    return x

def twice(f):
    return f(1.5)
"""
SHAPES = (
    "scalar", "text", "record", "callback", "floats", "rows", "array1000", "array1000000",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class CallCost:
    """Wall and CPU time of one call, in microseconds."""

    wall: float
    cpu: float


def cost(sandbox: Sandbox, shape: str, calls: int) -> CallCost:
    """Returns the minimum of three measurements, because disturbances only add time."""
    costs = [_once(sandbox, shape, calls) for _ in range(3)]
    return CallCost(min(cost.wall for cost in costs), min(cost.cpu for cost in costs))


def _once(sandbox: Sandbox, shape: str, calls: int) -> CallCost:
    none, some = (_trial(sandbox, shape, number) for number in (0, calls))
    return CallCost(1e6 * some[0] / calls, 1e6 * (some[1] - none[1]) / calls)


def _trial(sandbox: Sandbox, shape: str, calls: int) -> tuple[float, float]:
    problem = Evaluator(
        f"calls {shape} {calls}",
        {"evaluator.py": EVALUATOR},
        environment={"CALLS": str(calls), "SHAPE": shape},
    )
    job = Job(problem, "evaluate", ((".py", PROGRAM),), Limits(), Mode.GUARDED)
    sandbox.run(job)
    outcome = sandbox.run(job)
    assert outcome.result is not None, outcome
    return json.loads(outcome.result)["metrics"]["combined_score"], outcome.cpu_seconds


def main() -> None:
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
    sandbox = ProcessSandbox(engine=())
    print("| value, there and back | wall us a call | CPU us a call, both processes |")
    print("|---|---|---|")
    for shape in SHAPES:
        few = calls if not shape.endswith("000000") else max(1, calls // 100)
        result = cost(sandbox, shape, few)
        print(f"| {shape} | {result.wall:.0f} | {result.cpu:.0f} |")
    sandbox.close()
    print(json.dumps({"load": os.getloadavg()[0], "cores": os.cpu_count(), "calls": calls}))


if __name__ == "__main__":
    main()
