"""What is claimed of a cell's walls is what the cell reported of them."""

from typing import Any

import pytest

from app.adapters.sandbox.protection import protections_of

ALL_STAND: dict[str, Any] = {
    "limits": True, "bounded_by": "fork_filter", "counted_memory": True, "identities": "uids",
    "filter": True, "landlock": True, "scopes": True, "evaluator_hidden": True,
    "own_processes": True, "own_root": True, "network_closed": True,
}  # fmt: skip
NONE_STANDS = {name: "one" if name == "identities" else "" for name in ALL_STAND}


def test_every_wall_that_was_found_is_claimed_without_a_remedy() -> None:
    assert {(wall.on, wall.remedy) for wall in protections_of(ALL_STAND)} == {(True, "")}


def test_no_protection_is_claimed_of_a_cell_that_found_none() -> None:
    found = protections_of(NONE_STANDS)

    assert not any(wall.on for wall in found)
    assert all(wall.remedy for wall in found)


@pytest.mark.parametrize(("report", "word"), [("limits", "CPU"), ("bounded_by", "processes")])
def test_a_limit_that_does_not_hold_is_missing(report: str, word: str) -> None:
    missing = [wall.name for wall in protections_of({**ALL_STAND, report: ""}) if not wall.on]

    assert len(missing) == 1
    assert word in missing[0]
