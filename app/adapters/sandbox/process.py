"""The process sandbox: sandboxes as child processes of the worker, for a machine without Docker."""

import contextlib
import os
import random
import select
import subprocess
import tempfile
import time
from collections.abc import Sequence

import psutil

from app.adapters.locked_folders import LockedFolder, remove_left_folders
from app.adapters.sandbox import cgroup
from app.adapters.sandbox.bundle import BOOTSTRAP, ENVIRONMENT
from app.adapters.sandbox.cgroup import Cgroup
from app.adapters.sandbox.connection import Loss, SandboxLost, SandboxOverdue
from app.adapters.sandbox.engine_socket import socket_files
from app.adapters.sandbox.environments import Environments, packages
from app.adapters.sandbox.frames import BootSettings, sandbox_memory_mib
from app.adapters.sandbox.installation import not_isolated
from app.adapters.sandbox.pool import DEFAULT_POOL, Pool, PoolSettings
from app.adapters.sandbox.warm_sandbox import WarmSandbox
from app.domain.problem import Evaluator, Job, Limits, Outcome
from app.ports.protocols import NEVER, Protection, Stop, Unavailable

_FOLDER = "evoq-sandbox-"
_PATH = "/usr/local/bin:/usr/bin:/bin"
_ERROR_OUTPUT_BYTES = 2000
_ENDING_SECONDS = 5.0
_SWEEPS, _SWEEP_SECONDS = 20, 0.1
_LEVELS = ("privileged", "unprivileged", "bare")


class ProcessSandbox:
    """Runs jobs in child processes, isolated as far as the kernel permits.

    Args:
      pool: How many sandboxes, and for how long; each holds about 30 MiB.
      environments: The interpreters of the sandboxes.
      boot_seconds: Longest time a boot, with the evaluator's import, may take.
      levels: Isolation to try, strongest first; "bare" has no namespaces.
      unbounded_processes: Whether programs run also where nothing bounds how many processes they
        start, or what they write; elsewhere no sandbox boots there (`Misconfigured`).
      engine: Socket files of a Docker engine: where an evaluator could open one, no sandbox boots
        (`Misconfigured`).  None for those of this machine.
    """

    def __init__(
        self,
        pool: PoolSettings = DEFAULT_POOL,
        *,
        environments: Environments | None = None,
        boot_seconds: float = 60.0,
        levels: tuple[str, ...] = _LEVELS,
        unbounded_processes: bool = False,
        engine: tuple[str, ...] | None = None,
    ) -> None:
        self._engine = socket_files() if engine is None else engine
        self._environments = Environments() if environments is None else environments
        self._boot_seconds = boot_seconds
        self._levels = levels
        self._unbounded_processes = unbounded_processes
        self._trials_per_evaluator = pool.trials_per_evaluator
        remove_left_folders(_FOLDER)
        self._cgroups = cgroup.parent()
        if self._cgroups is not None:
            cgroup.remove_empty(self._cgroups)
        self._pool = Pool(self._start, pool)

    def run(self, job: Job, stop: Stop = NEVER) -> Outcome:
        return self._pool.run(job, stop)

    def close(self) -> None:
        self._pool.close()

    def prepare(self, evaluator: Evaluator) -> None:
        """Makes the environment of a problem's dependencies, unless it exists or is not needed.

        Raises:
          EvaluatorBroken: They cannot be installed.
          Misconfigured: This machine isolates no installation.
          Unavailable: It takes too long.
        """
        self._interpreter(evaluator)

    def surroundings(self, evaluator: Evaluator) -> str:
        """Returns the version of a problem's interpreter and of all its packages."""
        return f"process {packages(self._interpreter(evaluator))}"

    def protections(self) -> list[Protection]:
        """Returns which protections are in force; see `Pool.protections`."""
        return self._pool.protections()

    def summary(self) -> str:
        """Returns one line on the isolation in force; see `Pool.protections`."""
        return self._pool.summary("child processes")

    def ready_sandboxes(self) -> int:
        """Returns how many booted sandboxes wait for a trial."""
        return self._pool.ready_sandboxes()

    def _interpreter(self, evaluator: Evaluator) -> str:
        """Returns the interpreter of a problem; without isolation, none is made for minutes."""
        if self._environments.missing(evaluator):
            isolation = self._pool.isolation()
            if not (isolation["own_root"] or self._environments.unisolated):
                raise not_isolated("; ".join(isolation["reasons"]) or "namespaces cannot be had")
        return self._environments.interpreter(evaluator)

    def _start(self, job: Job, numpy: bool) -> WarmSandbox:
        base, python = self._environments.python, self._interpreter(job.evaluator)
        group = self._cgroup(job.limits)
        scratch = _made_folder()
        connection = _PipeConnection(base, scratch, group)
        settings = BootSettings(
            "process",
            scratch.folder,
            self._levels,
            connection.counters(),
            random.randrange(200_000),
            self._boot_seconds,
            self._unbounded_processes,
            self._trials_per_evaluator,
            "" if python == base else python,
            self._environments.unisolated,
            self._engine,
        )
        return WarmSandbox(connection, settings, job.evaluator, job.mode, job.limits, numpy)

    def _cgroup(self, limits: Limits) -> Cgroup | None:
        """Returns a cgroup for a sandbox; None where this user may make none."""
        if self._cgroups is None:
            return None
        try:
            return cgroup.make(self._cgroups, sandbox_memory_mib(limits) << 20)
        except OSError as error:
            raise Unavailable(f"a sandbox's cgroup cannot be made: {error}") from error


def _made_folder() -> LockedFolder:
    try:
        return LockedFolder(_FOLDER)
    except OSError as error:
        raise Unavailable(f"a sandbox's folder cannot be made: {error}") from error


def _kill_tree(pid: int) -> None:
    """Kills a zygote that does not end, after all that it should have ended.

    Without namespaces the kernel does not end them with it.  A stopped zygote grants no fork.
    """
    with contextlib.suppress(psutil.NoSuchProcess):
        zygote = psutil.Process(pid)
        zygote.suspend()
        for _ in range(_SWEEPS):
            below = [child for child in zygote.children(recursive=True) if _kill(child)]
            if not below:
                break
            psutil.wait_procs(below, timeout=_SWEEP_SECONDS)
        zygote.kill()


def _kill(process: psutil.Process) -> bool:
    """Kills a process; returns whether it was still there to be killed."""
    with contextlib.suppress(psutil.NoSuchProcess):
        if process.status() != psutil.STATUS_ZOMBIE:
            process.kill()
            return True
    return False


class _PipeConnection:
    """A sandbox at the other end of two pipes."""

    def __init__(self, python: str, scratch: LockedFolder, group: Cgroup | None) -> None:
        self._scratch = scratch
        self._group = group
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the sandbox
        try:
            self._child = subprocess.Popen(
                [python, "-B", "-s", "-c", BOOTSTRAP],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env={**ENVIRONMENT, "PATH": _PATH},
                cwd="/",
                # An interrupt from the terminal must reach the worker alone.
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            self._remove()
            raise Unavailable(f"the sandbox's interpreter did not start: {error}") from error
        if group is not None:
            # The child may have ended already, which its streams report.
            with contextlib.suppress(OSError):
                # The child has started no process yet, because it waits for the harness.
                group.take(self._child.pid)
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._to, self._from = self._child.stdin.fileno(), self._child.stdout.fileno()
        os.set_blocking(self._to, False)
        os.set_blocking(self._from, False)
        self._interrupted = os.eventfd(0)

    def send(self, parts: Sequence[bytes], deadline: float) -> None:
        for part in parts:
            view = memoryview(part)
            while view:
                self._wait(self._to, select.POLLOUT, deadline)
                try:
                    view = view[os.write(self._to, view) :]
                except BlockingIOError:
                    continue
                except OSError as error:
                    raise SandboxLost("the sandbox has ended") from error

    def receive(self, size: int, deadline: float) -> bytes:
        received = bytearray()
        while len(received) < size:
            self._wait(self._from, select.POLLIN, deadline)
            try:
                piece = os.read(self._from, min(size - len(received), 1 << 20))
            except BlockingIOError:
                continue
            if not piece:
                raise SandboxLost("the sandbox has ended")
            received += piece
        return bytes(received)

    def _wait(self, fd: int, event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(fd, event)
        poll.register(self._interrupted, select.POLLIN)
        # What came while this process was itself held up is read also after the deadline.
        ready = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
        if not ready:
            raise SandboxOverdue("the sandbox does not answer")
        if any(each == self._interrupted for each, _ in ready):
            raise SandboxLost("the trial was interrupted")

    def interrupt(self) -> None:
        os.eventfd_write(self._interrupted, 1)

    def silent(self, seconds: float = 0.0) -> bool:
        poll = select.poll()
        poll.register(self._from, select.POLLIN)
        poll.register(self._interrupted, select.POLLIN)
        return not poll.poll(seconds * 1000)

    def outrun(self) -> bool:
        # The harness ends a crowd of processes within its five seconds, before it answers.
        return False

    def check(self) -> None:
        """Nothing lies between a worker and its child process."""

    def loss(self) -> Loss:
        starved = self._group is not None and self._group.starved()
        return Loss.MEMORY if starved else Loss.UNKNOWN

    def counters(self) -> tuple[str, ...]:
        """Returns where the sandbox's zygote reads what was ended for want of memory."""
        return () if self._group is None else (str(self._group.counter),)

    def error_output(self) -> str:
        if self._errors.closed:
            return ""
        end = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, end - _ERROR_OUTPUT_BYTES))
        return self._errors.read().decode("utf-8", "replace").strip()

    def close(self) -> None:
        if self._errors.closed:
            return
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        with contextlib.suppress(OSError):
            # The zygote then ends its processes, and itself last.
            self._child.stdin.close()
        try:
            self._child.wait(_ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            _kill_tree(self._child.pid)
            self._child.wait()
        self._child.stdout.close()
        os.close(self._interrupted)
        self._remove()

    def _remove(self) -> None:
        self._errors.close()
        self._scratch.remove()
        if self._group is not None:
            self._group.remove()
