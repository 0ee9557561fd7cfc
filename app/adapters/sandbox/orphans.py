"""Tells the cells of living workers from those whose worker is gone, by container labels."""

import os
import re
import socket
from collections.abc import Collection, Mapping
from pathlib import Path

LABEL = "evoqueue.sandbox"

_HOST, _PID, _STARTED = "evoqueue.host", "evoqueue.pid", "evoqueue.started"
_CONTAINER_NAME = re.compile(r"[0-9a-f]{12}")
_START_TIME_FIELD = 19  # of /proc/PID/stat, counted after the command's closing parenthesis


def labels() -> dict[str, str]:
    """Returns the labels of a cell that this process owns."""
    pid = os.getpid()
    return {
        LABEL: "cell",
        _HOST: socket.gethostname(),
        _PID: str(pid),
        _STARTED: _started(pid),
    }


def orphaned(owner: Mapping[str, str], running: Collection[str]) -> bool:
    """Returns whether the worker that made a container is certainly gone.

    Args:
      owner: The container's labels.
      running: Short ids of the engine's running containers: a worker in a container has its id
        as host name.  A worker on another host is given the benefit of the doubt.
    """
    host = owner.get(_HOST, "")
    if host == socket.gethostname():
        pid = owner.get(_PID, "")
        return not pid.isdigit() or _started(int(pid)) != owner.get(_STARTED)
    return _CONTAINER_NAME.fullmatch(host) is not None and host not in running


def _started(pid: int) -> str:
    """Returns when a process was started, in the kernel's ticks; "" if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[_START_TIME_FIELD]
