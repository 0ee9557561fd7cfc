"""From config.yaml to the shape of a problem: limits, axes, rules of editing."""

import re
from collections.abc import Mapping
from typing import Any

from app.adapters.problems.config import Config
from app.adapters.problems.errors import ProblemError
from app.adapters.problems.options import modules, overridden
from app.domain.problem import Axis, EditRules, Limits
from app.domain.search.features import COMPLEXITY, DIVERSITY
from app.domain.source.imports import ImportPolicy

DEFAULT_TIMEOUT_SECONDS = 300.0
DEFAULT_CORES = 2.0
DEFAULT_AXES = (COMPLEXITY, DIVERSITY)
DEFAULT_BINS = 10
MAX_BINS = 10_000


def limits(config: Config, options: Mapping[str, Any]) -> Limits:
    """Returns the limits of one stage; `sandbox.*` options win over config.yaml.

    `evaluator.cpu_limit` is a number of cores: so many times the time-out may be spent as CPU
    time.  Without it, two cores' worth.

    Raises:
      ProblemError: A value is not above 0.
    """
    wall = _above_zero(config, "evaluator.timeout", DEFAULT_TIMEOUT_SECONDS)
    cores = _above_zero(config, "evaluator.cpu_limit", DEFAULT_CORES)
    asked: dict[str, float | int] = {
        "wall_seconds": wall,
        "cpu_seconds": cores * float(options.get("sandbox.wall_seconds", wall)),
    }
    if "evaluator.memory_limit_mb" in config.values:
        asked["memory_mib"] = int(_above_zero(config, "evaluator.memory_limit_mb", 1))
    return overridden(asked, options)


def axes(config: Config) -> tuple[Axis, ...]:
    """Returns the axes, without ranges: OpenEvolve declares none, so a run learns them.

    Raises:
      ProblemError: A number of bins is out of range.
    """
    names = dict.fromkeys(config.values.get("database.feature_dimensions", DEFAULT_AXES))
    bins = config.values.get("database.feature_bins", DEFAULT_BINS)
    counts = {
        name: bins.get(name, DEFAULT_BINS) if isinstance(bins, dict) else bins for name in names
    }
    for name, count in counts.items():
        if not 1 <= count <= MAX_BINS:
            raise ProblemError(
                f"`database.feature_bins` of `{name}` must be from 1 to {MAX_BINS}",
                where=config.place("database.feature_bins"),
                value=str(count),
                remedy="Correct the number.",
            )
    return tuple(Axis(name, count) for name, count in counts.items())


def imports(config: Config, options: Mapping[str, Any]) -> ImportPolicy:
    """Returns what children may import; options win over config.yaml.

    Raises:
      ProblemError: A name is not a module's.
    """
    told = {
        name: options[option]
        if (option := f"problem.{name}") in options
        else modules(config.values[name], config.place(name))
        for name in ("allow_imports", "deny_imports")
        if f"problem.{name}" in options or name in config.values
    }
    allow = told.get("allow_imports")
    return ImportPolicy(
        None if allow is None else tuple(allow), tuple(told.get("deny_imports", ()))
    )


def edit_rules(config: Config) -> EditRules:
    """Returns what a child may change.

    Departure from OpenEvolve: markers are enforced unless config.yaml says otherwise.

    Raises:
      ProblemError: `diff_pattern` is no regular expression with two groups.
    """
    rules = EditRules()
    pattern = config.values.get("diff_pattern", rules.diff_pattern)
    try:
        groups = re.compile(pattern, re.DOTALL).groups
        wrong = "" if groups == 2 else f"{groups} groups"
    except re.error as error:
        wrong = str(error)
    if wrong:
        raise ProblemError(
            "`diff_pattern` must be a regular expression with two groups",
            where=config.place("diff_pattern"),
            value=wrong,
            remedy="Capture the text to search for, then its replacement.",
        )
    return EditRules(
        enforce_blocks=config.values.get("enforce_evolve_blocks", rules.enforce_blocks),
        max_code_chars=int(_above_zero(config, "max_code_length", rules.max_code_chars)),
        diff_pattern=pattern,
    )


def _above_zero(config: Config, key: str, default: float) -> float:
    value = float(config.values.get(key, default))
    if not 0 < value < 1e9:
        raise ProblemError(
            f"`{key}` must be above 0",
            where=config.place(key),
            value=str(config.values[key]),
            remedy="Correct the value, or remove the key to have the default.",
        )
    return value
