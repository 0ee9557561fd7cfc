"""The protections that a sandbox reported when it booted."""

from typing import TypedDict

from app.ports.protocols import Protection

_DOCKER = "use the docker sandbox"
_LIMITS = f"run on a kernel that holds programs to resource limits, or {_DOCKER}"
_PROCESSES = f"run on Linux 5.5 or later with seccomp listeners permitted, or {_DOCKER}"
_CGROUPS = f"let the worker make memory cgroups (as root, or under systemd with Delegate=memory), or {_DOCKER}"  # noqa: E501
_NAMESPACES = f"allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0), or {_DOCKER}"  # noqa: E501


class Isolation(TypedDict):
    """The isolation that a sandbox found by trying when it booted.

    Attributes:
      limits, filter, landlock, scopes: Whether these features of the kernel are in force.
      bounded_by: What bounds the processes of a trial; "" for nothing.
      identities: "uids", "nested" for namespaces of its own, or "one" for the worker's.
      counted_memory: Whether a cgroup counts the memory of all processes together.
      reasons: Why the stronger levels of isolation could not be had.
    """

    limits: bool
    filter: bool
    landlock: bool
    scopes: bool
    bounded_by: str
    identities: str
    counted_memory: bool
    files_bounded: bool
    evaluator_hidden: bool
    own_processes: bool
    own_root: bool
    network_closed: bool
    reasons: list[str]


def protections_of(isolation: Isolation) -> list[Protection]:
    """Returns the protections that a sandbox reported when it booted."""
    fenced = isolation["filter"] and isolation["landlock"]
    apart = isolation["identities"] != "one" or (fenced and isolation["scopes"])
    rows = (
        ("limits of CPU, memory, files and output, and a deadline", isolation["limits"], _LIMITS),
        ("a bound on the processes of a trial", isolation["bounded_by"], _PROCESSES),
        ("a bound on all files of a trial", isolation["files_bounded"], _NAMESPACES),
        (
            "memory limit of all processes together by a cgroup",
            isolation["counted_memory"],
            _CGROUPS,
        ),
        ("programs apart from the evaluator and the worker", apart, _NAMESPACES),
        (
            "the evaluator's processes and abstract sockets out of sight",
            isolation["evaluator_hidden"],
            "run on Linux 6.12 or later with Landlock, and not under gVisor",
        ),
        ("the machine's processes out of sight", isolation["own_processes"] or fenced, _NAMESPACES),
        ("the machine's files out of sight", isolation["own_root"] or fenced, _NAMESPACES),
        ("no network", isolation["network_closed"] or isolation["filter"], _NAMESPACES),
        ("system call filter", isolation["filter"], "run on x86_64 or aarch64"),
    )
    return [Protection(name, bool(on), "" if on else remedy) for name, on, remedy in rows]


def summary(backend: str, isolation: Isolation) -> str:
    """Returns one line: the isolation, what is missing of it with the remedies, and what remains.

    Args:
      backend: What a sandbox is, in the plural.
      isolation: As a sandbox reported it.
    """
    kind = f"{backend} without namespaces"
    if isolation["own_root"]:
        own = "an identity" if isolation["identities"] == "uids" else "namespaces"
        kind = f"{backend}, each program with {own} of its own"
    rows = protections_of(isolation)
    missing = "; ".join(f"{row.name} ({row.remedy})" for row in rows if not row.on)
    remaining = "; ".join(row.name for row in rows if row.on)
    return f"sandbox: {kind}. Missing: {missing or 'nothing'}. In force: {remaining or 'nothing'}"
