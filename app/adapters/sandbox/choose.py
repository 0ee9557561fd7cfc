"""Picks the sandbox of this machine."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

from app.adapters.sandbox.engine_socket import engine_answers, socket_at_hand, socket_group
from app.adapters.sandbox.environments import Environments, ShowProgress, no_progress
from app.adapters.sandbox.pool import PoolSettings
from app.adapters.sandbox.process import ProcessSandbox
from app.config.places import LEAST
from app.config.settings import SandboxSettings, Settings
from app.ports.protocols import Misconfigured, Sandbox, Unavailable

_ANSWER_SECONDS = 2.0

Open: TypeAlias = Callable[[SandboxSettings, ShowProgress, bool], Sandbox | str]
"""Takes the settings, what shows progress, and whether "auto" may build the default image; returns
the sandbox, or why "auto" goes on to the next kind.
"""


@dataclass(frozen=True, slots=True)
class Check:
    """A check of what a kind of sandbox needs of the machine.

    Attributes:
      remedy: What to do; "" where nothing need be done.
    """

    name: str
    ok: bool
    detail: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class SandboxKind:
    """A kind of sandbox.

    Attributes:
      name: Its name as `sandbox.backend`.
      words: Its sandboxes, in the plural, for messages.
      open: Opens it.
      own: Settings that not every kind has, and that say how strict it is in no way that another
        kind would have to refuse.
      required: Settings that only it has, and that another kind refuses.
      remedy: How to have it where a setting requires it; `{image}` is the default image.
      clear_orphans: Removes what killed workers left; returns how many containers that was.
      check: Checks the machine; takes whether there is a deployment.  None where the kind is not
        in question.
    """

    name: str
    words: str
    open: Open
    own: tuple[str, ...]
    required: tuple[str, ...] = ()
    remedy: str = ""
    clear_orphans: Callable[[SandboxSettings], int] | None = None
    check: Callable[[bool], Check | None] | None = None


def choose(
    settings: SandboxSettings,
    *,
    show_progress: ShowProgress = no_progress,
    may_build: bool = True,
) -> Sandbox:
    """Returns the sandbox of the settings; "auto" is the first of `KINDS` that can be had.

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
    why = f"sandbox.backend={settings.backend} chooses them"
    for kind in _candidates(settings):
        _refuse_foreign(settings, kind, why)
        opened = kind.open(settings, show_progress, may_build)
        if not isinstance(opened, str):
            _say_without_effect(settings, kind, show_progress)
            return opened
        why = opened
    raise Unavailable(why)


def clear_orphans(settings: SandboxSettings) -> int:
    """Removes the containers of killed workers, where there is an engine; returns how many.

    Raises:
      Unavailable: The engine answers no more.
    """
    return sum(kind.clear_orphans(settings) for kind in _candidates(settings) if kind.clear_orphans)


def checks(deployed: bool) -> list[Check]:
    """Returns what each kind of sandbox finds of the machine."""
    found = [kind.check(deployed) for kind in KINDS if kind.check]
    return [check for check in found if check is not None]


def without_an_engine(deployed: bool) -> str:
    """Returns what to do where the engine does not answer.

    A worker in a container that may open the engine's socket boots no sandbox of child processes.
    """
    if deployed:
        return (
            "start Docker, or take DOCKER_GID out of .env, then `docker compose up -d`: programs "
            "then run in processes"
        )
    return "start Docker, or set EVOQ_SANDBOX__BACKEND=process"


def _candidates(settings: SandboxSettings) -> list[SandboxKind]:
    return [kind for kind in KINDS if settings.backend in ("auto", kind.name)]


def _open_containers(
    settings: SandboxSettings, show_progress: ShowProgress, may_build: bool
) -> Sandbox | str:
    if settings.backend == "auto" and not engine_answers(_ANSWER_SECONDS):
        if socket := socket_at_hand():
            raise Unavailable(
                f"no Docker engine answers at {socket}, where this process can connect. Start "
                f"Docker, or choose child processes with sandbox.backend=process "
                f"(EVOQ_SANDBOX__BACKEND=process for a worker; in a deployment with "
                f"docker-compose.yml take DOCKER_GID out of .env instead)"
            )
        return "no Docker engine can be reached here"
    from app.adapters.sandbox import containers

    sandbox = containers.open_containers(
        settings,
        _pool(settings),
        build_seconds=_build_seconds(settings),
        show_progress=show_progress,
        may_build=may_build,
    )
    return sandbox or f"the engine has no image {settings.image}"


def _clear_containers(settings: SandboxSettings) -> int:
    if not engine_answers(_ANSWER_SECONDS):
        return 0
    from app.adapters.sandbox import containers

    return containers.clear_orphans(settings.owner)


def _check_engine(deployed: bool) -> Check:
    if engine_answers(_ANSWER_SECONDS):
        return Check("Docker", True, "the engine answers")
    group = socket_group()
    if group is not None:
        detail = "this user may not open the engine's socket; programs run in processes"
        remedy = (
            f"make it a member of the group {group} (DOCKER_GID={group} in .env, then "
            f"`docker compose up -d`), which gives it the power of root on this machine"
        )
    elif socket := socket_at_hand():
        detail = f"no engine answers at {socket}; programs run only if it does"
        remedy = without_an_engine(deployed)
    elif deployed:
        detail = "no engine answers here; programs of workers here run in processes"
        remedy = "only workers of the queue `cpu` need it: start it where they run"
    else:
        detail = "no engine answers; programs run in processes"
        remedy = "install and start Docker for the strongest sandbox"
    return Check("Docker", False, detail, remedy)


def _open_jobs(
    settings: SandboxSettings,
    show_progress: ShowProgress,  # noqa: ARG001
    may_build: bool,  # noqa: ARG001
) -> Sandbox | str:
    if settings.backend == "auto":
        return "a cluster is never chosen by itself"
    from app.adapters.sandbox.job_sandbox import JobSandbox, PodSettings, open_jobs

    cluster = Settings().kubernetes
    pods = PodSettings(settings.image, settings.cpus, settings.places or LEAST, cluster)
    return JobSandbox(open_jobs(cluster, settings.owner), pods)


def _clear_jobs(settings: SandboxSettings) -> int:
    if settings.backend == "auto":
        return 0
    from app.adapters.sandbox.job_sandbox import open_jobs

    return open_jobs(Settings().kubernetes, settings.owner).sweep()


def _check_cluster(deployed: bool) -> Check | None:  # noqa: ARG001
    """Checks the cluster of a process that is to use one."""
    if Settings().sandbox.backend != "kubernetes":
        return None
    from app.adapters.sandbox.job_sandbox import open_cluster

    try:
        cluster = open_cluster(Settings().kubernetes)
        forbidden = cluster.forbidden()
    except Unavailable as error:
        return Check("Kubernetes", False, str(error), "trials run only if it answers")
    if forbidden:
        detail = f"{cluster.server}: not permitted in {cluster.namespace}: {', '.join(forbidden)}"
        return Check("Kubernetes", False, detail, "apply the Role of docs/sandbox.md")
    detail = f"{cluster.server} answers; Jobs may run in the namespace {cluster.namespace}"
    return Check("Kubernetes", True, detail)


def _open_processes(
    settings: SandboxSettings,
    show_progress: ShowProgress,
    may_build: bool,  # noqa: ARG001
) -> Sandbox:
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


_OF_A_POOL = "spares", "trials_per_sandbox", "minutes_per_sandbox", "trials_per_evaluator"

KINDS = (
    SandboxKind(
        "docker",
        "containers",
        _open_containers,
        own=("cpus", "image", "owner", "one_container_per_trial", *_OF_A_POOL),
        required=("runtime", "seccomp"),
        remedy="Start Docker with the image {image} and choose sandbox.backend=docker",
        clear_orphans=_clear_containers,
        check=_check_engine,
    ),
    SandboxKind(
        "process",
        "child processes",
        _open_processes,
        own=(
            *("environments", "build_hosts", "unisolated_builds", "unbounded_processes"),
            *("one_container_per_trial", *_OF_A_POOL),
        ),
    ),
    SandboxKind(
        "kubernetes",
        "Jobs",
        _open_jobs,
        own=("cpus", "image", "owner"),
        clear_orphans=_clear_jobs,
        check=_check_cluster,
    ),
)
"""Every kind of sandbox, in the order in which "auto" tries them."""


def _refuse_foreign(settings: SandboxSettings, kind: SandboxKind, why: str) -> None:
    """Refuses a setting that only another kind has, where this one is used for the reason `why`.

    Raises:
      Misconfigured: There is one.
    """
    values = asdict(settings)
    for other in KINDS:
        for name in other.required if other is not kind else ():
            if values[name]:
                raise Misconfigured(
                    f"sandbox.{name}={values[name]} is for {other.words}, and programs would run "
                    f"in {kind.words}: {why}. {other.remedy.format(image=settings.image)}, or "
                    f"leave sandbox.{name} (EVOQ_SANDBOX__{name.upper()}) out"
                )


def _say_without_effect(settings: SandboxSettings, kind: SandboxKind, say: ShowProgress) -> None:
    """Says which settings differ from their defaults and have no effect in the kind in use."""
    values, defaults = asdict(settings), asdict(SandboxSettings())
    given: dict[str, list[str]] = {}
    for name in dict.fromkeys(name for other in KINDS for name in other.own):
        if name not in kind.own and values[name] != defaults[name]:
            having = " and ".join(other.words for other in KINDS if name in other.own)
            given.setdefault(having, []).append(f"sandbox.{name}={json.dumps(values[name])}")
    for having, named in given.items():
        verb = "has" if len(named) == 1 else "have"
        say(
            f"sandbox: {', '.join(named)} {verb} no effect: programs run in {kind.words}, and "
            f"only {having} have such a setting"
        )


def _pool(settings: SandboxSettings) -> PoolSettings:
    return PoolSettings(
        max_sandboxes=settings.places or LEAST,
        spares=settings.spares,
        max_trials=1 if settings.one_container_per_trial else settings.trials_per_sandbox,
        max_age_seconds=60.0 * settings.minutes_per_sandbox,
        trials_per_evaluator=settings.trials_per_evaluator,
    )


def _build_seconds(settings: SandboxSettings) -> float:
    return 60.0 * settings.build_minutes
