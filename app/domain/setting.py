"""Parts of the fields of settings that their types do not say.

A section of a run's settings is a frozen dataclass.  The docstring below a field is its meaning,
the metadata of the field are its bounds, by which `app.config` validates.  A field that cannot
change once a run has begun is annotated with `Fixed`.
"""

from dataclasses import dataclass, field
from typing import TypeVar

Value = TypeVar("Value")

MOST = 1_000_000_000
"""Largest weight or price, so that no sum of them is beyond the doubles."""
LARGEST_INTEGER = 2**63 - 1
"""Largest integer that a column of the ledger holds."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """The reason why a setting cannot change once a run has begun, as a clause."""

    reason: str


def bounded(default: Value, **bounds: float) -> Value:
    """Returns the field of a setting whose numbers are bounded by `ge`, `gt`, `le` or `lt`."""
    return field(default=default, metadata=bounds)


BY_THE_RECIPE = Fixed(
    "the archive is what the recipe made of the programs so far, by its present parameters"
)
BY_MEASUREMENTS = Fixed(
    "programs that are measured otherwise are not comparable with those measured so far"
)
