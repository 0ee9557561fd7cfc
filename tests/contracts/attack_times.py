"""How each attack ended behind each kind of isolation, and when: the listing of `make attacks`."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from app.domain.problem import Limits, Mode, Outcome

PROPERTY = "attack"
"""The property of a test that holds its row."""


class AttackTimes:
    """Gives a test's attack, if it is to be listed, to the report of the test.

    Args:
      record: As pytest's `record_property`.
    """

    def __init__(self, record: Callable[[str, object], None]) -> None:
        self._record = record

    @contextmanager
    def of(
        self, isolation: str, attack: str, mode: Mode, limits: Limits
    ) -> Iterator[list[Outcome]]:
        """Measures a block that puts the outcome into the list it is given."""
        ended: list[Outcome] = []
        began = time.monotonic()
        yield ended
        [outcome] = ended
        failure = outcome.failure
        row = {
            "isolation": isolation,
            "attack": attack,
            "mode": mode.value,
            "outcome": "no failure" if failure is None else failure.kind.value,
            "seconds": time.monotonic() - began - outcome.boot_seconds,
            "deadline": limits.wall_seconds,
        }
        self._record(PROPERTY, row)


def listing(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns a line for each attack and mode, with what each isolation made of it, and a sum.

    A cell has the outcome and the seconds until it was known, the start of a sandbox not counted;
    `+` and seconds follow where that was beyond the deadline.
    """
    cells: dict[tuple[str, str], list[str]] = {}
    over: list[float] = []
    for row in rows:
        late = row["seconds"] - row["deadline"]
        over.append(late)
        shown = f"{row['isolation']}: {row['outcome']} {row['seconds']:.1f} s"
        cells.setdefault((row["attack"], row["mode"]), []).append(
            shown + (f" +{late:.1f} s" if late > 0 else "")
        )
    lines = [f"{attack} ({mode}) | {' | '.join(cells[attack, mode])}" for attack, mode in cells]
    if over:
        late_ones = sum(seconds > 0 for seconds in over)
        lines.append(
            f"{len(over)} attacks, {late_ones} known after their deadline, the last of them "
            f"{max(0.0, *over):.1f} s after it"
        )
    return lines
