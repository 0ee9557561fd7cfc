"""Distinguishes containers of living workers from those of dead ones, by their labels."""

import os
import re
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from docker import APIClient
from docker.errors import NotFound

from app.adapters.sandbox.cgroup import start_time
from app.adapters.sandbox.engine import engine_client, remove
from app.adapters.sandbox.engine_socket import engine_is_near

LABEL, OWNER = "evoqueue.sandbox", "evoqueue.owner"
TRIALS, BUILD = "trials", "build"

_PLACE, _PID, _STARTED = "evoqueue.place", "evoqueue.pid", "evoqueue.started"
_CONTAINER = "evoqueue.container"
_SHORT_ID = re.compile(r"[0-9a-f]{12}")
_STARTING_SECONDS = {TRIALS: 600.0, BUILD: 6 * 3600.0}
"""How long a container that does not run may be about to: a build's never does."""


def labels(owner: str, kind: str = TRIALS) -> dict[str, str]:
    """Returns the labels of a container that this process makes.

    Args:
      owner: The deployment that it belongs to, as in `sandbox.owner`.
      kind: `TRIALS` or `BUILD`.
    """
    pid = os.getpid()
    host = socket.gethostname()
    contained = engine_is_near() and _SHORT_ID.fullmatch(host) is not None
    return {
        LABEL: kind,
        OWNER: owner,
        _PLACE: _place(),
        _PID: str(pid),
        _STARTED: start_time(pid),
        _CONTAINER: host if contained else "",
    }


@dataclass(frozen=True, slots=True)
class OwnedContainer:
    """A container of some worker's, as the engine lists it.

    Attributes:
      owner: Its labels.
      created: When, in seconds since the epoch by the engine's clock.
      runs: Whether it is running.
    """

    owner: Mapping[str, str]
    created: float
    runs: bool


def orphaned(
    container: OwnedContainer, now_seconds: float, running_since: Callable[[str], float | None]
) -> bool:
    """Returns whether the worker that made a container is certainly gone.

    Where the worker shares our list of processes, its number and start time decide.  Where it
    lives in a container of this engine, that one must have been running since before.  Any other
    may be alive on another machine: a container of such a worker is an orphan only if it has not
    run within ten minutes.  All the rest end by themselves when their worker's stream breaks.

    Args:
      container: The container.
      now_seconds: Since the epoch.
      running_since: When the container of a short id was last started; None if it does not run.
    """
    owner = container.owner
    if owner.get(_PLACE) == _place():
        pid = owner.get(_PID, "")
        return not pid.isdigit() or start_time(int(pid)) != owner.get(_STARTED)
    if owner.get(_CONTAINER):
        since = running_since(owner[_CONTAINER])
        return since is None or since > container.created
    patience = _STARTING_SECONDS.get(owner.get(LABEL, ""), 0.0)
    return not container.runs and now_seconds - container.created > patience


def remove_orphans(engine_seconds: float, owner: str) -> int:
    """Removes the containers of workers that are gone; returns how many there were.

    Args:
      engine_seconds: Longest time the engine may take to answer one request.
      owner: The deployment whose containers are considered.

    Raises:
      Unavailable: The engine does not answer.
    """
    with engine_client(engine_seconds) as engine:
        rows = engine.containers(all=True, filters={"label": [LABEL, f"{OWNER}={owner}"]})
        gone = [row["Id"] for row in rows if abandoned(engine, row)]
        return sum([remove(engine, container) for container in gone])


def abandoned(engine: APIClient, row: Mapping[str, Any]) -> bool:
    """Returns whether a container that the engine lists is an orphan; see `orphaned`."""
    container = OwnedContainer(row["Labels"], float(row["Created"]), row["State"] == "running")

    def running_since(short_id: str) -> float | None:
        try:
            state = engine.inspect_container(short_id)["State"]
        except NotFound:
            return None
        return datetime.fromisoformat(state["StartedAt"]).timestamp() if state["Running"] else None

    return orphaned(container, time.time(), running_since)


def _place() -> str:
    """Returns what two processes have in common that see each other under the same numbers."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {os.readlink('/proc/self/ns/pid')}"
