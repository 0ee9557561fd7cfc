"""Virtual environments for problems that bring dependencies, where there is no engine."""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from app.adapters.sandbox.dependencies import (
    DOCKERFILE,
    Dependencies,
    failed,
    from_dockerfile,
    from_requirements,
)
from app.adapters.sandbox.images import ShowProgress, no_progress
from app.domain.problem import Evaluator, EvaluatorBroken
from app.ports.protocols import Unavailable

_ALWAYS = ("numpy", "scipy")  # as in the default image
_COMPLETE = "evoqueue-complete"
_LOOKING_SECONDS = 0.5
_REMEMBERED_SECONDS = 60.0
_PASSED_ON = ("PATH", "HOME", "TMPDIR", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE")
_PASSED_ON_PREFIXES = ("PIP_", "XDG_", "REQUESTS_")


def default_folder() -> Path:
    """Returns the default folder of environments, in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(cache) if cache else Path.home() / ".cache") / "evoqueue" / "environments"


class Environments:
    """Virtual environments in one folder, each made once for all workers of the machine.

    Args:
      python: The interpreter they are made with, and that of problems without dependencies.
      folder: Where they are kept, by digest; they are removed by hand only.
      show_progress: Gets the progress of an installation.
      build_seconds: Longest time an installation may take.
    """

    def __init__(
        self,
        python: str = sys.executable,
        *,
        folder: Path | None = None,
        show_progress: ShowProgress = no_progress,
        build_seconds: float = 1800.0,
    ) -> None:
        self._python = python
        self._folder = default_folder() if folder is None else folder.absolute()
        self._show_progress = show_progress
        self._build_seconds = build_seconds
        self._known: dict[str, str] = {}
        self._broken: dict[str, tuple[float, EvaluatorBroken]] = {}
        self._building = threading.Lock()

    def interpreter(self, evaluator: Evaluator) -> str:
        """Returns the interpreter of a problem's sandboxes; it may take minutes once.

        An image that the problem names is for containers, and is ignored here.

        Raises:
          EvaluatorBroken: The dependencies cannot be installed, or only into an image.
          Unavailable: The installation takes too long.
        """
        if evaluator.image:
            return self._python
        if evaluator.digest not in self._known:
            with self._building:
                if evaluator.digest not in self._known:
                    self._known[evaluator.digest] = self._ensured(evaluator)
        return self._known[evaluator.digest]

    def _ensured(self, evaluator: Evaluator) -> str:
        wanted = from_requirements(evaluator.files)
        if wanted is None:
            if from_dockerfile(evaluator.files) is not None:
                raise EvaluatorBroken(
                    f"the problem's {DOCKERFILE} needs Docker, and programs run as child processes "
                    f"here. Start Docker, or put what Python packages it needs into "
                    f"requirements.txt, or set sandbox.image to go without"
                )
            return self._python
        digest = wanted.digest(_version(self._python))
        home = self._folder / digest
        at, error = self._broken.get(digest, (0.0, None))
        if error is not None and time.monotonic() - at < _REMEMBERED_SECONDS:
            raise error
        try:
            self._make_once(wanted, home)
        except EvaluatorBroken as caught:
            self._broken[digest] = (time.monotonic(), caught)
            raise
        except OSError as error_of_system:
            raise Unavailable(f"no environment can be made in {home}: {error_of_system}") from (
                error_of_system
            )
        return str(home / "bin" / "python")

    def _make_once(self, wanted: Dependencies, home: Path) -> None:
        if (home / _COMPLETE).exists():
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._locked(home):
            if (home / _COMPLETE).exists():
                return
            shutil.rmtree(home, ignore_errors=True)  # what a killed worker left unfinished
            self._make(wanted, home)
            (home / _COMPLETE).touch()

    @contextlib.contextmanager
    def _locked(self, home: Path) -> Iterator[None]:
        """Holds a lock that the system gives back if this process is killed."""
        deadline = time.monotonic() + self._build_seconds
        waiting = False
        with open(f"{home}.lock", "w") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if not waiting:
                        self._show_progress(f"sandbox: another worker makes {home}; waiting for it")
                    waiting = True
                if time.monotonic() > deadline:
                    raise Unavailable(f"another worker still makes {home}")
                time.sleep(_LOOKING_SECONDS)
            yield

    def _make(self, wanted: Dependencies, home: Path) -> None:
        log = Path(f"{home}.log")
        self._show_progress(
            f"sandbox: making {home} from the problem's {wanted.entry}; its output goes to {log}"
        )
        began = time.monotonic()
        deadline = began + self._build_seconds
        output: list[str] = []
        source = home / "source"
        steps = [
            [self._python, "-m", "venv", "--clear", str(home)],
            [
                *(str(home / "bin" / "python"), "-m", "pip", "install"),
                *("--disable-pip-version-check", "--progress-bar", "off"),
                *(*_ALWAYS, "-r", wanted.entry),
            ],
        ]
        with log.open("w", encoding="utf-8", errors="replace") as file:
            for number, step in enumerate(steps):
                ended = self._run(step, source if number else None, deadline, output, file)
                if ended != 0:
                    shutil.rmtree(home, ignore_errors=True)
                    raise failed(wanted.entry, f"an environment of {self._python}", output)
                if not number:
                    _write(wanted, source)
        self._show_progress(f"sandbox: made {home} in {time.monotonic() - began:.0f} s")

    def _run(
        self,
        command: list[str],
        cwd: Path | None,
        deadline: float,
        output: list[str],
        log: TextIO,
    ) -> int:
        """Runs one step of an installation; returns its exit status.

        What it prints goes to the log, and the last lines also to `output`.
        """
        with subprocess.Popen(
            command,
            cwd=cwd,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as step:
            overdue = threading.Timer(max(0.0, deadline - time.monotonic()), step.kill)
            overdue.start()
            try:
                assert step.stdout is not None
                for line in step.stdout:
                    output.append(line.rstrip())
                    log.write(f"{output[-1]}\n")
                    log.flush()
                    del output[:-100]
                ended = step.wait()
            finally:
                overdue.cancel()
                step.kill()
        if time.monotonic() > deadline:
            raise Unavailable(f"an installation takes more than {self._build_seconds:g} s")
        return ended


def _write(wanted: Dependencies, folder: Path) -> None:
    for name, contents in wanted.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents)


def _version(python: str) -> str:
    """Returns the version and the prefix of an interpreter.

    Raises:
      Unavailable: It does not start.
    """
    text = "import sys; print(sys.version, sys.base_prefix)"
    try:
        done = subprocess.run([python, "-c", text], capture_output=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"the sandbox's interpreter did not start: {error}") from error
    return done.stdout.decode()


def _environment() -> dict[str, str]:
    """Returns what an installation sees of the environment: how to reach a registry, no keys."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in _PASSED_ON
        or name.startswith(_PASSED_ON_PREFIXES)
        or name.lower().endswith("_proxy")
    }
