"""Celery processes forked from the supervisor, which imports once what each of them needs.

A fresh interpreter spends two seconds of a processor on those imports, in each of three processes.
A forked one has them, shares their memory with the others, and begins at once.  Celery starts no
thread and opens no connection before its command runs, so nothing but modules is shared.
"""

import ctypes
import gc
import importlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from app.embedded.children import ChildProcess, EmbeddedError, Ending, remedy, write_record
from app.embedded.launch import end_with_parent
from app.startup import collect_as_usual

CELERY = "celery"
_MODULES = (
    *("celery.bin.worker", "celery.bin.beat", "celery.apps.beat", "celery.concurrency.thread"),
    *("celery.app.log", "celery.loaders.app", "celery.utils.debug", "celery.worker.pidbox"),
    *("celery.worker.strategy", "kombu.transport.redis", "sqlalchemy.dialects.postgresql.psycopg"),
    *("app.celery", "app.adapters.queue.celery", "app.adapters.store.group_commit"),
    *("app.adapters.store.leases", "app.adapters.store.schema", "app.adapters.store.sql"),
    *("workers.tasks", "workers.lifecycle", "workers.heartbeat"),
)
"""What a worker and beat would import before their first message."""
_INTERPRETER = ("PYTHON", "LD_", "MALLOC_", "GLIBC_", "LC_", "LANG", "TZ", "OTEL_")
"""Beginnings of the variables that take effect when an interpreter starts, or at an import."""
_SIGNALS = {signal.SIGINT, signal.SIGTERM}
_LONGEST_POLL_SECONDS = 0.05


class Forked(BaseException):
    """Leaves the frames of the supervisor in a child that it has forked.

    Their files and sockets are closed on the way, and the child ends as any interpreter does.

    Attributes:
      command: The Celery command to run there.
    """

    def __init__(self, command: Sequence[str]) -> None:
        super().__init__()
        self.command = command


@contextmanager
def _absent(name: str) -> Iterator[None]:
    """Makes a package that is not imported yet an absent one, for modules that do without it.

    Celery's commands compile the grammar of Python, to show programs in colour.
    """
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]  # that is what `import` looks for
    try:
        yield
    finally:
        del sys.modules[name]


class Imports:
    """The imports of Celery's processes, in a thread beside the start of the servers."""

    def __init__(self) -> None:
        """Imports nothing yet."""
        self._thread = threading.Thread(target=self._import, daemon=True)
        self._begun = False
        self._why = ""
        self._ready = False

    def begin(self) -> None:
        """Begins, and does not wait.  Idempotent."""
        if not self._begun and sys.platform == "linux":
            self._begun = True
            self._thread.start()

    def fork(self, environment: Mapping[str, str]) -> bool:
        """Returns whether a process with this environment can be forked; waits for the imports.

        One whose interpreter would itself start otherwise cannot, and none can where the imports
        fail: a fresh interpreter reports that in its log.
        """
        if sys.platform != "linux" or _of_interpreter(environment) != _of_interpreter(os.environ):
            return False
        self.begin()
        self._thread.join()
        if not self._ready and not self._why:
            self._ready = True
            # A child then collects only the objects that it made itself.
            gc.freeze()
        return self._ready

    def _import(self) -> None:
        try:
            with _absent("pygments"):
                importlib.import_module("celery.bin.base")
            for name in _MODULES:
                importlib.import_module(name)
        except Exception:
            # The modules belong to others, and may raise an exception of any class.
            self._why = traceback.format_exc()


def fork(
    name: str,
    command: Sequence[str],
    *,
    folder: Path,
    log: Path,
    record: Path,
    ending: Ending,
    environment: Mapping[str, str],
) -> ChildProcess:
    """Forks a process for a Celery command; see `app.embedded.children.launch`.

    Args:
      name: The process's name in messages and in its record.
      command: `celery` and its arguments.
      folder: The working directory.
      log: Both outputs are appended to this file.
      record: Where the process's identity is kept until it has ended.
      ending: How it will be ended.
      environment: The whole environment of the process.

    Raises:
      EmbeddedError: The log or the record cannot be written.
      Forked: In the child.
    """
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        record.parent.mkdir(parents=True, exist_ok=True)
        parent = os.getpid()
        with log.open("ab") as output:
            signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
            try:
                pid = os.fork()
                if pid == 0:
                    _begin(parent, command, folder, output.fileno(), ending, environment)
            finally:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        write_record(record, name, pid)
    except OSError as error:
        raise EmbeddedError(
            f"cannot start {name} in {folder}: {error}: {remedy(str(error))}"
        ) from error
    return ChildProcess(name, ForkedProcess(pid), record, ending)


def run_celery(command: Sequence[str]) -> NoReturn:
    """Runs `celery -A app worker …` or `celery -A app beat …` in this process.

    As `python -m celery` would, which imports Celery's other commands too, and Flower: an eighth of
    what a stack's processes would import.
    """
    import celery
    from celery.app.utils import find_app
    from celery.bin.base import CLIContext
    from celery.bin.beat import beat
    from celery.bin.worker import worker

    # Celery starts itself again by its first argument.
    sys.argv = [str(Path(celery.__file__).with_name("__main__.py")), *command[1:]]
    _, _, application, name, *arguments = command
    {"worker": worker, "beat": beat}[name].main(
        arguments,
        prog_name=name,
        auto_envvar_prefix=f"CELERY_{name.upper()}",
        obj=CLIContext(find_app(application), no_color=False, workdir=None),
    )
    sys.exit()


class ForkedProcess:
    """A forked child, with what is used of `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._status: int | None = None

    def poll(self) -> int | None:
        """Returns the exit status, negative after a signal; None while the process runs."""
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
        return self._status

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end.

        Raises:
          subprocess.TimeoutExpired: It has not come within so many seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = 0.001
        while (status := self.poll()) is None:
            if deadline is not None and time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_POLL_SECONDS)
        return status

    def send_signal(self, number: signal.Signals) -> None:
        """Sends a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


def _begin(
    parent: int,
    command: Sequence[str],
    folder: Path,
    output: int,
    ending: Ending,
    environment: Mapping[str, str],
) -> NoReturn:
    """Makes a forked child what a fresh process would be; the parent's exceptions are not its."""
    try:
        os.setsid()
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (output, 1), (output, 2)):
            os.dup2(source, target)
        os.close(null)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        # The new environment may name another folder for temporary files.
        tempfile.tempdir = None
        collect_as_usual()
        _show(command)
        end_with_parent(parent, int(ending.orphaned))
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    raise Forked(command)


def _show(command: Sequence[str]) -> None:
    """Shows the command, as far as there is room, in the place of the supervisor's own."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = int(fields[45]), int(fields[46])
    shown = b"\0".join(os.fsencode(word) for word in command)[: end - begin - 1]
    ctypes.memmove(begin, shown.ljust(end - begin, b"\0"), end - begin)


def _of_interpreter(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in environment.items() if name.startswith(_INTERPRETER)}
