"""The whole stack for a benchmark: real servers and Celery processes, and their costs."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from app.adapters.store import schema
from app.adapters.store.sql import SqlStore
from app.bootstrap.ledger import context, open_store
from app.bootstrap.queue import celery_executor
from app.config.settings import RunSettings
from app.domain.run import Run
from app.domain.search.back_pressure import InFlightLimits
from app.domain.search.budget import Budget
from app.embedded.postgres import EmbeddedPostgres
from app.embedded.valkey import EmbeddedValkey
from app.engine import lifecycle
from app.engine.context import Context
from app.ports.runs import NewRun
from benchmarks.simulated import SimulatedSandbox, problem

SIMULATED = "benchmarks.simulated"
"""The Celery application whose workers simulate the model and the sandbox."""


@dataclass(slots=True)
class ProcessCosts:
    """Processor seconds and memory of every process below this one."""

    _seconds: dict[tuple[str, int], float] = field(default_factory=dict)

    def cpu_seconds(self) -> float:
        """Returns all processor seconds, including those of processes that have ended."""
        for process in _family():
            try:
                times, part = process.cpu_times(), _part(process)
            except psutil.NoSuchProcess:
                continue
            self._seconds[part, process.pid] = times.user + times.system
        return sum(self._seconds.values())

    def by_part(self) -> dict[str, float]:
        """Returns processor seconds by part of the stack, from start to end."""
        parts: dict[str, float] = {}
        for (part, _), seconds in self._seconds.items():
            parts[part] = parts.get(part, 0.0) + seconds
        return {part: round(seconds, 2) for part, seconds in sorted(parts.items())}

    def memory_mib(self) -> float:
        """Returns the proportional set size of all processes."""
        total = 0
        for process in _family():
            try:
                total += process.memory_full_info().pss
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return total / 2**20


@dataclass(frozen=True, slots=True)
class Stack:
    """A running stack.

    Attributes:
      database_url: The address of its ledger.
      folder: Holds its logs; removed with the stack.
    """

    store: SqlStore
    ctx: Context
    database_url: str
    folder: Path
    spent: ProcessCosts


def begin(
    stack: Stack, *, name: str, settings: RunSettings, proposals: int, limits: InFlightLimits
) -> Run:
    """Starts a run of the simulated problem, which the stack's workers execute."""
    simulated = problem()
    return lifecycle.start(
        stack.ctx,
        simulated,
        NewRun(
            name=name,
            problem=simulated.digest,
            strategy="map_elites",
            settings=settings.model_dump(mode="json"),
            operators={"rewrite": 1.0},
            axes=simulated.axes,
            seed=settings.search.seed,
            islands=5,
            budget=Budget(proposals),
            limits=limits,
        ),
    )


@contextmanager
def running_stack(
    workers: Sequence[str], environment: Mapping[str, str], *, application: str = SIMULATED
) -> Iterator[Stack]:
    """Starts Postgres, Valkey, workers and beat, and ends them.

    Args:
      workers: The queues of each worker, such as `cpu,control`.
      environment: Variables of the workers; they are set in this process too.
      application: The Celery application of the workers; `app` is the product's.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="evoq-bench-")))
        postgres = EmbeddedPostgres(folder / "postgres")
        url = postgres.start()
        stack.callback(postgres.stop)
        valkey = EmbeddedValkey(folder / "valkey")
        broker = valkey.start()
        stack.callback(valkey.stop)
        schema.upgrade(url)
        os.environ.update({"EVOQ_DATABASE_URL": url, "EVOQ_REDIS_URL": broker, **environment})
        celery = (sys.executable, "-m", "celery", "-A", application)
        for queues in workers:
            command = (*celery, "worker", "-Q", queues, "--without-gossip", "--without-mingle")
            stack.callback(_end, _spawn(command, folder))
        stack.callback(_end, _spawn((*celery, "beat"), folder))
        store = open_store(url, connections=2)
        stack.callback(store.close)
        executor = celery_executor(broker)
        ctx = context(store, executor, SimulatedSandbox(0), keep_leases=False)
        try:
            yield Stack(store, ctx, url, folder, ProcessCosts())
        except BaseException:
            for log in sorted(folder.glob("*.log")):
                print(f"{log.name}: …{log.read_text()[-2000:]}", file=sys.stderr)
            raise


@contextmanager
def deployed_stack() -> Iterator[Stack]:
    """Yields the stack of `EVOQ_DATABASE_URL` and `EVOQ_REDIS_URL`, which runs in other containers.

    Its costs are not measured, because its processes are not children of this one.
    """
    url = os.environ["EVOQ_DATABASE_URL"]
    store = open_store(url, connections=2)
    ctx = context(
        store, celery_executor(os.environ["EVOQ_REDIS_URL"]), SimulatedSandbox(0), keep_leases=False
    )
    yield Stack(store, ctx, url, Path.cwd(), ProcessCosts())
    store.close()


def _spawn(command: tuple[str, ...], folder: Path) -> subprocess.Popen[bytes]:
    with (folder / f"{command[-1]}-{len(list(folder.iterdir()))}.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _family() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def _part(process: psutil.Process) -> str:
    """Returns the name of the part of the stack: a server, or a command."""
    name, line = process.name(), process.cmdline()
    if "-Q" in line:
        return f"worker {line[line.index('-Q') + 1]}"
    if "mock-llm" in line:
        return "mock-llm"
    return "beat" if "beat" in line else name
