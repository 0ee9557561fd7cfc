"""Focus: which file of a program of several a child changes first of all."""

from collections.abc import Iterator
from dataclasses import replace

from app.domain.operator import Ancestry, Brief, FailedChild, ProgramRecord
from app.domain.program import Program
from app.domain.source.functions import find_function

_IMPROVED = 2.0
"""Weight of each change of a file in the ancestry that improved the program."""
_UNTOUCHED = 1.0
"""Weight of a file that nobody of the ancestry changed."""


def in_focus(brief: Brief, language: str, *, of_function: bool = False) -> Brief:
    """Returns a brief whose programs all have the same file in focus; equal briefs the same file.

    It is drawn: a file that the failure names, else one whose changes improved ancestors, or one
    that was not changed yet, more often.  A brief of programs of one file is returned as it is.

    Args:
      brief: The brief.
      language: The only language that the operator edits; "" for any.
      of_function: Whether the file is the one that defines `prompts.function`.
    """
    first = brief.known[brief.drafts[0].parents[0]]
    if not first.program.path:
        return brief
    path = _defining(first.program, brief.prompts.function) if of_function else ""
    path = path or _chosen(brief, first, language)
    return replace(
        brief,
        known={program: _seen(record, path) for program, record in brief.known.items()},
        siblings=tuple(_seen(record, path) for record in brief.siblings),
        ancestry=Ancestry(
            tuple(_seen(record, path) for record in brief.ancestry.ancestors),
            tuple(_failed(failed, path) for failed in brief.ancestry.failures),
        ),
        failed=None if brief.failed is None else _failed(brief.failed, path),
        language=first.program.focused(path).language,
    )


def _defining(program: Program, function: str) -> str:
    """Returns the first file that defines a function; "" where none does, or none is named."""
    views = (view for view in program.views() if view.language == "python")
    defining = (view.path for view in views if find_function(view.source, function) is not None)
    return next(defining, "") if function else ""


def _chosen(brief: Brief, parent: ProgramRecord, language: str) -> str:
    files = parent.program.files
    paths = [file.path for file in files if language in ("", file.language)]
    paths = paths or [file.path for file in files]
    if brief.failed is not None and brief.failed.program is not None:
        blamed = _blamed(brief.failed, parent.program, paths)
        if blamed:
            return blamed
    steps = list(_steps(parent, brief.ancestry))
    weights = []
    for path in paths:
        touching = [improved for improved, changed in steps if path in changed]
        weights.append(1.0 + _IMPROVED * sum(touching) + (0.0 if touching else _UNTOUCHED))
    return brief.rng(f"focus/{brief.drafts[0].ordinal}").choices(paths, weights)[0]


def _blamed(failed: FailedChild, parent: Program, paths: list[str]) -> str:
    """Returns the file that a failure names last, else one that the failed child changed."""
    detail = failed.failure.detail
    named = [path for path in paths if path in detail]
    if named:
        return max(named, key=detail.rfind)
    assert failed.program is not None
    changed = _changed(parent, failed.program)
    return next((path for path in paths if path in changed), "")


def _steps(parent: ProgramRecord, ancestry: Ancestry) -> Iterator[tuple[bool, set[str]]]:
    """Yields of each edit in the lineage whether it improved the program, and its files."""
    for child, before in zip((parent, *ancestry.ancestors), ancestry.ancestors, strict=False):
        improved = (
            child.fitness is not None
            and before.fitness is not None
            and child.fitness > before.fitness
        )
        yield improved, _changed(before.program, child.program)


def _changed(before: Program, after: Program) -> set[str]:
    return {file.path for file in set(after.files) - set(before.files)}


def _seen(record: ProgramRecord, path: str) -> ProgramRecord:
    return replace(record, program=_view(record.program, path))


def _failed(failed: FailedChild, path: str) -> FailedChild:
    if failed.program is None:
        return failed
    return replace(failed, program=_view(failed.program, path))


def _view(program: Program, path: str) -> Program:
    """Returns a program with a file in focus; one without it, as it is."""
    return program.focused(path) if any(file.path == path for file in program.files) else program
