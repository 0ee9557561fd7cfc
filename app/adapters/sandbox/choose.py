"""Picks the sandbox of this machine."""

import sys
from pathlib import Path
from typing import Literal, TypeAlias

from app.adapters.sandbox.docker import DockerSandbox
from app.adapters.sandbox.engine import DEFAULT_IMAGE, engine_answers
from app.adapters.sandbox.process import ProcessSandbox
from app.ports import Unavailable

Backend: TypeAlias = Literal["auto", "process", "docker"]
AnySandbox: TypeAlias = ProcessSandbox | DockerSandbox

_ENGINE_SECONDS = 2.0


def choose(
    backend: Backend,
    *,
    max_cells: int = 4,
    max_trials: int = 500,
    max_age_seconds: float = 1800.0,
    boot_seconds: float = 60.0,
    image: str = DEFAULT_IMAGE,
    image_folder: Path | None = None,
    runtime: str = "",
    one_container_per_trial: bool = False,
    cpus: float = 1.0,
    python: str = sys.executable,
) -> AnySandbox:
    """Returns the sandbox asked for; "auto" is Docker where it is ready, else child processes.

    The settings are those of `ProcessSandbox` and `DockerSandbox`; each takes what concerns it.
    "auto" prefers Docker if an engine answers within two seconds and has the image, or can build it
    from the Dockerfile in `image_folder`; None never builds.

    Raises:
      Unavailable: "docker" was asked for, and there is no engine, or no image and no way to it.
    """
    process = ProcessSandbox(
        max_cells=max_cells,
        python=python,
        max_trials=1 if one_container_per_trial else max_trials,
        max_age_seconds=max_age_seconds,
        boot_seconds=boot_seconds,
    )
    if backend == "process" or (backend == "auto" and not engine_answers(_ENGINE_SECONDS)):
        return process
    containers = DockerSandbox(
        image=image,
        runtime=runtime,
        one_container_per_trial=one_container_per_trial,
        cpus=cpus,
        max_cells=max_cells,
        max_trials=max_trials,
        max_age_seconds=max_age_seconds,
        boot_seconds=boot_seconds,
    )
    try:
        if not containers.ready():
            if image_folder is None:
                raise Unavailable(
                    f"the engine has no image {image}, and no folder to build it from"
                )
            containers.build(image_folder)
    except Unavailable:
        if backend == "docker":
            raise
        return process
    return containers
