"""The Docker sandbox: warm cells that are hardened containers, driven over an attached socket.

Nothing is mounted into a container and nothing listens: harness, evaluator and programs go in over
standard input, reports come out over standard output.  So a remote engine, a rootless one and one
whose socket is mounted into the worker's own container all work, and a container ends by itself
when its worker does.
"""

import random

from docker.errors import ImageNotFound

from app.adapters.sandbox import container
from app.adapters.sandbox.attached import Attached
from app.adapters.sandbox.cell import Cell, CellSettings
from app.adapters.sandbox.container import ContainerSettings
from app.adapters.sandbox.engine import engine_client
from app.adapters.sandbox.images import Images
from app.adapters.sandbox.pool import DEFAULT_POOL, Pool, PoolSettings
from app.adapters.sandbox.protection import Protection
from app.domain.problem import Evaluator, Job, Limits, Outcome

DEFAULT_CONTAINER = ContainerSettings()


class DockerSandbox:
    """Runs jobs in hardened containers.

    Args:
      pool: How many containers, and for how long.
      images: What cells are made from.
      settings: How the engine is to confine a cell.
      boot_seconds: Longest time a boot, with the evaluator's import, may take.
      engine_seconds: Longest time the engine may take to answer one request.
    """

    def __init__(
        self,
        pool: PoolSettings = DEFAULT_POOL,
        *,
        images: Images | None = None,
        settings: ContainerSettings = DEFAULT_CONTAINER,
        boot_seconds: float = 60.0,
        engine_seconds: float = 20.0,
    ) -> None:
        self._images = Images(engine_seconds=engine_seconds) if images is None else images
        self._settings = settings
        self._boot_seconds = boot_seconds
        self._engine_seconds = engine_seconds
        self._pool = Pool(self._start, pool)

    def run(self, job: Job) -> Outcome:
        return self._pool.run(job)

    def close(self) -> None:
        self._pool.close()

    def prepare(self, evaluator: Evaluator) -> None:
        """Builds the image of a problem's dependencies, if it has any and nobody has yet.

        Raises:
          EvaluatorBroken: They cannot be installed.
          Unavailable: The engine does not answer, or the build takes too long.
        """
        self._images.of(evaluator)

    def protections(self) -> list[Protection]:
        """Returns which walls stand; see `Pool.protections`."""
        return self._pool.protections()

    def ready_cells(self) -> int:
        """Returns how many booted cells wait for a trial."""
        return self._pool.ready_cells()

    def _start(self, job: Job) -> Cell:
        settings = CellSettings(
            "container", offset=random.randrange(200_000), boot_seconds=self._boot_seconds
        )
        channel = Attached(self._create(job.evaluator, job.limits), self._engine_seconds)
        return Cell(channel, settings, job.evaluator, job.mode, job.limits)

    def _create(self, evaluator: Evaluator, limits: Limits) -> str:
        image = self._images.of(evaluator)
        with engine_client(self._engine_seconds) as engine:
            try:
                return container.create(engine, image, limits, self._settings)
            except ImageNotFound:
                self._images.forget(evaluator)  # it may have been pruned, and can be built again
                return container.create(engine, self._images.of(evaluator), limits, self._settings)
