"""Picks the sandbox of this machine."""

from pathlib import Path
from typing import TypeAlias

from app.adapters.sandbox.container import ContainerSettings, profile
from app.adapters.sandbox.docker import DockerSandbox
from app.adapters.sandbox.engine import engine_answers
from app.adapters.sandbox.environments import Environments
from app.adapters.sandbox.images import Images, Tell, quiet
from app.adapters.sandbox.orphans import sweep
from app.adapters.sandbox.pool import PoolSettings
from app.adapters.sandbox.process import ProcessSandbox
from app.config.settings import SandboxSettings
from app.ports.protocols import Unavailable

AnySandbox: TypeAlias = ProcessSandbox | DockerSandbox

ENGINE_SECONDS = 20.0
"""Longest time the engine may take to answer one request."""
_ANSWER_SECONDS = 2.0


def choose(told: SandboxSettings, *, infra: Path, tell: Tell = quiet) -> AnySandbox:
    """Returns the sandbox asked for; "auto" is Docker where it is ready, else child processes.

    "auto" prefers Docker if an engine answers within two seconds and has the image, or can build
    it.  Containers that workers of this engine left behind when they were killed are removed.

    Args:
      told: What is asked for.
      infra: The folder with the seccomp profile and the default image's Dockerfile.
      tell: Gets the progress of builds.

    Raises:
      Unavailable: "docker" was asked for, and there is no engine, or no image and no way to it.
      Misconfigured: A setting names what does not exist.
    """
    if told.backend == "process" or (
        told.backend == "auto" and not engine_answers(_ANSWER_SECONDS)
    ):
        return _processes(told, tell)
    images = Images(
        told.image, tell=tell, engine_seconds=ENGINE_SECONDS, build_seconds=_build_seconds(told)
    )
    settings = ContainerSettings(
        told.runtime, told.cpus, profile(told.seccomp, infra / "seccomp.json")
    )
    try:
        sweep(ENGINE_SECONDS)
        if not images.has_default():
            images.build_default(infra / "sandbox")
    except Unavailable:
        if told.backend == "docker":
            raise
        return _processes(told, tell)
    return DockerSandbox(
        _pool(told), images=images, settings=settings, engine_seconds=ENGINE_SECONDS
    )


def clear_orphans(told: SandboxSettings) -> int:
    """Removes the containers of killed workers, where there is an engine; returns how many.

    Raises:
      Unavailable: The engine answers no more.
    """
    if told.backend == "process" or not engine_answers(_ANSWER_SECONDS):
        return 0
    return sweep(ENGINE_SECONDS)


def _processes(told: SandboxSettings, tell: Tell) -> ProcessSandbox:
    folder = Path(told.environments) if told.environments else None
    environments = Environments(folder=folder, tell=tell, build_seconds=_build_seconds(told))
    return ProcessSandbox(
        _pool(told),
        environments=environments,
        unbounded_processes=told.unbounded_processes,
    )


def _pool(told: SandboxSettings) -> PoolSettings:
    return PoolSettings(
        max_cells=told.cells,
        spares=told.spares,
        max_trials=1 if told.one_container_per_trial else told.trials_per_cell,
        max_age_seconds=60.0 * told.minutes_per_cell,
    )


def _build_seconds(told: SandboxSettings) -> float:
    return 60.0 * told.build_minutes
