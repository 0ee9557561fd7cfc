"""Times a pattern of many candidates of one second each: here, on the queue, and as Jobs.

Prints a line of JSON for each runner: the wall time of `BestOfN`, the processor time of this
process and of what it forked, and of `Speculate` the time from the first success to the end of the
last loser, which is when the pattern returns.

    python -m benchmarks.branches --candidates 100 --runner here --runner cpu
    python -m benchmarks.branches --runner kubernetes --claim branches --image IMAGE --mount DIR
"""

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

from app.adapters.kubernetes.manifests import Resources
from app.client.branches import QueueRunner
from app.patterns.commands import Command
from app.patterns.jobs import JobsRunner
from app.patterns.racing import BestOfN, Speculate
from app.patterns.running import ProcessRunner, Runner

RUNNERS = ("here", "cpu", "kubernetes")
_LOSER_SECONDS = 600


def main() -> None:
    """Measures what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--candidates", type=int, default=100)
    parser.add_argument("--losers", type=int, default=3)
    parser.add_argument("--runner", action="append", choices=RUNNERS)
    parser.add_argument("--claim", default="branches")
    parser.add_argument("--image", default="python:3.13-slim")
    parser.add_argument("--mount", type=Path, default=Path("/mnt/branchfs"))
    parser.add_argument("--namespace", default="")
    given = parser.parse_args()
    for name in given.runner or RUNNERS[:2]:
        place = given.mount if name == "kubernetes" else None
        with tempfile.TemporaryDirectory(prefix="branches-", dir=place) as folder:
            measured = _measure(_runner(name, given), Path(folder, "base"), given)
        print(json.dumps({"runner": name, "candidates": given.candidates, **measured}), flush=True)


def _runner(name: str, given: argparse.Namespace) -> Runner:
    if name == "cpu":
        return QueueRunner()
    if name == "kubernetes":
        return JobsRunner(
            claim=given.claim,
            image=given.image,
            mount=given.mount,
            namespace=given.namespace,
            # A node of two cores has room for twenty.
            resources=Resources(0.1, 64),
        )
    return ProcessRunner()


def _measure(runner: Runner, base: Path, given: argparse.Namespace) -> dict[str, float | int]:
    base.mkdir()
    (base / "notes.txt").write_text("x")
    second = Command(["/bin/sh", "-c", "sleep 1; date +%s.%N > ended; echo 1 >&3"])
    before, started = _cpu_seconds(), time.monotonic()
    outcome = BestOfN([second] * given.candidates, runner=runner)(base)
    wall, cpu = time.monotonic() - started, _cpu_seconds() - before
    losers = [Command(["sleep", str(_LOSER_SECONDS)])] * given.losers
    won = Speculate([*losers, second], runner=runner)(base)
    ended = float((base / "ended").read_text())
    return {
        "succeeded": sum(result.success for result in outcome.all_results),
        "wall_seconds": round(wall, 2),
        "coordinator_cpu_seconds": round(cpu, 2),
        "first_wins": won.committed,
        "seconds_to_the_last_losers_end": round(time.time() - ended, 2),
    }


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


if __name__ == "__main__":
    main()
