"""Branches of folders: what creating and committing one costs, and how fast patterns return.

    python -m benchmarks.branches [--folder DIR] [--repeat N] [--files N...] [--bytes N]

Compares the storages that work below DIR with a plain copy (`shutil.copytree`) of the same files,
then runs BestOfN of 100 candidates of one second on 100 places, and Speculate of one fast candidate
among slow ones.  Prints one JSON document with medians.  On a busy machine the processor time of
BestOfN says more than its seconds.
"""

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from app.patterns.errors import MountError
from app.patterns.racing import BestOfN, Speculate
from app.patterns.storage import Storage
from app.patterns.workspace import Workspace

SIZES = (1, 100, 10_000)
FILE_BYTES = 1000
FILES_IN_A_FOLDER = 100
BRANCHES = 100
LOSERS = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="where to make the folders; default: /tmp")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--files", type=int, nargs="+", default=SIZES)
    parser.add_argument("--bytes", type=int, default=FILE_BYTES, help="of each file")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        sizes = {n: _filled(Path(scratch) / str(n), n, options.bytes) for n in options.files}
        costs = {n: _costs(folder, options.repeat) for n, folder in sizes.items()}
        base = _filled(Path(scratch) / "base", 10)
        best = [_best_of_n(base) for _ in range(options.repeat)]
        document = {
            "cores": os.cpu_count(),
            "load_before": round(load, 1),
            "load_after": round(os.getloadavg()[0], 1),
            "ms_by_files": costs,
            "best_of_100_seconds": [round(one.wall_seconds, 2) for one in best],
            "best_of_100_cpu_seconds": [round(one.cpu_seconds, 2) for one in best],
            "speculate_after_success_seconds": [
                round(_speculate(base), 3) for _ in range(options.repeat)
            ],
        }
    print(json.dumps(document, indent=2))


def _filled(folder: Path, files: int, file_bytes: int = FILE_BYTES) -> Path:
    for number in range(files):
        path = folder / str(number // FILES_IN_A_FOLDER) / str(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * file_bytes)
    return folder


def _costs(base: Path, repeat: int) -> dict[str, dict[str, float]]:
    """Returns milliseconds of each storage, and of a plain copy and its removal."""
    copy = base.with_name("copy")
    found = {
        "plain copy": {
            "create": _milliseconds(lambda: shutil.copytree(base, copy), repeat, copy),
        }
    }
    for storage in Storage:
        try:
            with Workspace(base, storage=storage) as workspace:
                time.sleep(0.1)  # the files of the last commit are older than a tick of the clock
                found[storage.value] = _branch_costs(workspace, repeat)
        except MountError:
            continue
    return found


def _milliseconds(act: Callable[[], object], repeat: int, made: Path) -> float:
    taken = []
    for _ in range(repeat):
        began = time.perf_counter()
        act()
        taken.append(1000 * (time.perf_counter() - began))
        shutil.rmtree(made)
    return round(median(taken), 2)


def _branch_costs(workspace: Workspace, repeat: int) -> dict[str, float]:
    taken: dict[str, list[float]] = {"create": [], "create a sibling": [], "commit": []}
    for _ in range(repeat):
        moments = [time.perf_counter()]
        branch = workspace.branch()
        moments.append(time.perf_counter())
        sibling = workspace.branch(since=branch)
        moments.append(time.perf_counter())
        sibling.abort()
        (branch.path / "changed").write_text("x")
        began = time.perf_counter()
        branch.commit()
        taken["create"].append(1000 * (moments[1] - moments[0]))
        taken["create a sibling"].append(1000 * (moments[2] - moments[1]))
        taken["commit"].append(1000 * (time.perf_counter() - began))
        time.sleep(0.05)
    return {name: round(median(values), 2) for name, values in taken.items()}


@dataclass(frozen=True, slots=True)
class Taken:
    """Wall and processor time, children included."""

    wall_seconds: float
    cpu_seconds: float


def _best_of_n(base: Path) -> Taken:
    def second(path: Path) -> tuple[bool, float]:
        time.sleep(1.0)
        return True, float(os.getpid())

    began, spent = time.perf_counter(), sum(os.times()[:4])
    outcome = BestOfN([second] * BRANCHES, max_parallel=BRANCHES)(base)
    assert outcome.committed
    return Taken(time.perf_counter() - began, sum(os.times()[:4]) - spent)


def _speculate(base: Path) -> float:
    def slow(path: Path) -> bool:
        time.sleep(60.0)
        return True

    def fast(path: Path) -> tuple[bool, float]:
        time.sleep(0.5)
        return True, time.time()

    outcome = Speculate([*[slow] * LOSERS, fast])(base)
    assert outcome.winner is not None
    return time.time() - outcome.winner.score


if __name__ == "__main__":
    main()
