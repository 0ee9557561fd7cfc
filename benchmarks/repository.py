"""What fixed files cost: a proposal of five files alone, and among 2,000 files of 20 MiB.

    python -m benchmarks.repository            # 100 trials of each, in turns
    python -m benchmarks.repository 300

Real: the guarded process sandbox with its harness; nothing is simulated.  Prints one JSON document
for each of the two: the median of a trial's time, the mean of its processor time, and the bytes of
its program that go to the sandbox.  The ledger takes no part.
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

import psutil

from app.adapters.sandbox.pool import PoolSettings
from app.adapters.sandbox.process import ProcessSandbox
from app.domain.problem import Evaluator, Folder, Job, Limits, Mode
from app.domain.program import Program

EVALUATOR = b"""
import importlib.util, os, sys

def evaluate(folder):
    sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location("main", os.path.join(folder, "src/main.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {"combined_score": module.total(3)}
"""
MAIN = """from part0 import part as a
from part1 import part as b


def total(n):
    return a(n) + b(n)
"""
FOLDERS, IN_EACH, BYTES = 100, 20, 20 << 20


@dataclass
class Measured:
    """What trials took, one value for each."""

    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)


def files(number: int) -> dict[str, str]:
    """Returns the five files of a program; each number gives another program."""
    parts = {f"src/part{n}.py": f"def part(n):\n    return n * {number + n}\n" for n in range(4)}
    return {"src/main.py": MAIN, **parts}


def fixed_files() -> dict[str, bytes]:
    """Returns 2,000 files of 20 MiB together, in 100 folders beside those that evolve."""
    rng = random.Random(7)
    size = BYTES // (FOLDERS * IN_EACH)
    return {
        f"{'src/' if folder % 2 else ''}folder{folder}/file{n}.txt": rng.randbytes(size)
        for folder in range(FOLDERS)
        for n in range(IN_EACH)
    }


def job(number: int, fixed: Mapping[str, bytes]) -> Job:
    program = Program.of_files(files(number))
    texts = [file.source.encode() for file in program.files]
    paths = tuple(file.path for file in program.files)
    folder = Folder(paths, tuple(map(len, texts)), "src/main.py")
    evaluator = Evaluator(f"{len(fixed)} fixed", {"evaluator.py": EVALUATOR}, fixed=fixed)
    suffix = PurePosixPath(folder.entry).suffix
    return Job(
        evaluator, "evaluate", ((suffix, b"".join(texts)),), Limits(), Mode.GUARDED, folder=folder
    )


def processor_seconds() -> float:
    """Returns the processor time of this process and all below it, ended ones included."""
    own = psutil.Process()
    times = [process.cpu_times() for process in (own, *own.children(recursive=True))]
    return sum(t.user + t.system + t.children_user + t.children_system for t in times)


def measure(trials: int) -> dict[str, object]:
    """Runs trials of both kinds in turns; returns the medians of each, and their ratio."""
    kinds: dict[str, Mapping[str, bytes]] = {"alone": {}, "among 2,000 files": fixed_files()}
    measured = {name: Measured() for name in kinds}
    sandbox = ProcessSandbox(PoolSettings(max_sandboxes=2, spares=0))
    try:
        for fixed in kinds.values():
            sandbox.run(job(-1, fixed))
        for number in range(trials):
            for name, fixed in kinds.items():
                before, begun = processor_seconds(), time.perf_counter()
                outcome = sandbox.run(job(number, fixed))
                assert outcome.result is not None, outcome
                measured[name].seconds.append(time.perf_counter() - begun)
                measured[name].cpu_seconds.append(processor_seconds() - before)
    finally:
        sandbox.close()
    ms = {
        name: {
            "wall_ms": 1000 * statistics.median(one.seconds),
            "cpu_ms": 1000 * statistics.mean(one.cpu_seconds),
            "bytes_to_sandbox": sum(len(text) for _, text in job(0, kinds[name]).programs),
        }
        for name, one in measured.items()
    }
    alone, among = ms.values()
    ratio = {key: among[key] / alone[key] for key in ("wall_ms", "cpu_ms")}
    return {"trials": trials, **ms, "ratio": ratio}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trials", type=int, nargs="?", default=100)
    print(json.dumps(measure(parser.parse_args().trials), indent=2))


if __name__ == "__main__":
    main()
