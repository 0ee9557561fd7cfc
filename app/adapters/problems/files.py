"""Files of a problem: read from the disk within bounds, and as text; nothing is run or imported."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.adapters.snapshots import NO_SOURCES, walk
from app.domain.problem import ProblemError

MAX_BYTES = 64 * 1024 * 1024
MAX_FILES = 4_000

DATA_FOLDER = "data"

_MOUNT = (
    "Keep large data outside the problem's folder, and name it with --set problem.mounts=PATH in "
    "place of problem.data: it may have any size, is not stored, and is at `data/NAME` beside the "
    "evaluator, where NAME is the path's last part."
)


@dataclass(frozen=True, slots=True)
class Source:
    """A problem as it was read from the disk.

    Attributes:
      name: Its name for people.
      files: Relative POSIX path to contents, without secrets.
      options: The options that say which file is which.
    """

    name: str
    files: dict[str, bytes]
    options: dict[str, Any]

    def add(self, name: str, contents: bytes) -> None:
        """Adds a file.

        Raises:
          ProblemError: There is another file of that name.
        """
        if self.files.setdefault(name, contents) != contents:
            raise ProblemError(
                "two different files would have the same place in the problem",
                where=name,
                remedy="Rename one of them.",
            )


def refuse_configuration(config: Path | None, what: str) -> None:
    """Raises a ProblemError, which begins with `what`, where a configuration was given."""
    if config is not None:
        raise ProblemError(
            what,
            where=str(config),
            remedy="Leave --config out, or give a file of Evoqueue's settings.",
        )


def tree(folder: Path) -> dict[str, bytes]:
    """Returns the folder's files by relative POSIX path, in path order.

    Left out: caches, version control, virtual environments, the output of runs, `.env` files
    (they hold secrets), links to folders, and whatever is not a regular file.

    Raises:
      ProblemError: The folder is too large, or a file cannot be read.
    """
    sizes: dict[str, int] = {}
    for name, path in _walk(folder):
        sizes[name] = path.stat().st_size
        if len(sizes) > MAX_FILES or sum(sizes.values()) > MAX_BYTES:
            raise ProblemError(
                "the folder is too large to be a problem",
                where=str(folder),
                value=f"more than {MAX_FILES} files or {MAX_BYTES // 1024**2} MiB",
                remedy="Keep initial program, evaluator and what they need in a folder of their "
                f"own. {_MOUNT}",
            )
    files = {name: content(folder / name) for name in sorted(sizes)}
    check_size(files)
    return files


def check_size(files: Mapping[str, bytes]) -> None:
    """Refuses more than the ledger and the sandbox should carry.

    Raises:
      ProblemError: Too many files, or too many bytes in them.
    """
    total = sum(map(len, files.values()))
    if len(files) > MAX_FILES or total > MAX_BYTES:
        raise ProblemError(
            "the problem is too large",
            where="PROBLEM",
            value=f"{len(files)} files, {total / 1024**2:.1f} MiB",
            remedy=f"A problem has at most {MAX_FILES} files and {MAX_BYTES // 1024**2} MiB. "
            f"{_MOUNT}",
        )


def _walk(folder: Path) -> Iterator[tuple[str, Path]]:
    try:
        for relative, entry in walk(folder, NO_SOURCES):
            name = entry.name
            secret = name == ".env" or name.startswith(".env.")
            if secret or name.endswith((".pyc", "~")) or not Path(entry.path).is_file():
                continue
            if not relative.isprintable():
                raise ProblemError(
                    "a file name cannot be stored",
                    where=str(folder),
                    value=ascii(relative),
                    remedy="Rename it, with letters that can be printed.",
                )
            yield relative, Path(entry.path)
    except OSError as error:
        raise _unreadable(Path(error.filename), error) from error


def content(path: Path, too_large: str = _MOUNT) -> bytes:
    """Returns a file's bytes.

    Args:
      path: The file.
      too_large: The remedy for a file that is too large.

    Raises:
      ProblemError: It cannot be read, or is larger than a whole problem may be.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ProblemError(
                "the file is too large",
                where=str(path),
                value=f"more than {MAX_BYTES // 1024**2} MiB",
                remedy=too_large,
            )
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> ProblemError:
    return ProblemError(
        "cannot be read",
        where=str(path),
        value=error.strerror or type(error).__name__,
        remedy="Check the permissions of the file.",
    )


def decoded(contents: bytes, where: str) -> str:
    """Returns a file's text; a byte order mark is dropped.

    Raises:
      ProblemError: The file is not UTF-8, or holds NUL bytes.
    """
    try:
        text = contents.decode("utf-8-sig")
        bad = text.find("\x00")
    except UnicodeDecodeError as error:
        text, bad = "", error.start
    if bad >= 0:
        raise ProblemError(
            "not a text in UTF-8",
            where=where,
            value=f"at {bad}: {contents[bad : bad + 8]!r}",
            remedy="Save the file as UTF-8 text.",
        )
    return text


def source_text(contents: bytes, where: str) -> str:
    """Returns the text of a program or of an evaluator.

    Raises:
      ProblemError: The file is empty, or not UTF-8 text.
    """
    text = decoded(contents, where)
    if not text.strip():
        raise ProblemError("the file is empty", where=where, remedy="Fill it, or remove it.")
    return text


def data_files(option: str | Sequence[str]) -> dict[str, bytes]:
    """Returns the files that `problem.data` names, as `data/NAME`, in the order given.

    Args:
      option: Paths of files or folders; one text may hold several, separated by commas.

    Raises:
      ProblemError: A path does not exist, is empty, or two files would share a name.
    """
    texts = option.split(",") if isinstance(option, str) else list(map(str, option))
    gathered: dict[str, bytes] = {}
    for path in (Path(text.strip()).expanduser() for text in texts if text.strip()):
        for name, contents in _files_at(path).items():
            if ":" in name:
                raise ProblemError(
                    "the name of a data file has a colon, which separates names",
                    where="problem.data",
                    value=name,
                    remedy="Rename it.",
                )
            if gathered.setdefault(f"{DATA_FOLDER}/{name}", contents) != contents:
                raise ProblemError(
                    "two data files have the same name",
                    where="problem.data",
                    value=name,
                    remedy="Rename one, or put both into one folder and name the folder.",
                )
    if not gathered:
        raise ProblemError(
            "no data file was found",
            where="problem.data",
            value=str(option),
            remedy="Name a file, a folder with files, or several separated by commas.",
        )
    return gathered


def existing(mounts: Mapping[str, str], files: Mapping[str, bytes]) -> Mapping[str, str]:
    """Returns the data that `problem.mounts` names, if it is there.

    Raises:
      ProblemError: A path does not exist, or a file of the problem has the place of its name.
    """
    for name, path in mounts.items():
        if not os.path.exists(path):
            raise ProblemError(
                "no such file or folder",
                where="problem.mounts",
                value=path,
                remedy="Check the spelling of the path. It must exist here and on every worker.",
            )
        place = f"{DATA_FOLDER}/{name}"
        if any(file == place or file.startswith(f"{place}/") for file in files):
            raise ProblemError(
                "a file of the problem has the same place",
                where="problem.mounts",
                value=place,
                remedy="Write NAME=PATH, with another name.",
            )
    return mounts


def _files_at(path: Path) -> dict[str, bytes]:
    if path.is_dir():
        folder = path.resolve().name
        return {f"{folder}/{name}": contents for name, contents in tree(path).items()}
    if not path.is_file():
        raise ProblemError(
            "no such file or folder",
            where="problem.data",
            value=str(path),
            remedy="Check the spelling of the path.",
        )
    return {path.name: content(path)}
