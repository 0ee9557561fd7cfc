"""Programs of several files, committed to a folder in one step."""

from pathlib import Path

from app.domain.program import Program
from app.domain.source.globs import inside
from app.patterns.errors import ConflictError
from app.patterns.workspace import Workspace


def commit_program(folder: Path, before: Program, after: Program) -> list[str]:
    """Commits the difference of two programs to a folder; returns the paths that changed.

    A folder that has the later program's files already is left as it is.

    Args:
      folder: The folder of the program.
      before: The program whose files the folder must have where they change.
      after: The program whose files it gets.

    Raises:
      ConflictError: A file that changes has another text than `before` has; it names all of them.
      BranchError: The folder cannot be a workspace, or changed meanwhile.
      ValueError: A path leads out of the folder, which only one of a forged ledger does.
      OSError: A file cannot be read or written.
    """
    old = {file.path: file.source for file in before.files}
    new = {file.path: file.source for file in after.files}
    paths = [path for path in sorted(old.keys() | new.keys()) if old.get(path) != new.get(path)]
    if outside := [path for path in paths if not inside(path)]:
        raise ValueError(f"a program may have no file at {outside[0]!r}")
    with Workspace(folder) as workspace, workspace.branch("program") as branch:
        there = {path: _text(branch.path / path) for path in paths}
        paths = [path for path in paths if there[path] != new.get(path)]
        conflicts = [path for path in paths if there[path] != old.get(path)]
        if conflicts:
            raise ConflictError(str(folder), conflicts)
        if not paths:
            branch.abort()
        for path in paths:
            _write(branch.path / path, new.get(path))
    return paths


def _text(path: Path) -> str | None:
    """Returns a file's text; None where there is none, or none in UTF-8."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError):
        return None


def _write(path: Path, text: str | None) -> None:
    if text is None:
        path.unlink()
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    # Written in place, so that the file keeps its mode.
    path.write_text(text, encoding="utf-8", newline="")
