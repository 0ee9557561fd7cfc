"""Virtual environments for problems that bring dependencies, where there is no engine."""

import contextlib
import fcntl
import functools
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

from app.adapters.sandbox.dependencies import (
    DOCKERFILE,
    Dependencies,
    failed,
    from_dockerfile,
    from_requirements,
)
from app.adapters.sandbox.installation import Installation, InstallationFailed, Output
from app.domain.problem import Evaluator, EvaluatorBroken
from app.ports.protocols import Unavailable

ShowProgress: TypeAlias = Callable[[str], None]
"""Shows a person one line of progress."""

_LOOKING_SECONDS = 0.5
_REMEMBERED_SECONDS = 60.0
_PREPARING_SECONDS = 300.0
_UNPACK_PIP = """
import ensurepip, pathlib, sysconfig, zipfile
wheels = [*(pathlib.Path(ensurepip.__file__).parent / "_bundled").glob("*.whl")]
for wheel in wheels:
    zipfile.ZipFile(wheel).extractall(sysconfig.get_paths()["purelib"])
raise SystemExit(not any(wheel.name.startswith("pip-") for wheel in wheels))
"""
"""Does what `ensurepip` does in a tenth of its time: it installs these wheels by pip, and compiles
every module of them."""


def no_progress(_: str) -> None:
    """Shows nothing."""


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
      hosts: Hosts beside the package index that an installation may reach.
      unisolated: Whether packages are installed, and used, where nothing isolates what they run.
    """

    def __init__(
        self,
        python: str = sys.executable,
        *,
        folder: Path | None = None,
        show_progress: ShowProgress = no_progress,
        build_seconds: float = 1800.0,
        hosts: tuple[str, ...] = (),
        unisolated: bool = False,
    ) -> None:
        self.python = python
        self.unisolated = unisolated
        self._hosts = hosts
        self._folder = default_folder() if folder is None else folder.absolute()
        self._show_progress = show_progress
        self._build_seconds = build_seconds
        self._known: dict[str, str] = {}
        self._images: set[str] = set()
        self._broken: dict[str, tuple[float, EvaluatorBroken]] = {}
        self._building = threading.Lock()

    def interpreter(self, evaluator: Evaluator) -> str:
        """Returns the interpreter of a problem's sandboxes; it may take minutes once.

        An image that the problem names is for containers, and has no effect here, which is said.

        Raises:
          EvaluatorBroken: The dependencies cannot be installed, or only into an image.
          Misconfigured: This machine isolates no installation.
          Unavailable: The installation takes too long.
        """
        if evaluator.image:
            self._say_without(evaluator.image)
            return self.python
        if evaluator.digest not in self._known:
            with self._building:
                if evaluator.digest not in self._known:
                    self._known[evaluator.digest] = self._ensure(evaluator)
        return self._known[evaluator.digest]

    def _say_without(self, image: str) -> None:
        with self._building:
            if image not in self._images:
                self._images.add(image)
                self._show_progress(
                    f"sandbox: the image {image} has no effect on child processes: programs run "
                    f"with the interpreter {self.python}; sandbox.backend=docker uses the image"
                )

    def missing(self, evaluator: Evaluator) -> bool:
        """Returns whether `interpreter` would make an environment.

        Raises:
          Unavailable: The interpreter that it would be made with does not start.
        """
        if evaluator.image or evaluator.digest in self._known:
            return False
        wanted = from_requirements(evaluator.files)
        return wanted is not None and not _complete(
            self._folder / wanted.digest(_version(self.python))
        )

    def _ensure(self, evaluator: Evaluator) -> str:
        wanted = from_requirements(evaluator.files)
        if wanted is None:
            if from_dockerfile(evaluator.files) is not None:
                raise EvaluatorBroken(
                    "it needs Docker, and programs run as child processes here",
                    where=DOCKERFILE,
                    remedy="Start Docker, or put what Python packages it needs into "
                    "requirements.txt, or set sandbox.image to go without",
                )
            return self.python
        digest = wanted.digest(_version(self.python))
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
        if _complete(home):
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._lock(home):
            if _complete(home):
                return
            # A killed worker may have left an unfinished environment.
            shutil.rmtree(home, ignore_errors=True)
            self._make(wanted, home)
            _mark(home).touch()

    @contextlib.contextmanager
    def _lock(self, home: Path) -> Iterator[None]:
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
        with log.open("wb") as file:
            output = Output(file)
            try:
                _prepare(self.python, home)
                _write(wanted, home / "source")
                Installation(
                    self.python,
                    home,
                    began + self._build_seconds,
                    hosts=self._hosts,
                    unisolated=self.unisolated,
                ).run(("-r", wanted.entry), output)
            except InstallationFailed as error:
                shutil.rmtree(home, ignore_errors=True)
                output.add(str(error))
                where = f"an environment of {self.python}"
                raise failed(wanted.entry, where, output.last_lines) from error
            except BaseException:
                shutil.rmtree(home, ignore_errors=True)
                raise
        self._show_progress(f"sandbox: made {home} in {time.monotonic() - began:.0f} s")


def _complete(home: Path) -> bool:
    return _mark(home).exists() and home.is_dir()


def _mark(home: Path) -> Path:
    """Returns the file that exists once an environment does, where no installation can write."""
    return Path(f"{home}.complete")


def _prepare(python: str, home: Path) -> None:
    """Makes a virtual environment with pip.

    Raises:
      InstallationFailed: The interpreter cannot.
    """
    venv = (python, "-m", "venv", "--clear", str(home))
    try:
        _run(*venv, "--without-pip")
        try:
            _run(str(home / "bin" / "python"), "-c", _UNPACK_PIP)
        except subprocess.CalledProcessError:
            # Some distributions keep their wheels elsewhere.
            _run(*venv)
    except subprocess.CalledProcessError as error:
        raise InstallationFailed((error.stdout + error.stderr).decode("utf-8", "replace")) from None


def _run(*command: str) -> None:
    subprocess.run(command, capture_output=True, check=True, timeout=_PREPARING_SECONDS)


def _write(wanted: Dependencies, folder: Path) -> None:
    for name, contents in wanted.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents)


@functools.cache
def packages(python: str) -> str:
    """Returns the version of an interpreter, and a digest of the packages that it imports.

    Raises:
      Unavailable: It does not start.
    """
    text = (
        "import hashlib, importlib.metadata as m, sys; "
        "names = sorted(f'{d.name} {d.version}' for d in m.distributions()); "
        "print(sys.version, hashlib.sha256(repr(names).encode()).hexdigest())"
    )
    return _printed(python, text)


def _version(python: str) -> str:
    """Returns the version and the prefix of an interpreter.

    Raises:
      Unavailable: It does not start.
    """
    return _printed(python, "import sys; print(sys.version, sys.base_prefix)")


def _printed(python: str, text: str) -> str:
    try:
        done = subprocess.run([python, "-c", text], capture_output=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"the sandbox's interpreter did not start: {error}") from error
    return done.stdout.decode()
