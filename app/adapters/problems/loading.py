"""From the disk or from the ledger to a `Problem`: the same bytes make the same problem."""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from app.adapters.problems import config as configuration
from app.adapters.problems import data, folder, openevolve
from app.adapters.problems import options as known
from app.adapters.problems.errors import ProblemError
from app.adapters.problems.text import decoded
from app.domain.problem import Problem

CONFIG_ELSEWHERE = "evoq_config.yaml"
"""Where a configuration is kept whose own name is taken by another file of the folder."""

TEMPLATES = "evoq_templates"
"""Where the prompt templates are kept: the folder they came from may lie outside."""


def load(
    paths: Sequence[Path],
    *,
    config: Path | None = None,
    strict: bool = False,
    options: Mapping[str, Any] = {},
) -> Problem:
    """Reads a problem from the disk.

    Args:
      paths: A folder; or an initial program; or an initial program and its evaluator.
      config: A config.yaml that lies elsewhere or has another name.
      strict: Whether an unknown key of config.yaml is an error.
      options: `sandbox.*` limits and mode, `problem.data` (paths), `problem.environment`.

    Raises:
      ProblemError: Something is missing, unreadable, of the wrong type or too large.
    """
    try:
        layout = folder.find(paths, config)
        files = _without_secrets(folder.tree(layout.folder))
        told = {
            name: value
            for name, value in options.items()
            if value is not None and name not in known.LAYOUT
        }
        told[known.EVALUATOR] = layout.evaluator.name
        told[known.INITIAL] = _included(layout.initial, layout.folder, files)
        if layout.config is not None:
            told |= _with_config(layout.config, files, strict=strict)
        if known.DATA in told:
            gathered = data.gather(told[known.DATA])
            for name, found in gathered.items():
                _put(files, name, found)
            told[known.DATA] = list(gathered)
    except OSError as error:
        raise ProblemError(
            "cannot be read",
            where=str(error.filename),
            value=error.strerror or type(error).__name__,
            remedy="Check the path and its permissions.",
        ) from error
    folder.check_size(files)
    return reload(layout.folder.resolve().name, files, told)


def reload(name: str, files: Mapping[str, bytes], options: Mapping[str, Any]) -> Problem:
    """Builds the problem from what the ledger keeps: `Problem.files` and `Problem.options`.

    Raises:
      ProblemError: The files are not a problem.
    """
    return openevolve.build(name, dict(sorted(files.items())), known.shaping(options))


def _with_config(path: Path, files: dict[str, bytes], *, strict: bool) -> dict[str, Any]:
    """Puts config.yaml, without secrets, and its templates among the files; names them."""
    text = configuration.redacted(decoded(folder.content(path), str(path)), str(path))
    read = configuration.read(text, str(path))
    if strict and read.unknown:
        raise ProblemError(
            "unknown keys, and --strict refuses them",
            where=str(path),
            value=" ".join(read.unknown),
            remedy="Correct the names, or leave --strict out.",
        )
    name = path.name if files.get(path.name, text.encode()) == text.encode() else CONFIG_ELSEWHERE
    _put(files, name, text.encode())
    told = {known.CONFIG: name}
    if "prompt.template_dir" in read.values:
        directory = path.parent / read.values["prompt.template_dir"]
        if not directory.is_dir():
            raise ProblemError(
                "`prompt.template_dir` is not a folder",
                where=str(path),
                value=str(read.values["prompt.template_dir"]),
                remedy="Give its path relative to the file.",
            )
        told[known.TEMPLATES] = TEMPLATES
        for part in [*sorted(directory.glob("*.txt")), *directory.glob("fragments.json")]:
            _put(files, f"{TEMPLATES}/{part.name}", folder.content(part))
    return told


def _without_secrets(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Returns the files, with keys removed from every YAML file that has a section `llm`.

    All of them, because a folder may hold several and any of them may be the one with the key.
    """
    cleaned = dict(files)
    for name in files:
        if name.endswith((".yaml", ".yml")) and b"llm" in files[name]:
            with contextlib.suppress(ProblemError):  # not YAML: not a configuration either
                text = decoded(files[name], name)
                cleaned[name] = configuration.redacted(text, name).encode()
    return cleaned


def _included(path: Path, around: Path, files: dict[str, bytes]) -> str:
    """Returns the name of a file among `files`, where it is put if it lies elsewhere."""
    if path.resolve().parent == around.resolve() and path.name in files:
        return path.name
    if path.resolve().is_relative_to(around.resolve()):
        name = path.resolve().relative_to(around.resolve()).as_posix()
    else:
        name = path.name
    _put(files, name, folder.content(path))
    return name


def _put(files: dict[str, bytes], name: str, found: bytes) -> None:
    if files.setdefault(name, found) != found:
        raise ProblemError(
            "two different files would have the same place in the problem",
            where=name,
            remedy="Rename one of them.",
        )
