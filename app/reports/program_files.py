"""The files of a program of several: as a tree for people, and as a folder."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from app.adapters import snapshots
from app.domain.program import Program
from app.domain.source.globs import inside


def file_tree(paths: Iterable[str], marks: Mapping[str, str]) -> list[str]:
    """Returns paths as lines: each folder once, what is in it below it and further in.

    Args:
      paths: Relative POSIX paths, in any order.
      marks: Path to a word that stands behind the name of the file.
    """
    lines: list[str] = []
    above: list[str] = []
    for path in sorted(paths, key=lambda path: path.split("/")):
        *folders, name = path.split("/")
        shared = 0
        while shared < min(len(folders), len(above)) and folders[shared] == above[shared]:
            shared += 1
        lines += [f"{'  ' * depth}{folders[depth]}/" for depth in range(shared, len(folders))]
        mark = f"  ({marks[path]})" if path in marks else ""
        lines.append(f"{'  ' * len(folders)}{name}{mark}")
        above = folders
    return lines


def write_files(program: Program, folder: Path) -> None:
    """Writes the files of a program of several into a folder; those of equal paths are replaced.

    Raises:
      ValueError: A path leads out of the folder, which only one of a forged ledger does.
      OSError: The folder cannot be written to.
    """
    if outside := [file.path for file in program.files if not inside(file.path)]:
        raise ValueError(f"a program may have no file at {outside[0]!r}")
    snapshots.write_files(
        folder, {file.path: file.source.encode("utf-8", "replace") for file in program.files}
    )
