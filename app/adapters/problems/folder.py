"""Finding and reading the files of a problem on disk.

Nothing here runs, imports or compiles them.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.adapters.problems.errors import ProblemError

MAX_BYTES = 64 * 1024 * 1024
MAX_FILES = 2_000

EVALUATOR = "evaluator.py"
CONFIGS = ("config.yaml", "config.yml")
MARKER = b"EVOLVE-BLOCK-START"

_LEFT_OUT = frozenset(
    {
        "__pycache__",
        ".git",
        ".hg",
        ".svn",
        ".venv",
        "venv",
        "node_modules",
        ".evoq",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".ipynb_checkpoints",
        "runs",
        "checkpoints",
        "openevolve_output",
    }
)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the parts of a problem lie.

    Attributes:
      folder: What surrounds the evaluator, and goes into the sandbox with it.
      config: None where there is none.
    """

    folder: Path
    initial: Path
    evaluator: Path
    config: Path | None


def find(paths: Sequence[Path], config: Path | None = None) -> Layout:
    """Returns the layout of `folder`, of `initial_program` or of `initial_program evaluator`.

    Raises:
      ProblemError: A path does not exist, or it is not clear which file is which.
    """
    for path in [*paths, *([config] if config else [])]:
        if not path.exists():
            raise ProblemError(
                "no such file or folder", where=str(path), remedy="Check the spelling of the path."
            )
    match list(paths):
        case [folder] if folder.is_dir():
            evaluator = folder / EVALUATOR
            initial = None
        case [only] if only.name == EVALUATOR or only.name in CONFIGS:
            folder = only.parent
            evaluator = folder / EVALUATOR
            initial = None
        case [initial]:
            folder = initial.parent
            evaluator = folder / EVALUATOR
        case [initial, evaluator] if initial.is_file() and evaluator.is_file():
            folder = evaluator.parent
        case _:
            raise ProblemError(
                "not a problem",
                where="PROBLEM",
                value=" ".join(map(str, paths)),
                remedy="Give one folder, or an initial program and an evaluator.",
            )
    if not evaluator.is_file():
        raise ProblemError(
            "the evaluator is missing",
            where=str(evaluator),
            remedy=f"Add {EVALUATOR} with a function `evaluate(program_path)`.",
        )
    found = config or next((folder / name for name in CONFIGS if (folder / name).is_file()), None)
    return Layout(folder, initial or _initial_program(folder), evaluator, found)


def _initial_program(folder: Path) -> Path:
    """Returns `initial_program.*`, else the one file with markers, else `initial*.*`."""
    files = sorted(
        path
        for path in folder.iterdir()
        if path.is_file()
        and path.name not in (EVALUATOR, *CONFIGS)
        and not path.name.endswith(("~", ".pyc", ".bak"))
    )
    named = [path for path in files if path.stem == "initial_program"]
    marked = [path for path in files if path.suffix != ".md" and MARKER in content(path)]
    alike = [path for path in files if path.name.startswith("initial")]
    for found in ([path for path in named if path in marked], named, marked, alike):
        if len(found) == 1:
            return found[0]
        if found:
            raise ProblemError(
                "several files could be the initial program",
                where=str(folder),
                value=", ".join(path.name for path in found),
                remedy="Name the one that is meant, followed by the evaluator.",
            )
    raise ProblemError(
        "the initial program is missing",
        where=str(folder),
        remedy="Add initial_program.py (any extension), or mark one file with EVOLVE-BLOCK-START.",
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
                remedy="Put initial program, evaluator and what they need into a folder of their "
                "own, and name large inputs with --set problem.data=PATH.",
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
            remedy=f"Keep it within {MAX_FILES} files and {MAX_BYTES // 1024**2} MiB.",
        )


def _walk(folder: Path) -> Iterator[tuple[str, Path]]:
    def refused(error: OSError) -> None:
        raise _unreadable(Path(error.filename), error)

    for base, folders, names in os.walk(folder, onerror=refused):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT)
        for name in sorted(names):
            path = Path(base, name)
            secret = name == ".env" or name.startswith(".env.")
            if secret or name.endswith((".pyc", "~")) or not path.is_file():
                continue
            relative = path.relative_to(folder).as_posix()
            if not relative.isprintable():
                raise ProblemError(
                    "a file name cannot be stored",
                    where=str(folder),
                    value=ascii(relative),
                    remedy="Rename it, with letters that can be printed.",
                )
            yield relative, path


def content(path: Path) -> bytes:
    """Returns a file's bytes.

    Raises:
      ProblemError: It cannot be read, or is larger than a whole problem may be.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ProblemError(
                "the file is too large",
                where=str(path),
                value=f"more than {MAX_BYTES // 1024**2} MiB",
                remedy="Use a smaller file.",
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
