"""Picks the sandbox of this machine."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

from app.adapters.sandbox.engine_socket import engine_answers, socket_at_hand
from app.adapters.sandbox.environments import Environments, ShowProgress, no_progress
from app.adapters.sandbox.pool import PoolSettings
from app.adapters.sandbox.process import ProcessSandbox
from app.config.places import LEAST
from app.config.settings import SandboxSettings
from app.ports.protocols import Misconfigured, Sandbox, Unavailable

_ANSWER_SECONDS = 2.0
_OF_CONTAINERS = ("cpus", "image", "owner")
_OF_PROCESSES = ("environments", "build_hosts", "unisolated_builds", "unbounded_processes")
"""Settings that only one of the two isolations has, and that say how strict it is in no way that
the other would have to refuse."""


class MachineSandbox(Sandbox, Protocol):
    """A sandbox of this machine, whichever backend it has."""

    def summary(self) -> str:
        """Returns one line on the isolation in force; see `Pool.protections`."""
        ...


def choose(
    settings: SandboxSettings,
    *,
    show_progress: ShowProgress = no_progress,
    may_build: bool = True,
) -> MachineSandbox:
    """Returns the sandbox of the settings; "auto" is Docker if it is ready, else child processes.

    "auto" is Docker if an engine answers within two seconds and has the image, or can build it.  An
    engine whose socket this process may open is never replaced by child processes because it does
    not answer: that is `Unavailable`.  Containers that workers of this engine left behind when they
    were killed are removed.

    Args:
      settings: Name the backend and its limits.
      show_progress: Gets the progress of builds.
      may_build: Whether "auto" may build the default image, which takes minutes once.

    Raises:
      Unavailable: "docker" is required, and no engine answers, or the image cannot be built; or
        "auto" finds the socket of an engine that does not answer.
      Misconfigured: A setting names what does not exist, or what child processes do not have.
    """
    if settings.backend == "process":
        return _processes(settings, show_progress, "sandbox.backend=process chooses them")
    if settings.backend == "auto" and not engine_answers(_ANSWER_SECONDS):
        if socket := socket_at_hand():
            raise Unavailable(
                f"no Docker engine answers at {socket}, where this process can connect. Start "
                f"Docker, or choose child processes with sandbox.backend=process "
                f"(EVOQ_SANDBOX__BACKEND=process for a worker; in a deployment with "
                f"docker-compose.yml take DOCKER_GID out of .env instead)"
            )
        return _processes(settings, show_progress, "no Docker engine can be reached here")
    from app.adapters.sandbox import containers

    sandbox = containers.opened(
        settings,
        _pool(settings),
        build_seconds=_build_seconds(settings),
        show_progress=show_progress,
        may_build=may_build,
    )
    if sandbox is not None:
        _say_without_effect(settings, _OF_PROCESSES, "containers", "child processes", show_progress)
        return sandbox
    return _processes(settings, show_progress, f"the engine has no image {settings.image}")


def clear_orphans(settings: SandboxSettings) -> int:
    """Removes the containers of killed workers, where there is an engine; returns how many.

    Raises:
      Unavailable: The engine answers no more.
    """
    if settings.backend not in ("auto", "docker") or not engine_answers(_ANSWER_SECONDS):
        return 0
    from app.adapters.sandbox.containers import ENGINE_SECONDS
    from app.adapters.sandbox.orphans import remove_orphans

    return remove_orphans(ENGINE_SECONDS, settings.owner)


def _processes(settings: SandboxSettings, show_progress: ShowProgress, why: str) -> ProcessSandbox:
    """Returns the sandbox of child processes, which are used for the reason `why`.

    Raises:
      Misconfigured: A setting asks for what containers alone have.
    """
    for name, value in (("runtime", settings.runtime), ("seccomp", settings.seccomp)):
        if value:
            raise Misconfigured(
                f"sandbox.{name}={value} is for containers, and programs would run in child "
                f"processes: {why}. Start Docker with the image {settings.image} and choose "
                f"sandbox.backend=docker, or leave sandbox.{name} (EVOQ_SANDBOX__{name.upper()}) "
                f"out"
            )
    _say_without_effect(settings, _OF_CONTAINERS, "child processes", "containers", show_progress)
    folder = Path(settings.environments) if settings.environments else None
    environments = Environments(
        folder=folder,
        show_progress=show_progress,
        build_seconds=_build_seconds(settings),
        hosts=tuple(settings.build_hosts.split()),
        unisolated=settings.unisolated_builds,
    )
    return ProcessSandbox(
        _pool(settings),
        environments=environments,
        unbounded_processes=settings.unbounded_processes,
    )


def _say_without_effect(
    settings: SandboxSettings, names: Sequence[str], used: str, meant: str, say: ShowProgress
) -> None:
    """Says which settings differ from their defaults and have no effect in the isolation used."""
    values, defaults = asdict(settings), asdict(SandboxSettings())
    given = [
        f"sandbox.{name}={json.dumps(values[name])}"
        for name in names
        if values[name] != defaults[name]
    ]
    if given:
        verb = "has" if len(given) == 1 else "have"
        say(
            f"sandbox: {', '.join(given)} {verb} no effect: programs run in {used}, and only "
            f"{meant} have such a setting"
        )


def _pool(settings: SandboxSettings) -> PoolSettings:
    return PoolSettings(
        max_sandboxes=settings.cells or LEAST,
        spares=settings.spares,
        max_trials=1 if settings.one_container_per_trial else settings.trials_per_cell,
        max_age_seconds=60.0 * settings.minutes_per_cell,
        trials_per_evaluator=settings.trials_per_evaluator,
    )


def _build_seconds(settings: SandboxSettings) -> float:
    return 60.0 * settings.build_minutes
