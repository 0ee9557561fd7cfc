"""The option `problem.data`: inputs from outside the folder, carried along with it."""

from collections.abc import Sequence
from pathlib import Path

from app.adapters.problems.errors import ProblemError
from app.adapters.problems.folder import content, tree

PREFIX = "data"
VARIABLE = "EVOQ_PROBLEM_DATA"
"""What the evaluator finds the names in: paths relative to its own folder, joined by ":"."""


def gather(option: str | Sequence[str]) -> dict[str, bytes]:
    """Returns the files that `problem.data` names, as `data/<name>`, in the order given.

    Args:
      option: Paths of files or folders; one text may hold several, separated by commas.

    Raises:
      ProblemError: A path does not exist, is empty, or two files would share a name.
    """
    texts = option.split(",") if isinstance(option, str) else list(map(str, option))
    gathered: dict[str, bytes] = {}
    for path in (Path(text.strip()).expanduser() for text in texts if text.strip()):
        for name, found in _files(path).items():
            stored = f"{PREFIX}/{name}"
            if ":" in name:
                raise ProblemError(
                    "the name of a data file has a colon, which separates names",
                    where="problem.data",
                    value=name,
                    remedy="Rename it.",
                )
            if gathered.setdefault(stored, found) != found:
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


def _files(path: Path) -> dict[str, bytes]:
    if path.is_dir():
        return {f"{path.resolve().name}/{name}": data for name, data in tree(path).items()}
    if not path.is_file():
        raise ProblemError(
            "no such file or folder",
            where="problem.data",
            value=str(path),
            remedy="Check the spelling of the path.",
        )
    return {path.name: content(path)}
