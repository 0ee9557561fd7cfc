"""Options of a problem: values beside its files that shape its evaluation."""

import os
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields

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


@dataclass(frozen=True, slots=True)
class Options:
    """The options that shape a problem, each in one spelling.

    Attributes:
      values: All that were given, by dotted name, as the ledger stores them (JSON).
      initial, evaluator, config, templates, inputs: Names among the problem's files; "" where the
        option is not set, as in the other texts.
      data: Names of the data files.
      allow_imports, deny_imports, mode: None leaves them to the problem.
      limits: Those that were given, by field of `Limits`.
    """

    values: Mapping[str, object] = field(default_factory=dict)
    initial: str = ""
    evaluator: str = ""
    config: str = ""
    templates: str = ""
    data: Sequence[str] = ()
    mounts: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    inputs: str = ""
    scoring: str = _SCORINGS[0]
    allow_imports: Sequence[str] | None = None
    deny_imports: Sequence[str] | None = None
    mode: Mode | None = None
    image: str = ""
    limits: Mapping[str, float] = field(default_factory=dict)

    def imports(self, allow: Sequence[str] | None = None, deny: Sequence[str] = ()) -> ImportPolicy:
        """Returns what children may import; options win over what the problem says."""
        allowed = allow if self.allow_imports is None else self.allow_imports
        denied = deny if self.deny_imports is None else self.deny_imports
        return ImportPolicy(None if allowed is None else tuple(allowed), tuple(denied))

    def limits_of(
        self, wall_seconds: float, memory_mib: int | None = None, cores: float = 2.0
    ) -> Limits:
        """Returns the limits of a trial; `sandbox.*` options win over what the problem asks for.

        Args:
          wall_seconds: The time-out that the problem asks for.
          memory_mib: The memory that it asks for; None for the default.
          cores: So many times the time-out in force may be spent as CPU time.
        """
        wall = float(self.limits.get("wall_seconds", wall_seconds))
        asked: dict[str, float] = {"wall_seconds": wall, "cpu_seconds": cores * wall}
        if memory_mib is not None:
            asked["memory_mib"] = memory_mib
        # The reader of each limit made it a whole number where the field is one.
        return Limits(**(asked | dict(self.limits)))  # type: ignore[arg-type]


def shaping(options: Mapping[str, object]) -> Options:
    """Returns the options that shape a problem.

    Other settings of the sandbox (which backend, how many) are not the problem's and are left out.
    `None` means "not set".

    Raises:
      ProblemError: A value is of the wrong kind or out of range.
    """
    values: dict[str, object] = {}
    for name, value in sorted(options.items()):
        if value is None:
            continue
        if reader := _READERS.get(name):
            values[name] = reader(value, name)
        elif name.startswith("problem."):
            raise ProblemError(
                "unknown option",
                where=name,
                remedy=f"Options of a problem are {DATA}, {MOUNTS}, {ENVIRONMENT}, "
                f"{ALLOW_IMPORTS}, {DENY_IMPORTS}, {INPUTS}, {SCORING} and {CHECKPOINT}.",
            )
    limits = {_LIMITS[name]: value for name, value in values.items() if name in _LIMITS}
    read = {
        name.partition(".")[2]: Mode(str(value)) if name == MODE else value
        for name, value in values.items()
        if name not in _LIMITS
    }
    # Each reader returns the type of its field.
    return Options(values, limits=limits, **read)  # type: ignore[arg-type]


def _as_it_is(value: object, where: str) -> object:  # noqa: ARG001
    return value


def _text(value: object, where: str) -> str:  # noqa: ARG001
    return str(value)


def mounts(value: object, where: str = MOUNTS) -> dict[str, str]:
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
                where=where,
                value=name or str(value),
                remedy="Write NAME=PATH; a name has letters, digits, `.`, `_` and `-`.",
            )
        if [known for known, _ in pairs].count(name) > 1:
            raise ProblemError(
                "two paths have the same name",
                where=where,
                value=name,
                remedy="Write NAME=PATH, with another name for one of them.",
            )
    return dict(pairs)


def _named_paths(value: object) -> list[tuple[str, str]]:
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


def modules(value: object, where: str) -> list[str]:
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


def _limit(value: object, where: str) -> float:
    whole = _LIMITS[where] in _WHOLE
    try:
        number = float(value)  # type: ignore[arg-type]
        if whole:
            number = int(number) if number.is_integer() else -1
    except (TypeError, ValueError):
        number = -1
    if isinstance(value, bool) or not 0 < number < 1e15:
        kind = "a whole number" if whole else "a number"
        raise ProblemError(
            f"must be {kind} above 0 and below 1e15",
            where=where,
            value=repr(value),
            remedy="Correct the value, or leave the option out.",
        )
    return number


def _one_of(names: Sequence[str], what: str) -> Callable[[object, str], str]:
    """Returns a reader of an option with a closed set of values."""

    def read(value: object, where: str) -> str:
        if str(value) not in names:
            raise ProblemError(
                f"unknown {what}",
                where=where,
                value=repr(value),
                remedy=f"Choose one of {', '.join(names)}.",
            )
        return str(value)

    return read


def _environment(value: object, where: str) -> dict[str, str]:
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
                where=where,
                value=name,
                remedy="Write NAME=value; names of EVOQ_, LD_ and PYTHON are taken.",
            )
    return dict(sorted(pairs))


_READERS: Mapping[str, Callable[[object, str], object]] = {
    **dict.fromkeys(_LIMITS, _limit),
    **dict.fromkeys((*LAYOUT, DATA, INPUTS), _as_it_is),
    **dict.fromkeys((ALLOW_IMPORTS, DENY_IMPORTS), modules),
    MODE: _one_of([mode.value for mode in Mode], "mode"),
    SCORING: _one_of(_SCORINGS, "scoring"),
    IMAGE: _text,
    MOUNTS: mounts,
    ENVIRONMENT: _environment,
}
"""Option to the function that returns its value in one spelling, or refuses it."""
