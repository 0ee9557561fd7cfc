"""Opens the sandbox of containers; imported only where an engine answers or is required."""

from pathlib import Path

from app.adapters.sandbox.docker import ContainerSettings, DockerSandbox, profile
from app.adapters.sandbox.environments import ShowProgress
from app.adapters.sandbox.images import Images
from app.adapters.sandbox.orphans import remove_orphans
from app.adapters.sandbox.pool import PoolSettings
from app.config.settings import SandboxSettings
from app.ports.protocols import Unavailable

IMAGE = Path(__file__).with_name("image")
"""The folder with the seccomp profile and the default image's Dockerfile."""

ENGINE_SECONDS = 20.0
"""Longest time the engine may take to answer one request."""


def open_containers(
    settings: SandboxSettings,
    pool: PoolSettings,
    *,
    build_seconds: float,
    show_progress: ShowProgress,
    may_build: bool,
) -> DockerSandbox | None:
    """Returns the sandbox; None where "auto" has no image and may not, or cannot, build it.

    Args:
      settings: The engine's limits and image.
      pool: How many sandboxes there are, and how long each is used.
      build_seconds: Longest time a build may take.
      show_progress: Gets the progress of builds, and why there is no sandbox.
      may_build: Whether "auto" may build the default image.

    Raises:
      Unavailable: "docker" is required, and no engine answers, or the image cannot be built.
      Misconfigured: A setting names what does not exist.
    """
    images = Images(
        settings.image,
        owner=settings.owner,
        show_progress=show_progress,
        engine_seconds=ENGINE_SECONDS,
        build_seconds=build_seconds,
    )
    container = ContainerSettings(
        settings.runtime,
        settings.cpus,
        profile(settings.seccomp, IMAGE / "seccomp.json"),
        settings.owner,
    )
    clear_orphans(settings.owner)
    if not images.has_default():
        if settings.backend == "auto" and not may_build:
            show_progress(
                f"sandbox: an engine answers, but it has no image {settings.image}: programs "
                f"run in child processes here; `--set sandbox.backend=docker` builds the image"
            )
            return None
        try:
            images.build_default(IMAGE)
        except Unavailable as error:
            if settings.backend == "docker":
                raise
            show_progress(f"sandbox: {error}: programs run in child processes here")
            return None
    return DockerSandbox(pool, images=images, settings=container, engine_seconds=ENGINE_SECONDS)


def clear_orphans(owner: str) -> int:
    """Removes the containers that killed workers of a deployment left; returns how many."""
    return remove_orphans(ENGINE_SECONDS, owner)
