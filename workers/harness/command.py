"""Runs one command in isolation: an installation, or an agent, which may run any code."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from typing import Any

from . import frames, isolation, kernel, landlock, limits, probes, sandbox_layout
from .forks import ForkFilter
from .sandbox_layout import LIMIT, NESTED, UIDS, SandboxLayout
from .syscall_filter import FilterPermissions, SyscallFilter

_BACKLOG = 64
_OF_THE_NETWORK = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/services")
_NO_ISOLATION = "namespaces cannot be had here"
_NO_BOUND = "nothing here bounds how many processes a command starts"


def main() -> None:
    """Isolates this process, runs one command, and ends as the command ended.

    Standard input holds a frame: `channel`, the descriptor of a socket to the worker; `writable`,
    the directories to write in; `folder`, where to start; `readable`, what else to show;
    `command`; `environment`; `addresses`, further variables, in which `{address}` stands for that
    of the only way to the network; `limits`, as `limits.apply` takes them; `scratch`, `levels` and
    `offset` as `isolation.enter` does; `unisolated`, whether to go on without isolation.  The
    worker gets the reason of a refusal through the channel, or the descriptor of the socket that
    listens at the address.
    """
    received = frames.read_header(0)
    if received is None:
        return
    wanted = received[0]
    channel = socket.socket(fileno=int(wanted["channel"]))
    shown = isolation.Shown(tuple(wanted["readable"]), tuple(wanted["writable"]))
    layout = isolation.enter(
        wanted["scratch"], tuple(wanted["levels"]), int(wanted["offset"]), shown
    )
    fork_filter = ForkFilter()
    layout.bounded_by = probes.bound_of_processes(layout, fork_filter)
    bounded = layout.bounded_by == LIMIT
    if not wanted["unisolated"] and not (layout.own_root and bounded):
        reasons = [*layout.reasons, "" if layout.own_root else _NO_ISOLATION]
        reasons += ["" if bounded else _NO_BOUND]
        channel.sendall("; ".join(filter(None, reasons)).encode())
        os._exit(1)
    environment = dict(wanted["environment"])
    if layout.network_closed:
        address = _offer_an_address(channel)
        for name, text in wanted["addresses"].items():
            environment[name] = text.replace("{address}", address)
    child = os.fork()
    if child == 0:
        channel.close()
        _become_the_command(layout, wanted, environment, bounded)
    threading.Thread(target=_end_with_the_worker, args=(channel,), daemon=True).start()
    ended, status = 0, 0
    # This process is the first here, so it also collects orphans.
    while ended != child:
        ended, status = os.waitpid(-1, 0)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _end_with_the_worker(channel: socket.socket) -> None:
    """Ends this process, and thereby the command, once the worker has closed its end."""
    with contextlib.suppress(OSError):
        while channel.recv(1):
            pass
    os._exit(1)


def _offer_an_address(channel: socket.socket) -> str:
    """Sends the worker a socket that listens in this network; returns its address."""
    with socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG) as listener:
        socket.send_fds(channel, [b"\0"], [listener.fileno()])
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


def _become_the_command(
    layout: SandboxLayout,
    wanted: dict[str, Any],
    environment: dict[str, str],
    bounded: bool,
) -> None:
    """Takes the identity, the limits and the filter of a command, and starts it."""
    try:
        if layout.identities == UIDS:
            sandbox_layout.become(layout.first_uid)
        elif layout.identities == NESTED and bounded:
            probes.in_a_namespace()
        kernel.keep_capabilities()
        kernel.die_with_parent()
        limits.apply(wanted["limits"], int(wanted["limits"]["processes"]) if bounded else 0)
        limits.offer_to_the_oom_killer()
        limits.default_signals()
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        kernel.no_new_privileges()
        os.chdir(wanted["folder"])
        if not layout.own_root:
            readable = (*landlock.of_machine(), *wanted["readable"], *_OF_THE_NETWORK)
            landlock.restrict(landlock.ruleset_of_paths(readable, tuple(wanted["writable"])))
        SyscallFilter(
            FilterPermissions(
                internet=True,
                local=layout.own_root,
                counted_memory=True,
                passing=True,
                others=True,
                locks=True,
                modes=True,
                attributes=True,
            )
        ).install()
        os.execve(wanted["command"][0], wanted["command"], environment)
    except OSError as error:
        os.write(1, f"the command did not start: {error}\n".encode())
    finally:
        os._exit(1)
