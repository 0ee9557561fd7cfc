"""The listing of `make attacks`: outcomes, and what was known after the deadline."""

from typing import Any

from tests.contracts.attack_times import listing


def row(isolation: str, attack: str, seconds: float) -> dict[str, Any]:
    return {
        "isolation": isolation,
        "attack": attack,
        "mode": "guarded",
        "outcome": "timeout",
        "seconds": seconds,
        "deadline": 4.0,
    }


def test_a_line_has_what_each_isolation_made_of_an_attack() -> None:
    rows = [row("Containers", "fork bomb", 4.25), row("Processes", "fork bomb", 0.5)]

    assert listing(rows) == [
        "fork bomb (guarded) | Containers: timeout 4.2 s +0.2 s | Processes: timeout 0.5 s",
        "2 attacks, 1 known after their deadline, the last of them 0.2 s after it",
    ]


def test_without_attacks_there_is_no_listing() -> None:
    assert listing([]) == []
