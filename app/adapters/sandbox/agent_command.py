"""The command of an agent, apart from this machine as an installation is."""

import shutil
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from app.adapters.sandbox.isolated_command import (
    CommandLimits,
    IsolatedCommand,
    NotIsolated,
    Overdue,
)
from app.ports.protocols import Misconfigured, Stop

_LIMITS = CommandLimits(
    memory_mib=4096, file_bytes=256 << 20, all_bytes=1 << 30, open_files=1024, processes=256
)
_REMEDY = (
    "An agent needs namespaces of its own: start the worker as root, or permit user namespaces "
    "(sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0), "
    "in a deployment by compose.agents.yml (docs/agents.md); or leave `agent` out of "
    "search.operators"
)


def run_agent_command(
    command: Sequence[str],
    home: Path,
    folder: str,
    *,
    seconds: float,
    environment: Mapping[str, str],
    addresses: Mapping[str, str],
    visible: Sequence[str],
    serve: Callable[[socket.socket], None],
    show: Callable[[bytes], None],
    stop: Stop,
) -> tuple[int, str]:
    """Runs the command of an agent; see `app.adapters.model.agents.model.RunCommand`.

    Raises:
      Misconfigured: The command is not there, or nothing here keeps it apart.
      Stopped: It was asked to stop.
    """
    program = shutil.which(command[0], path=environment["PATH"])
    if program is None:
        raise Misconfigured(
            f"agent.command: there is no {command[0]!r} where agents find commands "
            f"({environment['PATH']}). Name its path, and in agent.visible the folder in which it "
            f"is installed"
        )
    isolated = IsolatedCommand(
        python=sys.executable,
        command=(program, *command[1:]),
        home=home,
        folder=folder,
        deadline=time.monotonic() + seconds,
        environment=environment,
        addresses=addresses,
        readable=tuple(visible),
        limits=_LIMITS,
    )
    try:
        return isolated.run(serve, show, stop), ""
    except NotIsolated as error:
        raise Misconfigured(f"nothing here keeps an agent apart: {error}. {_REMEDY}") from error
    except Overdue as error:
        return 0, str(error)
