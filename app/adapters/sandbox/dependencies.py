"""The dependencies of a problem, from the files in its folder."""

import hashlib
import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from app.domain.problem import EvaluatorBroken
from app.domain.secrets import redacted

DOCKERFILE, REQUIREMENTS = "Dockerfile", "requirements.txt"

_REFERS = re.compile(r"(?:-r|-c|--requirement|--constraint)[\s=]*(?P<path>\S+)")
_LOCAL = re.compile(
    r"(?:(?:-e|--editable|-f|--find-links)[\s=]+)?(?:[\w.\[\],-]+\s*@\s*)?(?:file:)?"
    r"(?P<path>\.{0,2}/?[^\s;\[#]*)"
)
_LAST_LINES = 12


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What is to be installed before a problem's evaluator can be imported.

    Attributes:
      entry: `DOCKERFILE` or `REQUIREMENTS`.
      files: The entry and what it may refer to, by path relative to the problem's folder.
    """

    entry: str
    files: Mapping[str, bytes]

    def digest(self, base: str) -> str:
        """Returns what names the result of installing this on `base`."""
        parts = {name: hashlib.sha256(text).hexdigest() for name, text in self.files.items()}
        named = json.dumps([base, self.entry, parts], sort_keys=True)
        return hashlib.sha256(named.encode()).hexdigest()[:32]


def from_dockerfile(files: Mapping[str, bytes]) -> Dependencies | None:
    """Returns what an image is built from; None where the problem has no Dockerfile.

    The whole folder is what a Dockerfile may copy from.
    """
    return Dependencies(DOCKERFILE, files) if DOCKERFILE in files else None


def from_requirements(files: Mapping[str, bytes]) -> Dependencies | None:
    """Returns what `pip install -r` needs; None where nothing is required.

    Raises:
      EvaluatorBroken: A line refers to a file that the problem's folder does not hold.
    """
    if REQUIREMENTS not in files:
        return None
    needed: dict[str, bytes] = {}
    required = _collect(REQUIREMENTS, files, needed)
    return Dependencies(REQUIREMENTS, needed) if required else None


def _collect(name: str, files: Mapping[str, bytes], needed: dict[str, bytes]) -> bool:
    """Adds a requirements file and what it refers to; returns whether it requires anything."""
    if name in needed:
        return False
    needed[name] = files[name]
    required = False
    for number, line in _lines(files[name]):
        nested = _REFERS.fullmatch(line)
        path = nested["path"] if nested else _local(line)
        if path is None:
            required = required or not line.startswith("-")
            continue
        # As in pip, `-r` is relative to its file, and other paths to the working directory.
        base = posixpath.dirname(name) if nested else ""
        target = posixpath.normpath(posixpath.join(base, path))
        below = {known for known in files if target == "." or known.startswith(f"{target}/")}
        if nested and target in files:
            required = _collect(target, files, needed) or required
        elif not nested and (below or target in files):
            needed.update({known: files[known] for known in below | ({target} & set(files))})
            required = True
        else:
            raise EvaluatorBroken(
                f"{path!r} is not in the problem's folder",
                where=f"{name}, line {number}",
                remedy="Put it there, or name an image that has it with sandbox.image",
            )
    return required


def _lines(text: bytes) -> Iterator[tuple[int, str]]:
    """Yields the lines that are not empty, with their numbers and without comments."""
    whole = text.decode("utf-8", "replace").replace("\\\n", " ")
    for number, line in enumerate(whole.splitlines(), 1):
        text_of_line = re.sub(r"(^|\s)#.*$", "", line).strip()
        if text_of_line:
            yield number, text_of_line


def _local(line: str) -> str | None:
    """Returns the path that a line of a requirements file installs from; None for a name."""
    match = _LOCAL.match(line)
    path = match["path"] if match else ""
    editable = line.startswith(("-e", "--editable", "-f", "--find-links"))
    local = path.startswith((".", "/")) or path.endswith((".whl", ".tar.gz", ".zip")) or editable
    remote = re.search(r"\b(?:https?|git\+\w+|ssh)://", line) is not None
    return path if local and path and not remote else None


def failed(entry: str, where: str, lines: list[str]) -> EvaluatorBroken:
    """Returns the error of an installation that failed.

    Args:
      entry: The problem's file with the dependencies.
      where: What it was to be installed into.
      lines: What the installation printed.
    """
    printed = redacted("\n".join(line for line in lines if line.strip()))
    last = "\n  ".join(printed.splitlines()[-_LAST_LINES:])
    return EvaluatorBroken(
        f"the dependencies cannot be installed into {where}. It ended with:\n  {last}",
        where=entry,
        remedy=f"Correct {entry}, or name a ready image with sandbox.image",
    )
