"""Makes the hardened container that a cell lives in."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker.errors import APIError
from docker.types import LogConfig

from app.adapters.sandbox.bundle import BOOTSTRAP, ENVIRONMENT
from app.adapters.sandbox.cell import whole_cell_mib
from app.adapters.sandbox.orphans import labels
from app.domain.problem import Limits
from app.ports.protocols import Misconfigured

ENGINES_OWN = "engine"
"""Names the seccomp profile that the engine gives to every container."""

_EXTRA_PROCESSES = 32
_CPUS_OF_THE_CELL = 0.5
"""What zygote and evaluator take beside a program, so that trials in a row need not wait."""
_CPU_PERIOD_MICROSECONDS = 100_000
_OTHER_KERNEL_MIB, _OTHER_KERNEL_THREADS = 256, 512
"""What a runtime with a kernel of its own, such as gVisor, runs in the container's name."""
_CAPABILITIES = ["SETUID", "SETGID", "KILL"]  # take a throw-away identity, and end it
_TMPFS = {
    "/tmp": "rw,noexec,nosuid,nodev,size=128m,nr_inodes=8192,mode=1777",
    "/cell/work": "rw,exec,nosuid,nodev,size=128m,nr_inodes=8192,mode=0711",
    "/cell/rpc": "rw,noexec,nosuid,nodev,size=1m,nr_inodes=512,mode=0711",
    "/cell/eval": "rw,nosuid,nodev,size=512m,nr_inodes=65536,mode=0755",
}


@dataclass(frozen=True, slots=True)
class ContainerSettings:
    """How the engine is to confine a cell.

    Attributes:
      runtime: Name of an OCI runtime the engine knows, such as "runsc"; "" for its default.
      cpus: How many CPUs' time a container's programs may take; the cell itself has half of one.
      seccomp: The text of a system call profile; "" for the engine's own.
    """

    runtime: str = ""
    cpus: float = 1.0
    seccomp: str = ""


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
        raise Misconfigured(f"sandbox.seccomp: {path} has no defaultAction. See infra/seccomp.json")
    return json.dumps(read, separators=(",", ":"))


def create(engine: Any, image: str, limits: Limits, settings: ContainerSettings) -> str:
    """Returns the id of a container that has not been started.

    Raises:
      Misconfigured: The engine has no such runtime.
    """
    memory_mib = whole_cell_mib(limits) + (_OTHER_KERNEL_MIB if settings.runtime else 0)
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
        cpu_quota=int((settings.cpus + _CPUS_OF_THE_CELL) * _CPU_PERIOD_MICROSECONDS),
        ipc_mode="private",
        shm_size="64m",
        tmpfs=_TMPFS,
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
            hostname="cell",
            working_dir="/",
            environment=ENVIRONMENT,
            labels=labels(),
            stdin_open=True,
            tty=False,
            host_config=host,
        )
    except APIError:
        _refuse_unknown_runtime(engine, settings.runtime)
        raise
    return str(created["Id"])


def _refuse_unknown_runtime(engine: Any, runtime: str) -> None:
    known = sorted(engine.info().get("Runtimes", {}))
    if runtime and runtime not in known:
        raise Misconfigured(
            f"sandbox.runtime: the engine has no runtime {runtime!r}; it has {', '.join(known)}. "
            f'Name one of these, or add {runtime!r} to "runtimes" in its daemon.json and reload it'
        )
