"""A trial's limits as the kernel takes them, and the last steps of becoming a program."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
from typing import Any

_STANDARD_STREAMS = 3
_HIGHEST_DESCRIPTOR = 1 << 16
_SESSION_PRIORITY = "/proc/self/autogroup"
_MOST_KILLABLE = b"1000"
_LOCKED_BYTES = 65_536
_WAITING_SIGNALS = 1024
"""All processes of a user, the worker included, share one sum of signals and timers."""
_CORE_BYTES = 1
"""Too small for a file; with 0 the kernel would still start the machine's handler."""


def apply(limits: dict[str, Any], processes: int, trials: int = 1) -> None:
    """Sets the resource limits of this process and of all it will start.

    Args:
      limits: The fields of `Limits`.
      processes: Largest number of processes of this identity; 0 sets no limit.
      trials: Trials that this process may run, each of which has the CPU time.
    """
    cpu_seconds = whole_cpu_seconds(limits)
    memory_bytes = int(limits["memory_mib"]) << 20
    _limit(resource.RLIMIT_CORE, _CORE_BYTES)
    _limit(resource.RLIMIT_FSIZE, int(limits["file_bytes"]))
    _limit(resource.RLIMIT_NOFILE, int(limits["open_files"]))
    _limit(resource.RLIMIT_DATA, memory_bytes)
    _limit(resource.RLIMIT_MEMLOCK, _LOCKED_BYTES)
    # gVisor has neither these limits nor message queues.
    with contextlib.suppress(ValueError):
        _limit(resource.RLIMIT_SIGPENDING, _WAITING_SIGNALS)
        _limit(resource.RLIMIT_MSGQUEUE, 0)
    _limit(resource.RLIMIT_CPU, cpu_seconds, trials * cpu_seconds + 1)
    if processes:
        _limit(resource.RLIMIT_NPROC, processes)


def renew_cpu_time(limits: dict[str, Any]) -> None:
    """Lets this process use the CPU time of a trial once more."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    spent = int(used.ru_utime + used.ru_stime + 0.999)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    _limit(resource.RLIMIT_CPU, spent + whole_cpu_seconds(limits), hard)


def whole_cpu_seconds(limits: dict[str, Any]) -> int:
    """Returns a trial's CPU time as the kernel takes it, in whole seconds, at least one."""
    return max(1, int(limits["cpu_seconds"] + 0.999))


def _limit(which: int, soft: int, hard: int | None = None) -> None:
    ceiling = resource.getrlimit(which)[1]
    wanted = soft if hard is None else hard
    if ceiling != resource.RLIM_INFINITY:
        soft, wanted = min(soft, ceiling), min(wanted, ceiling)
    resource.setrlimit(which, (soft, wanted))


def offer_to_the_oom_killer() -> None:
    """Makes the kernel end this process before any other of the machine when memory is short."""
    # A kernel may refuse this; the memory limit itself holds.
    with contextlib.suppress(OSError):
        fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        try:
            os.write(fd, _MOST_KILLABLE)
        finally:
            os.close(fd)


def begin_session() -> None:
    """Makes this process the leader of a session that has the priority of the one it was in.

    Linux schedules each session as one group (`sched_autogroup`), which begins with the `nice`
    value 0, whatever the one of its processes is.
    """
    priority = b"0"
    # Some kernels have no `autogroup` file.
    with contextlib.suppress(OSError):
        fd = os.open(_SESSION_PRIORITY, os.O_RDONLY)
        # The file is empty for a process outside all groups.
        priority = os.read(fd, 100).rpartition(b" ")[2].strip() or b"0"
        os.close(fd)
    os.setsid()
    if priority != b"0":
        # Without privileges the kernel accepts ten writes a second.
        with contextlib.suppress(OSError):
            fd = os.open(_SESSION_PRIORITY, os.O_WRONLY)
            try:
                os.write(fd, priority)
            finally:
                os.close(fd)


def take_streams(null: int, out: int, err: int) -> None:
    """Gives this process the given standard streams."""
    os.dup2(null, 0)
    os.dup2(out, 1)
    os.dup2(err, 2)


def buffer_lines() -> None:
    """Has the standard streams pass on each line at its end, here and in forks."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def close_all_but(kept: tuple[int, ...]) -> None:
    lowest = _STANDARD_STREAMS
    for fd in sorted(kept):
        os.closerange(lowest, fd)
        lowest = fd + 1
    os.closerange(lowest, _HIGHEST_DESCRIPTOR)


def default_signals() -> None:
    """Gives signals the meaning they have in a fresh interpreter, in a fork of the zygote."""
    signal.set_wakeup_fd(-1)
    # `_signal` makes no enumerations, which take longer than the calls.
    plain = vars(signal)["_signal"]
    plain.signal(plain.SIGCHLD, plain.SIG_DFL)
    plain.signal(plain.SIGINT, plain.default_int_handler)


def set_environment(variables: dict[str, str]) -> None:
    """Makes `variables` the environment; those that are set already are not set again."""
    for name in os.environ.keys() - variables.keys():
        del os.environ[name]
    for name, value in variables.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
