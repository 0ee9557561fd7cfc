"""Which protections a sandbox really gives: said, never assumed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Protection:
    """One wall around a program.

    Attributes:
      name: What it keeps apart, as a noun phrase.
      on: Whether it stands in cells started now.
      remedy: What to do to have it; "" where it is on.
    """

    name: str
    on: bool
    remedy: str = ""


_DOCKER = "use the docker sandbox"
_LIMITS = f"run on a kernel that holds programs to resource limits, or {_DOCKER}"
_PROCESSES = f"run on Linux 5.5 or later with seccomp listeners permitted, or {_DOCKER}"
_CGROUPS = f"let the worker make memory cgroups (as root, or under systemd with Delegate=memory), or {_DOCKER}"  # noqa: E501
_NAMESPACES = f"allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0), or {_DOCKER}"  # noqa: E501


def protections_of(walls: Mapping[str, Any]) -> list[Protection]:
    """Returns the protections that a cell reported when it booted."""
    fenced = walls["filter"] and walls["fence"]
    apart = walls["identities"] != "one" or (fenced and walls["scopes"])
    rows = (
        ("limits of CPU, memory, files and output, and a deadline", walls["limits"], _LIMITS),
        ("a bound on the processes of a trial", walls["bounded_by"], _PROCESSES),
        ("memory limit of all processes together by a cgroup", walls["counted_memory"], _CGROUPS),
        ("programs apart from the evaluator and the worker", apart, _NAMESPACES),
        (
            "the evaluator's processes and abstract sockets out of sight",
            walls["evaluator_hidden"],
            "run on Linux 6.12 or later with Landlock, and not under gVisor",
        ),
        ("the machine's processes out of sight", walls["own_processes"] or fenced, _NAMESPACES),
        ("the machine's files out of sight", walls["own_root"] or fenced, _NAMESPACES),
        ("no network", walls["network_closed"] or walls["filter"], _NAMESPACES),
        ("system call filter", walls["filter"], "run on x86_64 or aarch64"),
    )
    return [Protection(name, bool(on), "" if on else remedy) for name, on, remedy in rows]
