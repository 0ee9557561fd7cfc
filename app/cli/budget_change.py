"""The budget that `evoq resume` goes on with."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from app.config.layers import Choices, UsageError, from_assignments
from app.config.resolve import resolved
from app.domain.search.budget import Budget

_SECTION = "budget."


def raised(before: Budget, iterations: int | None, assignments: Sequence[str]) -> Budget | None:
    """Returns a run's budget with what was said of it; None where nothing was.

    Raises:
      UsageError: Something else than a budget was said, or it is out of range.
    """
    told: dict[str, Any] = dict(from_assignments(assignments).values)
    if iterations is not None:
        told["budget.proposals"] = iterations
    other = sorted(name for name in told if not name.startswith(_SECTION))
    if other:
        raise UsageError(
            f"`{other[0]}` cannot be changed any more",
            where="--set",
            remedy="A run that has begun takes another budget, as --set budget.tokens=100000, and "
            "nothing else; start another run.",
        )
    return _with(before, told) if told else None


def _with(before: Budget, told: Mapping[str, Any]) -> Budget:
    checked = resolved([Choices("the command line", told)], {}).settings.budget.model_dump()
    given = {name.removeprefix(_SECTION) for name in told}
    return Budget(**{**asdict(before), **{name: checked[name] for name in sorted(given)}})
