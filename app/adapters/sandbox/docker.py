"""The Docker sandbox: warm sandboxes that are hardened containers, driven over an attached socket.

Nothing is mounted into a container and nothing listens: harness, evaluator and programs go in over
standard input, reports come out over standard output.  So a remote engine, a rootless one and one
whose socket is mounted into the worker's own container all work, and a container ends by itself
when its worker does.
"""

import json
import random
from dataclasses import dataclass
from pathlib import Path

from docker import APIClient
from docker.errors import APIError, ImageNotFound
from docker.types import LogConfig, Mount

from app.adapters.sandbox.bundle import BOOTSTRAP, ENVIRONMENT
from app.adapters.sandbox.container_connection import ContainerConnection
from app.adapters.sandbox.data_mounts import ON_EVERY_MACHINE, located, refuse
from app.adapters.sandbox.engine import engine_client
from app.adapters.sandbox.frames import BootSettings, sandbox_memory_mib
from app.adapters.sandbox.images import Images
from app.adapters.sandbox.orphans import labels
from app.adapters.sandbox.pool import DEFAULT_POOL, Pool, PoolSettings
from app.adapters.sandbox.warm_sandbox import WarmSandbox
from app.domain.problem import Evaluator, Job, Limits, Outcome
from app.ports.protocols import NEVER, Misconfigured, Protection, Stop

ENGINES_OWN = "engine"
"""Names the seccomp profile that the engine gives to every container."""

_EXTRA_PROCESSES = 32
_HARNESS_CPUS = 0.5
"""What zygote and evaluator take beside a program, so that trials in a row need not wait."""
_CPU_PERIOD_MICROSECONDS = 100_000
_OTHER_KERNEL_MIB, _OTHER_KERNEL_THREADS = 256, 512
"""What a runtime with a kernel of its own, such as gVisor, runs in the container's name."""
_IMAGES_REMEMBERED = 16
_CAPABILITIES = ["SETUID", "SETGID", "KILL"]
"""Capabilities to take a throw-away identity and to end its processes."""
_TMPFS = {
    "/tmp": "rw,exec,nosuid,nodev,size=128m,nr_inodes=8192,mode=1777",
    "/dev/shm": "rw,noexec,nosuid,nodev,size=64m,nr_inodes=8192,mode=1777",
    "/sandbox/work": "rw,exec,nosuid,nodev,size=128m,nr_inodes=8192,mode=0711",
    "/sandbox/rpc": "rw,noexec,nosuid,nodev,size=1m,nr_inodes=512,mode=0711",
    "/sandbox/eval": "rw,exec,nosuid,nodev,size=512m,nr_inodes=65536,mode=0755",
    "/etc/evoq": "rw,noexec,nosuid,nodev,size=1m,nr_inodes=16,mode=0755",
}


_DATA = {"/sandbox/data": "rw,noexec,nosuid,nodev,size=64k,nr_inodes=1024,mode=0700"}
_NO_SOURCE = "bind source path does not exist"


@dataclass(frozen=True, slots=True)
class ContainerSettings:
    """How the engine is to confine a sandbox.

    Attributes:
      runtime: Name of an OCI runtime the engine knows, such as "runsc"; "" for its default.
      cpus: How many CPUs' time a container's programs may take; the harness has half of one more.
      seccomp: The text of a system call profile; "" for the engine's own.
      owner: The deployment that containers belong to, as in `sandbox.owner`.
    """

    runtime: str = ""
    cpus: float = 1.0
    seccomp: str = ""
    owner: str = ""


DEFAULT_CONTAINER = ContainerSettings()


@dataclass(frozen=True, slots=True)
class _Created:
    """A container that has not been started.

    Attributes:
      image: The id of its image, which no other image can have.
    """

    container: str
    image: str


class DockerSandbox:
    """Runs jobs in hardened containers.

    Args:
      pool: How many containers, and for how long.
      images: What sandboxes are made from.
      settings: How the engine is to confine a sandbox.
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
        self._images = (
            Images(owner=settings.owner, engine_seconds=engine_seconds)
            if images is None
            else images
        )
        self._settings = settings
        self._boot_seconds = boot_seconds
        self._trials_per_evaluator = pool.trials_per_evaluator
        self._engine_seconds = engine_seconds
        self._compiled: dict[str, bytes] = {}
        self._pool = Pool(self._start, pool)

    def run(self, job: Job, stop: Stop = NEVER) -> Outcome:
        return self._pool.run(job, stop)

    def close(self) -> None:
        self._pool.close()

    def prepare(self, evaluator: Evaluator) -> None:
        """Builds the image of a problem's dependencies, unless it has none or the image exists.

        Raises:
          EvaluatorBroken: They cannot be installed.
          Unavailable: The engine does not answer, or the build takes too long.
        """
        self._images.of(evaluator)

    def surroundings(self, evaluator: Evaluator) -> str:
        """Returns the id of a problem's image."""
        return f"container {self._images.identity(evaluator)}"

    def protections(self) -> list[Protection]:
        """Returns which protections are in force; see `Pool.protections`."""
        return self._pool.protections()

    def summary(self) -> str:
        """Returns one line on the isolation in force; see `Pool.protections`."""
        return self._pool.summary("containers")

    def ready_sandboxes(self) -> int:
        """Returns how many booted sandboxes wait for a trial."""
        return self._pool.ready_sandboxes()

    def _start(self, job: Job, numpy: bool) -> WarmSandbox:
        created = self._create(job.evaluator, job.limits)
        settings = BootSettings(
            "container",
            offset=random.randrange(200_000),
            boot_seconds=self._boot_seconds,
            trials_per_evaluator=self._trials_per_evaluator,
            compiled=self._compiled.get(created.image, b""),
        )
        connection = ContainerConnection(
            created.container, self._engine_seconds, own_kernel=bool(self._settings.runtime)
        )
        sandbox = WarmSandbox(connection, settings, job.evaluator, job.mode, job.limits, numpy)
        if sandbox.compiled:
            self._keep_compiled(created.image, sandbox.compiled)
        return sandbox

    def _keep_compiled(self, image: str, compiled: bytes) -> None:
        """Keeps what a container's interpreter has compiled for containers of the same image.

        It is not read here, and an image could change the harness in its own containers anyway.
        """
        if len(self._compiled) >= _IMAGES_REMEMBERED:
            self._compiled = {}
        self._compiled[image] = compiled

    def _create(self, evaluator: Evaluator, limits: Limits) -> _Created:
        image = self._images.of(evaluator)
        with engine_client(self._engine_seconds) as engine:
            try:
                container = _create(engine, image, evaluator, limits, self._settings)
            except ImageNotFound:
                # The image may have been pruned, and can be built again.
                self._images.forget(evaluator)
                image = self._images.of(evaluator)
                container = _create(engine, image, evaluator, limits, self._settings)
            return _Created(container, str(engine.inspect_container(container)["Image"]))


def profile(named: str, default: Path) -> str:
    """Returns the text of a seccomp profile.

    Args:
      named: Path of a profile; "" for `default`, "engine" for the engine's own.
      default: The profile that Evoqueue brings.

    Raises:
      Misconfigured: There is no such file, or it is not a profile.
    """
    if named == ENGINES_OWN:
        return ""
    path = Path(named) if named else default
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Misconfigured(
            f"sandbox.seccomp: {path} cannot be read as a profile: {error}. Name a JSON file as "
            f'`docker run --security-opt seccomp=` takes it, or "{ENGINES_OWN}"'
        ) from error
    if not isinstance(read, dict) or "defaultAction" not in read:
        raise Misconfigured(
            f"sandbox.seccomp: {path} has no defaultAction. "
            f"See app/adapters/sandbox/image/seccomp.json"
        )
    return json.dumps(read, separators=(",", ":"))


def _create(
    engine: APIClient, image: str, evaluator: Evaluator, limits: Limits, settings: ContainerSettings
) -> str:
    """Returns the id of a container that has not been started.

    Raises:
      Misconfigured: The engine has no such runtime.
      EvaluatorBroken: The problem's data is not on the engine's machine.
    """
    data = located(evaluator)
    memory_mib = sandbox_memory_mib(limits) + (_OTHER_KERNEL_MIB if settings.runtime else 0)
    threads = _OTHER_KERNEL_THREADS if settings.runtime else 0
    options = ["no-new-privileges"]
    options += [f"seccomp={settings.seccomp}"] if settings.seccomp else []
    host = engine.create_host_config(
        network_mode="none",
        read_only=True,
        cap_drop=["ALL"],
        cap_add=_CAPABILITIES,
        security_opt=options,
        pids_limit=limits.processes + _EXTRA_PROCESSES + threads,
        mem_limit=memory_mib << 20,
        memswap_limit=memory_mib << 20,
        cpu_period=_CPU_PERIOD_MICROSECONDS,
        cpu_quota=int((settings.cpus + _HARNESS_CPUS) * _CPU_PERIOD_MICROSECONDS),
        ipc_mode="private",
        tmpfs={**_TMPFS, **(_DATA if data else {})},
        mounts=[
            Mount(f"/sandbox/data/{name}", path, type="bind", read_only=True)
            for name, path in data.items()
        ],
        log_config=LogConfig(type="none"),
        auto_remove=True,
        runtime=settings.runtime if settings.runtime else None,
    )
    try:
        created = engine.create_container(
            image,
            entrypoint=["python3", "-B", "-s", "-c", BOOTSTRAP],
            command=[],
            user="0:0",
            hostname="sandbox",
            working_dir="/",
            environment=ENVIRONMENT,
            labels=labels(settings.owner),
            stdin_open=True,
            tty=False,
            host_config=host,
        )
    except APIError as error:
        _refuse_unknown_runtime(engine, settings.runtime)
        for path in data.values():
            if _NO_SOURCE in str(error.explanation) and path in str(error.explanation):
                refuse(path, "the engine does not find it", ON_EVERY_MACHINE)
        raise
    return str(created["Id"])


def _refuse_unknown_runtime(engine: APIClient, runtime: str) -> None:
    known = sorted(engine.info().get("Runtimes", {}))
    if runtime and runtime not in known:
        raise Misconfigured(
            f"sandbox.runtime: the engine has no runtime {runtime!r}; it has {', '.join(known)}. "
            f'Name one of these, or add {runtime!r} to "runtimes" in its daemon.json and reload it'
        )
