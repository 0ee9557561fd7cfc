"""From the disk or from the ledger to a `Problem`: the same bytes make the same problem."""

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from app.adapters.problems import (
    described,
    funsearch,
    inputs,
    openevolve,
    shinka,
    workspace,
)
from app.adapters.problems import options as option
from app.adapters.problems.files import Source, check_size, data_files, existing
from app.adapters.problems.openevolve import checkpoint
from app.domain.problem import Problem, ProblemError


class Format(Protocol):
    """A format of problems, as its package offers it."""

    NAME: str
    """As the ledger stores it."""

    OPTIONS: frozenset[str]
    """The options that only this format and others that name them take."""

    def recognises(self, paths: Sequence[Path]) -> bool:
        """Returns whether these paths are a problem of this format."""

    def read(
        self, paths: Sequence[Path], config: Path | None = None, *, strict: bool = False
    ) -> Source:
        """Reads a problem's files.

        Raises:
          ProblemError: The paths are not a problem.
          OSError: A path cannot be read.
        """

    def build(self, name: str, files: Mapping[str, bytes], options: option.Options) -> Problem:
        """Returns the problem that files and options describe.

        Raises:
          ProblemError: The files are not a problem.
        """


FORMATS: tuple[Format, ...] = (described, shinka, funsearch, workspace, openevolve)
"""Every format; the first that recognises the paths reads them, and the last reads the rest."""


def load(
    paths: Sequence[Path],
    *,
    config: Path | None = None,
    strict: bool = False,
    options: Mapping[str, Any] = {},
    formats: Sequence[Format] = FORMATS,
) -> Problem:
    """Reads a problem from the disk.

    Args:
      paths: A folder, or the files that the format takes in its place.
      config: A configuration of the problem that lies elsewhere or has another name.
      strict: Whether an unknown key of the configuration is an error.
      options: `sandbox.*` limits and mode, `problem.data` and `problem.mounts`
        (paths), `problem.environment`.
      formats: The formats that are tried.

    Raises:
      ProblemError: Something is missing, unreadable, of the wrong type or too large.
    """
    chosen = {name: value for name, value in options.items() if name not in option.LAYOUT}
    try:
        reader = next((reader for reader in formats if reader.recognises(paths)), formats[-1])
        _refuse_foreign(options, reader, formats)
        source = reader.read(paths, config, strict=strict)
        if chosen.get(option.DATA) is not None:
            gathered = data_files(chosen[option.DATA])
            for name, contents in gathered.items():
                source.add(name, contents)
            chosen[option.DATA] = list(gathered)
        if chosen.get(option.MOUNTS) is not None:
            chosen[option.MOUNTS] = existing(option.mounts(chosen[option.MOUNTS]), source.files)
        if chosen.get(option.INPUTS) is not None:
            source.add(inputs.FILE, inputs.literal(chosen[option.INPUTS]))
            chosen[option.INPUTS] = inputs.FILE
        if (named := chosen.pop(option.CHECKPOINT, None)) is not None:
            suffix = PurePosixPath(source.options[option.INITIAL]).suffix
            for name, contents in checkpoint.programs(Path(str(named)), suffix).items():
                source.add(name, contents)
    except OSError as error:
        raise ProblemError(
            "cannot be read",
            where=str(error.filename),
            value=error.strerror or type(error).__name__,
            remedy="Check the path and its permissions.",
        ) from error
    check_size(source.files)
    return reload(reader.NAME, source.name, source.files, chosen | source.options, formats=formats)


def _refuse_foreign(
    options: Mapping[str, object], reader: Format, formats: Sequence[Format]
) -> None:
    """Refuses an option that is another format's.

    Raises:
      ProblemError: There is one.
    """
    foreign = frozenset().union(*(other.OPTIONS for other in formats)) - reader.OPTIONS
    for name in sorted(foreign & {name for name, value in options.items() if value is not None}):
        takers = [other.NAME for other in formats if name in other.OPTIONS]
        raise ProblemError(
            f"a problem of the format {reader.NAME} takes no such option",
            where=name,
            value=str(options[name])[:80],
            remedy=f"Leave it out; it is for the format {' or '.join(takers)}.",
        )


def is_known(format: str) -> bool:
    """Returns whether this version reads problems of a format."""
    return any(format == reader.NAME for reader in FORMATS)


def reload(
    format: str,
    name: str,
    files: Mapping[str, bytes],
    options: Mapping[str, object],
    *,
    formats: Sequence[Format] = FORMATS,
) -> Problem:
    """Builds the problem from what the ledger keeps of it: format, name, files and options.

    Raises:
      ProblemError: The files are not a problem, or this version knows no such format.
    """
    for reader in formats:
        if format == reader.NAME:
            return reader.build(name, dict(sorted(files.items())), option.shaping(options))
    raise ProblemError(
        "unknown format of a problem",
        where=name,
        value=format,
        remedy=f"This version reads {', '.join(reader.NAME for reader in formats)}.",
    )
