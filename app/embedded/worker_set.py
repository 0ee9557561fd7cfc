"""The Celery processes of an embedded stack: which, how many, with what environment."""

import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import app
from app.embedded.children import Ending

WORKERS_END = Ending(orphaned=signal.SIGKILL, asked=signal.SIGTERM, grace_seconds=5.0)
"""A step that needs longer is given up: its lease runs out, and a later start does it again."""

CELERY = (sys.executable, "-m", "celery", "-A", "app")


@dataclass(frozen=True, slots=True)
class WorkerSet:
    """How many steps run at once.

    Attributes:
      generators: Threads of the one worker that generates, plans and reaps.
      evaluators: Worker processes that evaluate; each holds its own sandbox cells.
      trials: Threads of one evaluator.
    """

    generators: int = 128
    evaluators: int = 1
    trials: int = 4

    @staticmethod
    def of(cores: int) -> "WorkerSet":
        """Returns what suits a machine; measured in `docs/decisions/embedded-stack.md`."""
        evaluators = max(1, min(8, cores // 4))
        return WorkerSet(evaluators=evaluators, trials=max(4, cores // evaluators))


@dataclass(frozen=True, slots=True)
class Flower:
    """The web page that shows workers, queues and tasks; on the loopback interface."""

    port: int
    user: str
    password: str


@dataclass(frozen=True, slots=True)
class Post:
    """One process of the crew."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]


def posts(crew: WorkerSet, environment: Mapping[str, str]) -> list[Post]:
    """Returns the processes of a crew: one that generates, evaluators, beat.

    Whoever generates has the most to do in Python, so planning is with the evaluators.
    """
    quiet = ("--without-gossip", "--without-mingle")
    threads = {
        "EVOQ_GENERATE_CONCURRENCY": str(crew.generators),
        "EVOQ_EVALUATE_CONCURRENCY": str(crew.trials),
    }
    told = {**threads, **environment}
    return [
        Post("worker-gpu", (*CELERY, "worker", "-Q", "gpu", *quiet, "-n", "gpu@%h"), told),
        *(
            Post(
                f"worker-cpu-{n}",
                (*CELERY, "worker", "-Q", "cpu,control", *quiet, "-n", f"cpu-{n}@%h"),
                told,
            )
            for n in range(1, crew.evaluators + 1)
        ),
        Post("beat", (*CELERY, "beat"), told),
    ]


def flower_post(flower: Flower, environment: Mapping[str, str]) -> Post:
    """Returns Flower; its password travels in the environment, not on the command line."""
    secret = {"FLOWER_BASIC_AUTH": f"{flower.user}:{flower.password}"}
    command = (*CELERY, "flower", "--address=127.0.0.1", f"--port={flower.port}")
    return Post("flower", (*command, "--max-tasks=20000"), {**environment, **secret})


def surroundings(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of a crew.

    The package is found wherever it was imported from; fewer malloc arenas keep dozens of threads
    from holding on to memory.
    """
    home = str(Path(app.__file__).parent.parent) if app.__file__ else ""
    paths = [home, *environment.get("PYTHONPATH", "").split(os.pathsep)]
    return {
        "MALLOC_ARENA_MAX": "2",
        **environment,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(path for path in paths if path)),
    }
