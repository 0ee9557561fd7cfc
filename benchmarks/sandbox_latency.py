"""The overhead of a trial: latency, CPU time and throughput of each sandbox.

The evaluator imports a program of one line and calls it once, so everything measured is overhead.
Run it on an idle machine: `python benchmarks/sandbox_latency.py [trials]`.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from app.adapters.sandbox.docker import ContainerSettings, DockerSandbox, profile
from app.adapters.sandbox.engine import DEFAULT_IMAGE
from app.adapters.sandbox.engine_socket import engine_answers
from app.adapters.sandbox.pool import PoolSettings
from app.adapters.sandbox.process import ProcessSandbox
from app.domain.problem import Evaluator, Job, Limits, Mode
from app.ports.protocols import Sandbox

EVALUATOR = b"""
import importlib.util

def evaluate(path):
    spec = importlib.util.spec_from_file_location("program", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {"combined_score": module.solve()}
"""
PROBLEM = Evaluator("noop", {"evaluator.py": EVALUATOR})
WITH_IMAGE = Evaluator(
    "noop with an image",
    {**PROBLEM.files, "Dockerfile": f"FROM {DEFAULT_IMAGE}\nRUN mkdir /opt/marmot\n".encode()},
)
INFRA = Path(__file__).resolve().parents[1] / "infra"
PROGRAM = b"def solve():\n    return 1.0\n"
WARM_UP = 10
HARDENED = """
docker run --rm --network none --read-only --cap-drop ALL --security-opt no-new-privileges
--pids-limit 64 --memory 512m --memory-swap 512m --cpus 1 --user 10001:10001
--tmpfs /tmp:noexec,nosuid,nodev,size=64m --ipc private --log-driver none
""".split()  # noqa: SIM905  # read as one command


@dataclass(frozen=True, slots=True)
class Row:
    """The costs of a trial in one kind of sandbox."""

    name: str
    median_ms: float
    p95_ms: float
    cpu_ms: float | None
    trials_per_second: float | None


def measure(call: Callable[[], object], trials: int) -> list[float]:
    """Returns sorted latencies in milliseconds."""
    latencies = []
    for _ in range(trials):
        started = time.perf_counter()
        call()
        latencies.append(1000 * (time.perf_counter() - started))
    return sorted(latencies)


def measure_sandbox(
    name: str, sandbox: Sandbox, mode: Mode, trials: int, problem: Evaluator = PROBLEM
) -> Row:
    job = Job(problem, "evaluate", ((".py", PROGRAM),), Limits(), mode)
    for _ in range(WARM_UP):
        outcome = sandbox.run(job)
        assert outcome.result is not None, outcome
    cpu_before = cpu_seconds()
    inside = 0.0

    def once() -> None:
        nonlocal inside
        inside += sandbox.run(job).cpu_seconds

    latencies = measure(once, trials)
    cpu_ms = 1000 * (cpu_seconds() - cpu_before + inside) / trials
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        list(threads.map(sandbox.run, [job] * WARM_UP))
        started = time.perf_counter()
        list(threads.map(sandbox.run, [job] * trials))
        rate = trials / (time.perf_counter() - started)
    return row(name, latencies, cpu_ms, rate)


def row(name: str, latencies: list[float], cpu_ms: float | None, rate: float | None) -> Row:
    p95 = latencies[int(0.95 * (len(latencies) - 1))]
    return Row(name, statistics.median(latencies), p95, cpu_ms, rate)


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def docker_run_per_trial() -> None:
    code = PROGRAM.decode() + "print(solve())"
    subprocess.run(
        [*HARDENED, DEFAULT_IMAGE, "python3", "-c", code], check=True, capture_output=True
    )


def measure_fresh(name: str, sandbox: Sandbox, pause_seconds: float, trials: int) -> Row:
    """Measures a new sandbox per trial, with a pause between trials as in a search."""
    job = Job(PROBLEM, "evaluate", ((".py", PROGRAM),), Limits(), Mode.GUARDED)
    for _ in range(3):
        sandbox.run(job)
    latencies = []
    for _ in range(trials):
        time.sleep(pause_seconds)
        latencies += measure(lambda: sandbox.run(job), 1)
    return row(name, sorted(latencies), None, None)


def rows_of_containers(sandboxes: int, trials: int) -> list[Row]:
    settings = ContainerSettings(seccomp=profile("", INFRA / "seccomp.json"))
    rows = []
    containers = DockerSandbox(PoolSettings(max_sandboxes=sandboxes), settings=settings)
    for mode in Mode:
        rows.append(measure_sandbox(f"docker warm sandbox, {mode.value}", containers, mode, trials))
    began = time.perf_counter()
    containers.prepare(WITH_IMAGE)
    built_ms = 1000 * (time.perf_counter() - began)
    name = f"docker warm sandbox, the problem's image (in {built_ms:.0f} ms), guarded"
    rows.append(measure_sandbox(name, containers, Mode.GUARDED, trials, WITH_IMAGE))
    containers.close()
    few = max(5, trials // 10)
    for spares in (0, 1):
        pool = PoolSettings(max_sandboxes=1, spares=spares, max_trials=1)
        fresh = DockerSandbox(pool, settings=settings)
        name = f"docker, a sandbox per trial, {spares} spares, a trial per second"
        rows.append(measure_fresh(name, fresh, 1.0, few))
        fresh.close()
    latencies = measure(docker_run_per_trial, few)
    return [*rows, row("docker run per trial", latencies, None, None)]


def main() -> None:
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    rows: list[Row] = []
    sandboxes = os.cpu_count()
    assert sandboxes is not None
    for level in ("privileged", "unprivileged", "bare"):
        pool = PoolSettings(max_sandboxes=sandboxes)
        # The sandbox is not attacked, so that the Docker engine need not be hidden from it.
        sandbox = ProcessSandbox(pool, levels=(level, "bare"), engine=())
        for mode in Mode:
            rows.append(measure_sandbox(f"process {level}, {mode.value}", sandbox, mode, trials))
        sandbox.close()
        pool = PoolSettings(max_sandboxes=1, spares=0, max_trials=1)
        fresh = ProcessSandbox(pool, levels=(level, "bare"), engine=())
        name = f"process {level}, a sandbox per trial"
        rows.append(measure_fresh(name, fresh, 0.0, max(5, trials // 10)))
        fresh.close()
    if engine_answers(2.0):
        rows += rows_of_containers(sandboxes, trials)
    print("| sandbox | median ms | p95 ms | CPU ms per trial, measured | trials/s, all cores |")
    print("|---|---|---|---|---|")
    for r in rows:
        cpu = "" if r.cpu_ms is None else f"{r.cpu_ms:.1f}"
        rate = "" if r.trials_per_second is None else f"{r.trials_per_second:.0f}"
        print(f"| {r.name} | {r.median_ms:.1f} | {r.p95_ms:.1f} | {cpu} | {rate} |")
    print(json.dumps({"load": os.getloadavg()[0], "cores": os.cpu_count(), "trials": trials}))


if __name__ == "__main__":
    main()
