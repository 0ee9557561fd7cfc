"""Options of a problem: values beside its files that shape its evaluation."""

import os
import string
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from app.domain.problem import Limits, Mode, ProblemError
from app.domain.source.imports import ImportPolicy

INITIAL = "problem.initial"
EVALUATOR = "problem.evaluator"
CONFIG = "problem.config"
TEMPLATES = "problem.templates"
DATA = "problem.data"
MOUNTS = "problem.mounts"
ENVIRONMENT = "problem.environment"

INPUTS = "problem.inputs"
CHECKPOINT = "problem.checkpoint"
SCORING = "problem.scoring"
_SCORINGS = ("last", "mean")

ALLOW_IMPORTS = "problem.allow_imports"
DENY_IMPORTS = "problem.deny_imports"

LAYOUT = frozenset({INITIAL, EVALUATOR, CONFIG, TEMPLATES})
"""Names among the problem's files, which the reader of the disk finds out."""

MODE = "sandbox.mode"
IMAGE = "sandbox.image"

_OF_NAMES = frozenset(string.ascii_letters + string.digits + "._-")
_LIMITS = {f"sandbox.{field.name}": field.name for field in fields(Limits)}
_WHOLE = frozenset(field.name for field in fields(Limits) if field.type in (int, "int"))


def shaping(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options that shape a problem, by name, each in one spelling.

    Other settings of the sandbox (which backend, how many) are not the problem's and are left out.
    `None` means "not set".

    Raises:
      ProblemError: A value is of the wrong kind or out of range.
    """
    shaping: dict[str, Any] = {}
    for name, value in sorted(options.items()):
        if value is None:
            continue
        if name in _LIMITS:
            shaping[name] = _limit(name, value)
        elif name == MODE:
            shaping[name] = _mode(value)
        elif name == IMAGE:
            shaping[name] = str(value)
        elif name == MOUNTS:
            shaping[name] = mounts(value)
        elif name == ENVIRONMENT:
            shaping[name] = _environment(value)
        elif name in (ALLOW_IMPORTS, DENY_IMPORTS):
            shaping[name] = modules(value, name)
        elif name == SCORING and value not in _SCORINGS:
            raise ProblemError(
                "unknown scoring",
                where=SCORING,
                value=repr(value),
                remedy=f"Choose one of {', '.join(_SCORINGS)}.",
            )
        elif name in LAYOUT or name in (DATA, INPUTS, SCORING):
            shaping[name] = value
        elif name.startswith("problem."):
            raise ProblemError(
                "unknown option",
                where=name,
                remedy=f"Options of a problem are {DATA}, {MOUNTS}, {ENVIRONMENT}, "
                f"{ALLOW_IMPORTS}, {DENY_IMPORTS}, {INPUTS}, {SCORING} and {CHECKPOINT}.",
            )
    return shaping


def mounts(value: Any) -> dict[str, str]:
    """Returns NAME to absolute path, from a mapping, a list or `PATH,NAME=PATH`.

    A path without a name has that of its last part.

    Raises:
      ProblemError: A name is missing, occurs twice, or cannot be that of a file.
    """
    pairs = _named_paths(value)
    for name, _ in pairs:
        if not name or name in (".", "..") or not set(name) <= _OF_NAMES:
            raise ProblemError(
                "not a name for data",
                where=MOUNTS,
                value=name or str(value),
                remedy="Write NAME=PATH; a name has letters, digits, `.`, `_` and `-`.",
            )
        if [known for known, _ in pairs].count(name) > 1:
            raise ProblemError(
                "two paths have the same name",
                where=MOUNTS,
                value=name,
                remedy="Write NAME=PATH, with another name for one of them.",
            )
    return dict(pairs)


def _named_paths(value: Any) -> list[tuple[str, str]]:
    if isinstance(value, Mapping):
        return [(str(name), _absolute(str(path))) for name, path in value.items()]
    parts = value if isinstance(value, list) else str(value).split(",")
    pairs = []
    for part in (str(part).strip() for part in parts if str(part).strip()):
        name, named, path = part.partition("=")
        known = named and "/" not in name
        path = _absolute(path if known else part)
        pairs.append((name.strip() if known else os.path.basename(path), path))
    return pairs


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path.strip()))


def modules(value: Any, where: str) -> list[str]:
    """Returns names of modules, from a list or from `NAME,NAME`.

    Raises:
      ProblemError: One of them is not a module's name.
    """
    parts = value if isinstance(value, list) else str(value).split(",")
    names = [str(part).strip() for part in parts if str(part).strip()]
    for name in names:
        if not all(part.isidentifier() for part in name.split(".")):
            raise ProblemError(
                "not the name of a module",
                where=where,
                value=name,
                remedy="Write names such as `numpy` or `os.path`, separated by commas.",
            )
    return names


def imports(
    options: Mapping[str, Any],
    allow: Sequence[str] | None = None,
    deny: Sequence[str] = (),
) -> ImportPolicy:
    """Returns what children may import; the options win over what the problem allows and denies."""
    allowed = options.get(ALLOW_IMPORTS, allow)
    denied = options.get(DENY_IMPORTS, deny)
    return ImportPolicy(None if allowed is None else tuple(allowed), tuple(denied))


def limits(
    options: Mapping[str, Any],
    wall_seconds: float,
    memory_mib: int | None = None,
    cores: float = 2.0,
) -> Limits:
    """Returns the limits of a trial; `sandbox.*` options win over what the problem asks for.

    Args:
      options: As `shaping` returns them.
      wall_seconds: The time-out that the problem asks for.
      memory_mib: The memory that it asks for; None for the default.
      cores: So many times the time-out in force may be spent as CPU time.
    """
    chosen = {field: options[name] for name, field in _LIMITS.items() if name in options}
    wall = float(chosen.get("wall_seconds", wall_seconds))
    asked = {} if memory_mib is None else {"memory_mib": memory_mib}
    return Limits(**{"wall_seconds": wall, "cpu_seconds": cores * wall, **asked, **chosen})


def _limit(name: str, value: Any) -> float | int:
    whole = _LIMITS[name] in _WHOLE
    try:
        number = float(value)
        if whole:
            number = int(number) if number.is_integer() else -1
    except (TypeError, ValueError):
        number = -1
    if isinstance(value, bool) or not 0 < number < 1e15:
        kind = "a whole number" if whole else "a number"
        raise ProblemError(
            f"must be {kind} above 0 and below 1e15",
            where=name,
            value=repr(value),
            remedy="Correct the value, or leave the option out.",
        )
    return number


def _mode(value: Any) -> str:
    modes = [mode.value for mode in Mode]
    if str(value) not in modes:
        raise ProblemError(
            "unknown mode",
            where=MODE,
            value=repr(value),
            remedy=f"Choose one of {', '.join(modes)}.",
        )
    return str(value)


def _environment(value: Any) -> dict[str, str]:
    """Returns NAME to value, from a mapping or from `NAME=value,NAME=value`."""
    if isinstance(value, Mapping):
        pairs = [(str(name), str(text)) for name, text in value.items()]
    else:
        parts = [part.partition("=") for part in str(value).split(",") if part.strip()]
        pairs = [(name.strip(), text) for name, _, text in parts]
    for name, _ in pairs:
        if not name.isidentifier() or name.startswith(("EVOQ_", "LD_", "PYTHON")):
            raise ProblemError(
                "not a variable the evaluator may be given",
                where=ENVIRONMENT,
                value=name,
                remedy="Write NAME=value; names of EVOQ_, LD_ and PYTHON are taken.",
            )
    return dict(sorted(pairs))
