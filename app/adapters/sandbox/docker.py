"""The Docker sandbox: warm cells that are hardened containers, driven over an attached socket.

Nothing is mounted into a container and nothing listens: harness, evaluator and programs go in over
standard input, reports come out over standard output.  So a remote engine, a rootless one and one
whose socket is mounted into the worker's own container all work, and a container ends by itself
when its worker does.
"""

import contextlib
import random
from pathlib import Path
from typing import Any

import docker
from docker.errors import NotFound

from app.adapters.sandbox.attached import Attached
from app.adapters.sandbox.bundle import BOOTSTRAP
from app.adapters.sandbox.cell import Cell, CellSettings
from app.adapters.sandbox.engine import DEFAULT_IMAGE, engine_client, has_image
from app.adapters.sandbox.orphans import LABEL, labels, orphaned
from app.adapters.sandbox.pool import Pool, PoolSettings
from app.adapters.sandbox.protection import Protection, protections_of
from app.domain.problem import Evaluator, Job, Limits, Mode, Outcome
from app.ports import Unavailable

_EXTRA_MEMORY_MIB = 128  # zygote, evaluator's zygote and what they share
_EXTRA_PROCESSES = 32
_CAPABILITIES = ["SETUID", "SETGID", "KILL"]
_TMPFS = {
    "/tmp": "rw,noexec,nosuid,nodev,size=128m,nr_inodes=8192,mode=1777",
    "/cell/work": "rw,noexec,nosuid,nodev,size=128m,nr_inodes=8192,mode=0711",
    "/cell/rpc": "rw,noexec,nosuid,nodev,size=1m,nr_inodes=512,mode=0711",
    "/cell/eval": "rw,nosuid,nodev,size=512m,nr_inodes=65536,mode=0755",
}
_ENVIRONMENT = {
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
_PROBE = Evaluator("probe", {"evaluator.py": b"def evaluate(path):\n    return {}\n"})


class DockerSandbox:
    """Runs jobs in hardened containers.

    Args:
      image: What cells are made from, where the problem names no image of its own.
      runtime: Name of an OCI runtime the engine knows, such as "runsc"; "" for its default.
      one_container_per_trial: Whether no cell ever serves two trials.
      cpus: How many CPUs' time one container may take.
      max_cells: Most containers alive at once.
      max_trials: Trials after which a cell is replaced.
      max_age_seconds: Age after which a cell is replaced.
      boot_seconds: Longest time a boot, with the evaluator's import, may take.
      engine_seconds: Longest time the engine may take to answer one request.
    """

    def __init__(
        self,
        *,
        image: str = DEFAULT_IMAGE,
        runtime: str = "",
        one_container_per_trial: bool = False,
        cpus: float = 1.0,
        max_cells: int = 4,
        max_trials: int = 500,
        max_age_seconds: float = 1800.0,
        boot_seconds: float = 60.0,
        engine_seconds: float = 20.0,
    ) -> None:
        self._image = image
        self._runtime = runtime
        self._cpus = cpus
        self._boot_seconds = boot_seconds
        self._engine_seconds = engine_seconds
        self._walls: dict[str, Any] | None = None
        trials = 1 if one_container_per_trial else max_trials
        self._pool = Pool(self._start, PoolSettings(max_cells, trials, max_age_seconds))

    def run(self, job: Job) -> Outcome:
        return self._pool.run(job)

    def close(self) -> None:
        self._pool.close()

    def ready(self) -> bool:
        """Returns whether the engine has the default image.

        Raises:
          Unavailable: The engine does not answer.
        """
        with engine_client(self._engine_seconds) as engine:
            return has_image(engine, self._image)

    def build(self, folder: Path) -> None:
        """Builds the default image from the Dockerfile in `folder`, which takes minutes once.

        Raises:
          Unavailable: The engine does not answer, or the build fails.
        """
        with engine_client(600.0) as engine:
            for line in engine.build(path=str(folder), tag=self._image, rm=True, decode=True):
                if "error" in line:
                    raise Unavailable(f"the image {self._image} cannot be built: {line['error']}")

    def sweep(self) -> int:
        """Removes the cells of workers that are gone; returns how many there were.

        Raises:
          Unavailable: The engine does not answer.
        """
        with engine_client(self._engine_seconds) as engine:
            cells = engine.containers(all=True, filters={"label": LABEL})
            running = {row["Id"][:12] for row in engine.containers()}
            gone = [row["Id"] for row in cells if orphaned(row["Labels"], running)]
            for container in gone:
                with contextlib.suppress(NotFound):
                    engine.remove_container(container, force=True)
        return len(gone)

    def protections(self) -> list[Protection]:
        """Returns which walls stand around a program here, found out by booting a cell.

        Raises:
          Unavailable: No cell could be booted.
        """
        if self._walls is None:
            self._start(Job(_PROBE, "evaluate", ((".py", b""),), mode=Mode.GUARDED)).close()
        assert self._walls is not None
        return protections_of(self._walls)

    def _start(self, job: Job) -> Cell:
        image = job.evaluator.image if job.evaluator.image else self._image
        settings = CellSettings(
            "container", offset=random.randrange(200_000), boot_seconds=self._boot_seconds
        )
        channel = Attached(self._create(image, job.limits), self._engine_seconds)
        cell = Cell(channel, settings, job.evaluator, job.mode, job.limits)
        self._walls = cell.walls
        return cell

    def _create(self, image: str, limits: Limits) -> str:
        memory = (limits.memory_mib + limits.memory_mib // 4 + _EXTRA_MEMORY_MIB) << 20
        with engine_client(self._engine_seconds) as engine:
            host = engine.create_host_config(
                network_mode="none",
                read_only=True,
                cap_drop=["ALL"],
                cap_add=_CAPABILITIES,
                security_opt=["no-new-privileges"],
                pids_limit=limits.processes + _EXTRA_PROCESSES,
                mem_limit=memory,
                memswap_limit=memory,
                nano_cpus=int(self._cpus * 1e9),
                ipc_mode="private",
                shm_size="64m",
                tmpfs=_TMPFS,
                ulimits=[docker.types.Ulimit(name="core", soft=0, hard=0)],
                log_config=docker.types.LogConfig(type="none"),
                auto_remove=True,
                runtime=self._runtime if self._runtime else None,
            )
            created = engine.create_container(
                image,
                entrypoint=["python3", "-B", "-s", "-c", BOOTSTRAP],
                command=[],
                user="0:0",
                hostname="cell",
                working_dir="/",
                environment=_ENVIRONMENT,
                labels=labels(),
                stdin_open=True,
                tty=False,
                host_config=host,
            )
        return str(created["Id"])
