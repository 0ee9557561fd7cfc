"""Celery processes forked from the supervisor, which imports once what each of them needs.

A fresh interpreter spends two seconds of a processor on those imports, in each of three processes.
A forked one has them, shares their memory with the others, and begins at once.  Celery starts no
thread and opens no connection before its command runs, so nothing but modules is shared.
"""

import atexit
import gc
import importlib
import os
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from typing import NoReturn

import psutil

from app.embedded.children import ChildProcess, ChildSpec, start_child
from app.embedded.launch import end_with_parent
from app.startup import collect_as_usual

CELERY = "celery"
_MODULES = ("celery.bin.beat", "celery.bin.worker", "workers.tasks")
_INTERPRETER = ("PYTHON", "LD_", "MALLOC_", "GLIBC_", "LC_", "LANG", "TZ", "OTEL_")
"""Beginnings of the variables that take effect when an interpreter starts, or at an import."""


class Imports:
    """The imports of Celery's processes, in a thread beside the start of the servers."""

    def __init__(self) -> None:
        """Imports nothing yet."""
        self._thread = threading.Thread(target=_import, daemon=True)

    def begin(self) -> None:
        """Begins, and does not wait.  Idempotent."""
        if self._thread.ident is None and sys.platform == "linux":
            self._thread.start()

    def can_fork(self, environment: Mapping[str, str]) -> bool:
        """Returns whether a process with this environment can be forked; waits for the imports.

        A process whose interpreter would start differently needs an interpreter of its own.  A
        module that cannot be imported is reported in the log of each process that needs it.
        """
        if sys.platform != "linux" or _of_interpreter(environment) != _of_interpreter(os.environ):
            return False
        self.begin()
        self._thread.join()
        # The garbage collector of a child then visits only the objects that the child made.
        gc.freeze()
        return True


class ForkedProcess(psutil.Process):
    """A forked child, as `app.embedded.children.Process`."""

    def poll(self) -> int | None:
        """Returns the exit status, negative after a signal; None while the process runs."""
        try:
            return self.wait(0)
        except psutil.TimeoutExpired:
            return None

    def send_signal(self, sig: int) -> None:
        """Sends a signal, unless the process has ended."""
        if self.poll() is None:
            super().send_signal(sig)


def fork(spec: ChildSpec) -> ChildProcess:
    """Forks a process for a Celery command; see `app.embedded.children.launch`.

    Raises:
      EmbeddedError: The log or the record cannot be written.
    """
    parent = os.getpid()

    def begin(output: int) -> ForkedProcess:
        pid = os.fork()
        if pid == 0:
            _run_child(parent, spec, output)
        return ForkedProcess(pid)

    return start_child(spec, begin)


def run_celery(command: Sequence[str]) -> NoReturn:
    """Runs `celery -A app worker …` or `celery -A app beat …` in this process.

    `python -m celery` would also import Celery's other commands, and Flower: an eighth of the
    imports of a stack's processes.
    """
    from celery.app.utils import find_app
    from celery.bin.base import CLIContext
    from celery.bin.beat import beat
    from celery.bin.worker import worker

    _, _, application, name, *arguments = command
    {"worker": worker, "beat": beat}[name].main(
        arguments,
        prog_name=name,
        auto_envvar_prefix=f"CELERY_{name.upper()}",
        obj=CLIContext(find_app(application), no_color=False, workdir=None),
    )
    sys.exit()


def _import() -> None:
    for name in _MODULES:
        importlib.import_module(name)


def _run_child(parent: int, spec: ChildSpec, output: int) -> NoReturn:
    """Runs the command in a forked child, which never returns to the supervisor's frames."""
    status: object = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.setsid()
        for source, target in ((os.open(os.devnull, os.O_RDONLY), 0), (output, 1), (output, 2)):
            os.dup2(source, target)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.chdir(spec.folder)
        if spec.environment is not None:
            os.environ.clear()
            os.environ.update(spec.environment)
        # The new environment may name another folder for temporary files.
        tempfile.tempdir = None
        collect_as_usual()
        end_with_parent(parent, int(spec.ending.orphaned))
        run_celery(spec.command)
    except SystemExit as ended:
        status = ended.code or 0
        if isinstance(status, str):
            print(status, file=sys.stderr)
        # The exit functions give back what this process holds; `os._exit` calls none of them.
        atexit._run_exitfuncs()
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status if isinstance(status, int) else 1)


def _of_interpreter(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in environment.items() if name.startswith(_INTERPRETER)}
