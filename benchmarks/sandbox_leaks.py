"""Leaks of a warm sandbox over thousands of trials: memory, descriptors, processes, files.

One warm sandbox serves every trial; each program prints, writes a file, starts a thread and a
process, and leaves all of them behind.  Measured are the zygotes, from this machine (those of a
container need root and an engine on this machine), and this process, which holds the other end.
The exit status is 1 if anything grew.

Usage: `python benchmarks/sandbox_leaks.py [trials] [process] [docker]`.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from app.adapters.sandbox.docker import ContainerSettings, DockerSandbox, profile
from app.adapters.sandbox.engine_socket import engine_answers
from app.adapters.sandbox.pool import PoolSettings
from app.adapters.sandbox.process import ProcessSandbox
from app.domain.problem import Evaluator, Job, Limits, Mode
from app.ports.protocols import Sandbox

INFRA = Path(__file__).resolve().parents[1] / "infra"
EVALUATOR = b"""
import importlib.util

def evaluate(path):
    spec = importlib.util.spec_from_file_location("program", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {"combined_score": float(module.solve())}
"""
PROGRAM = b"""
import os, tempfile, threading, time

def solve():
    print("x" * 20_000)
    with open(os.path.join(tempfile.gettempdir(), "left"), "w") as file:
        file.write("y" * 20_000)
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    if os.fork() == 0:
        time.sleep(60)
    block = bytearray(8 << 20)
    return len(block) / (8 << 20)
"""
SAMPLES = 20
GROWTH_KIB = 1024.0
"""Growth of memory between the first and the last quarter that counts as flat, in KiB."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The resources in use between two trials.

    Attributes:
      sandbox_kib: Resident memory of the sandbox's processes without file-backed pages.
      worker_kib: Resident memory of this process.
    """

    trials: int
    sandbox_kib: float
    sandbox_descriptors: int
    sandbox_processes: int
    sandbox_files: int
    worker_kib: float
    worker_descriptors: int
    worker_threads: int


def of_processes(pids: list[int], trials: int, files: int) -> Sample:
    """Returns a sample of processes by their ids on this machine, also those of containers."""
    memory = descriptors = 0
    for pid in pids:
        status = Path(f"/proc/{pid}/status").read_text()
        # The status of a zombie lacks this field.
        memory += int((status.partition("RssAnon:")[2].split() or ["0"])[0])
        descriptors += len(os.listdir(f"/proc/{pid}/fd"))
    worker = psutil.Process()
    return Sample(
        trials,
        memory,
        descriptors,
        len(pids),
        files,
        worker.memory_info().rss / 1024,
        worker.num_fds(),
        worker.num_threads(),
    )


def sample_child(trials: int) -> Sample:
    pids = [child.pid for child in psutil.Process().children(recursive=True)]
    innermost = pids[-1]
    return of_processes(pids, trials, count_files(f"/proc/{innermost}/root"))


def count_files(root: str) -> int:
    places = ("tmp", "dev/shm", "sandbox/work", "sandbox/rpc")
    return sum(len(files) for place in places for _, _, files in os.walk(f"{root}/{place}"))


def sample_container(trials: int) -> Sample:
    """Samples by process ids of this machine: needs an engine on it, and root."""
    mine = ["docker", "ps", "-q", "--filter", f"label=evoqueue.pid={os.getpid()}"]
    (container,) = subprocess.run(mine, capture_output=True, text=True, check=True).stdout.split()
    inspect = ["docker", "inspect", "-f", "{{.State.Pid}}", container]
    first = psutil.Process(int(subprocess.run(inspect, capture_output=True, check=True).stdout))
    pids = [first.pid, *(child.pid for child in first.children(recursive=True))]
    return of_processes(pids, trials, count_files(f"/proc/{pids[0]}/root"))


def measure(sandbox: Sandbox, take_sample: Callable[[int], Sample], trials: int) -> list[Sample]:
    """Runs the trials in one warm sandbox and returns samples at equal distances."""
    job = Job(
        Evaluator("leaks", {"evaluator.py": EVALUATOR}),
        "evaluate",
        ((".py", PROGRAM),),
        Limits(),
        Mode.GUARDED,
    )
    boots = 0
    samples = []
    for trial in range(1, trials + 1):
        outcome = sandbox.run(job)
        assert outcome.failure is None, outcome
        boots += outcome.boot_seconds > 0.0
        if trial % max(1, trials // SAMPLES) == 0:
            samples.append(take_sample(trial))
    assert boots == 1, f"{boots} sandboxes were needed: one was not clean"
    return samples


def grown(samples: list[Sample]) -> list[str]:
    """Returns the resources whose median grew from the first quarter to the last."""
    quarter = max(1, len(samples) // 4)
    first, last = samples[:quarter], samples[-quarter:]
    growth = []
    for name in asdict(samples[0]):
        if name == "trials":
            continue
        before, after = (
            statistics.median(asdict(sample)[name] for sample in part) for part in (first, last)
        )
        if after - before > (GROWTH_KIB if name.endswith("_kib") else 0):
            growth.append(f"{name}: {before:g} -> {after:g}")
    return growth


def main() -> int:
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    backends = sys.argv[2:] or ["process", *(["docker"] if engine_answers(2.0) else [])]
    pool = PoolSettings(max_sandboxes=1, spares=0, max_trials=trials + 1, max_age_seconds=86_400.0)
    settings = ContainerSettings(seccomp=profile("", INFRA / "seccomp.json"))
    leaks = 0
    for name in backends:
        sandbox = (
            ProcessSandbox(pool, engine=())
            if name == "process"
            else DockerSandbox(pool, settings=settings)
        )
        began = time.monotonic()
        samples = measure(sandbox, sample_child if name == "process" else sample_container, trials)
        sandbox.close()
        growth = grown(samples)
        leaks += len(growth)
        for sample in (samples[0], samples[len(samples) // 2], samples[-1]):
            print(name, json.dumps(asdict(sample)))
        print(
            f"{name}: {trials} trials in {time.monotonic() - began:.0f} s; {growth or 'all flat'}"
        )
    return 1 if leaks else 0


if __name__ == "__main__":
    sys.exit(main())
