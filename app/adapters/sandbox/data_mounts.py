"""Data that trials read where it lies: `Evaluator.mounts`, on the worker's machine."""

import hashlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn

from app.domain.problem import Evaluator, EvaluatorBroken

OPTION = "problem.mounts"
_FORBIDDEN = ("/", "/proc", "/sys", "/dev")
_KNOWN_SECONDS = 60.0


def located(evaluator: Evaluator) -> dict[str, str]:
    """Returns where the data of an evaluator lies on this machine, by name, without links.

    Raises:
      EvaluatorBroken: A path does not exist here, or is of the system.
    """
    return {name: _real(path) for name, path in evaluator.mounts.items()}


def _real(path: str) -> str:
    found = os.path.realpath(path)
    if any(_lies_in(found, place) for place in _FORBIDDEN):
        refuse(path, "it belongs to the system", "Name a folder or a file with nothing but data")
    if not (os.path.isdir(found) or os.path.isfile(found)):
        refuse(path, "it is not on this machine", ON_EVERY_MACHINE)
    return found


ON_EVERY_MACHINE = (
    "Have it under this path on the machine of every worker and, with Docker, of the engine; a "
    "worker in a container needs it as a volume with the same path (docs/deployment.md)"
)


def refuse(path: str, why: str, remedy: str) -> NoReturn:
    """Raises EvaluatorBroken about the data at a path."""
    raise EvaluatorBroken(f"the data at {path} cannot be used: {why}", where=OPTION, remedy=remedy)


def _lies_in(path: str, place: str) -> bool:
    return path == place or (place != "/" and path.startswith(place + "/"))


@dataclass(slots=True)
class DataIdentities:
    """Digests of data by name, size and time of each file, which are looked up once a minute."""

    _known: dict[str, tuple[float, str]] = field(default_factory=dict)

    def of(self, evaluator: Evaluator) -> str:
        """Returns a digest of the data of an evaluator; "" where it has none.

        Raises:
          EvaluatorBroken: See `located`.
        """
        return " ".join(f"{name} {self._of(path)}" for name, path in located(evaluator).items())

    def _of(self, path: str) -> str:
        now = time.monotonic()
        until, digest = self._known.get(path, (now, ""))
        if until <= now:
            digest = _digest(path)
            self._known[path] = (time.monotonic() + _KNOWN_SECONDS, digest)
        return digest


def _digest(top: str) -> str:
    whole = hashlib.sha256()
    for name, status in _entries(top):
        line = f"{name}\0{status.st_size}\0{status.st_mtime_ns}\0"
        whole.update(line.encode("utf-8", "surrogateescape"))
    return whole.hexdigest()


def _entries(top: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yields each file by its path below `top`, in order."""
    if not os.path.isdir(top):
        yield "", os.stat(top)
        return
    for folder, names, files in os.walk(top):
        names.sort()
        for name in sorted(files):
            path = os.path.join(folder, name)
            yield os.path.relpath(path, top), os.lstat(path)
