"""A folder that is given in the place of a program of several files."""

from collections.abc import Mapping
from pathlib import Path

from app.adapters.problems.files import decoded, tree
from app.config.layers import UsageError
from app.domain.problem import Problem
from app.domain.program import Program
from app.domain.source.globs import matches


def read_evolving(problem: Problem, folder: Path, where: str) -> dict[str, bytes]:
    """Returns path to contents of the files of a folder that evolve.

    Args:
      problem: Its programs have several files.
      folder: Has some of them at their paths; it may have others, which are left out.
      where: The argument that names it, for the message.

    Raises:
      UsageError: It is no folder, or none of its files evolves.
      ProblemError: It is too large, or a file cannot be read.
    """
    patterns = problem.edit.evolve
    if not folder.is_dir():
        raise UsageError(
            "the programs of this problem have several files, and this is no folder",
            where=where,
            value=str(folder),
            remedy=f"Name a folder with files that evolve: {', '.join(patterns)}.",
        )
    found = {path: text for path, text in tree(folder).items() if matches(path, patterns)}
    if not found:
        raise UsageError(
            "no file of the folder evolves",
            where=where,
            value=str(folder),
            remedy=f"Name the folder in which these patterns match files: {', '.join(patterns)}.",
        )
    return found


def program_with(problem: Problem, contents: Mapping[str, bytes]) -> Program:
    """Returns the first seed with other contents of some of its files.

    Where children may be without files, the program is the files that are given, and no others.

    Raises:
      ProblemError: A file is no text in UTF-8.
    """
    kept = () if problem.edit.remove else problem.seeds[0].files
    start = {file.path: file.source for file in kept}
    return Program.of_files({**start, **{path: decoded(contents[path], path) for path in contents}})
