"""The Celery processes of an embedded stack: which ones, how many, and how they are restarted."""

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from signal import SIGKILL, SIGTERM

import app
from app.config.places import VARIABLES
from app.embedded.children import ChildProcess, ChildSpec, EmbeddedError, Ending, launch, tail
from app.embedded.forks import CELERY, Imports, fork

WORKERS_END = Ending(orphaned=SIGKILL, requested=SIGTERM, grace_seconds=5.0)
"""A step that needs longer is given up: its lease expires, and a later start repeats the step."""
HEARTBEAT_SECONDS = "30"
"""Between two notices of a worker to Flower that it is there; Celery's own two seconds wake it."""
NICE = "10"
"""Of workers and trials, unless `EVOQ_NICE` says otherwise: a browser beside them paints the
dashboard's pages in half of the time."""
SHORT_LIFE_SECONDS = 60.0
SHORT_LIVES = 5
"""A process that ends early this many times in a row is not restarted."""
_APPLICATION = (CELERY, "-A", "app")


@dataclass(frozen=True, slots=True)
class WorkerSet:
    """How many steps run at once.

    Attributes:
      generators: Threads of the one worker that generates and judges.
      evaluators: Worker processes that evaluate, plan (`produce`) and recover (`reap`); each has
        its own warm sandboxes.
      trials: Places of all evaluators together.
    """

    generators: int = 128
    evaluators: int = 1
    trials: int = 4

    @staticmethod
    def of(cores: int, places: int) -> "WorkerSet":
        """Returns the set for a machine; measured in `docs/decisions/embedded-stack.md`."""
        return WorkerSet(evaluators=max(1, min(8, cores // 4, places)), trials=places)


@dataclass(frozen=True, slots=True)
class Flower:
    """The web page that shows workers, queues and tasks; on the loopback interface."""

    port: int
    user: str
    password: str


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """One process to run.

    Attributes:
      command: `celery` and its arguments.
      forked: Whether it may be forked from the supervisor.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    forked: bool = True


def worker_processes(workers: WorkerSet, environment: Mapping[str, str]) -> list[ProcessSpec]:
    """Returns the processes of a worker set: one that generates, evaluators, beat.

    Generating needs the most Python time, so the evaluators do the planning.
    """
    quiet = ("--without-gossip", "--without-mingle", "--heartbeat-interval", HEARTBEAT_SECONDS)
    own = {"EVOQ_GENERATE_CONCURRENCY": str(workers.generators), "EVOQ_NICE": NICE}
    shared = {**own, **environment}
    shared = {name: text for name, text in shared.items() if name not in VARIABLES}

    def process(name: str, *arguments: str, **variables: str) -> ProcessSpec:
        return ProcessSpec(name, (*_APPLICATION, *arguments), {**shared, **variables})

    evaluators = [
        process(
            *(f"worker-cpu-{n + 1}", "worker", "-Q", "cpu,control", *quiet),
            *("-n", f"cpu-{n + 1}@%h"),
            **{VARIABLES[0]: str((workers.trials + n) // workers.evaluators)},
        )
        for n in range(workers.evaluators)
    ]
    return [
        process("worker-gpu", "worker", "-Q", "gpu", *quiet, "-n", "gpu@%h"),
        *evaluators,
        process("beat", "beat"),
    ]


def flower_process(flower: Flower, environment: Mapping[str, str]) -> ProcessSpec:
    """Returns Flower; its password is in the environment, not on the command line."""
    secret = {"FLOWER_BASIC_AUTH": f"{flower.user}:{flower.password}"}
    command = (*_APPLICATION, "flower", "--address=127.0.0.1", f"--port={flower.port}")
    whole = (*command, "--max-tasks=20000")
    return ProcessSpec("flower", whole, {**environment, **secret}, forked=False)


def process_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of the stack's Python processes.

    The package is imported from where this process imported it.  Fewer malloc arenas keep dozens of
    threads from holding on to memory.
    """
    source = str(Path(app.__file__).parent.parent) if app.__file__ else ""
    paths = [source, *environment.get("PYTHONPATH", "").split(os.pathsep)]
    return {
        "MALLOC_ARENA_MAX": "2",
        **environment,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(path for path in paths if path)),
    }


class RestartedProcess:
    """One process of the stack, restarted with back-off until it fails too often in a row."""

    def __init__(self, spec: ProcessSpec, root: Path, imports: Imports):
        """Starts the process.

        Args:
          spec: What it is.
          root: The stack's folder.
          imports: Those of this process, for one that is forked.

        Raises:
          EmbeddedError: The process cannot be started.
        """
        self._spec = spec
        self._root = root
        self._imports = imports
        self._log = root / "log" / f"{spec.name}.log"
        self._short_lives = 0
        self._restart_at: float | None = None
        self._child: ChildProcess | None = None
        self._start()

    def restart_if_due(self) -> str:
        """Notices that the process has ended, and starts it again once its back-off is over.

        A process that cannot be started, on a full disk for instance, counts like one that ended.

        Returns:
          What happened, for the log; empty when nothing did.

        Raises:
          EmbeddedError: The process failed too often and is given up; raised once.
        """
        if self._restart_at is not None:
            if time.monotonic() < self._restart_at:
                return ""
            try:
                self._start()
            except EmbeddedError as error:
                return self._schedule_restart(str(error))
            return ""
        if self._child is None or self._child.exit_status is None:
            return ""
        status = self._child.exit_status
        self.stop()
        self._child = None
        return self._schedule_restart(f"ended with status {status}")

    def request_end(self) -> None:
        """Sends the signal to end and does not wait."""
        if self._child is not None:
            self._child.request_end()

    def stop(self) -> None:
        """Ends the process."""
        if self._child is not None:
            self._child.stop()

    def _start(self) -> None:
        self._restart_at = None
        self._started_at = time.monotonic()
        spec = self._spec
        record = self._root / "pids" / f"{spec.name}.pid"
        child = ChildSpec(
            spec.name, spec.command, self._root, self._log, record, WORKERS_END, spec.environment
        )
        if spec.forked and self._imports.can_fork(spec.environment):
            self._child = fork(child)
        else:
            self._child = launch(replace(child, command=(sys.executable, "-m", *child.command)))

    def _schedule_restart(self, reason: str) -> str:
        now = time.monotonic()
        short = now - self._started_at < SHORT_LIFE_SECONDS
        self._short_lives = self._short_lives + 1 if short else 1
        if self._short_lives >= SHORT_LIVES:
            raise EmbeddedError(
                f"{self._spec.name} ended {self._short_lives} times within a minute of its start, "
                f"the last time: {reason} ({self._log}):\n{tail(self._log)}"
            )
        self._restart_at = now + 0.5 * 2**self._short_lives
        return f"{self._spec.name}: {reason}; starting it again"
