"""The protections that are claimed are those that a sandbox reported."""

from typing import Any

import pytest

from app.adapters.sandbox.protection import protections_of, summary

ALL_ON: dict[str, Any] = {
    "limits": True, "bounded_by": "fork_filter", "counted_memory": True, "identities": "uids",
    "filter": True, "landlock": True, "scopes": True, "evaluator_hidden": True,
    "own_processes": True, "own_root": True, "network_closed": True, "files_bounded": True,
}  # fmt: skip
NONE_ON = {name: "one" if name == "identities" else "" for name in ALL_ON}


def test_every_protection_that_was_reported_is_claimed_without_a_remedy() -> None:
    assert {(row.on, row.remedy) for row in protections_of(ALL_ON)} == {(True, "")}


def test_no_protection_is_claimed_that_was_not_reported() -> None:
    rows = protections_of(NONE_ON)

    assert not any(row.on for row in rows)
    assert all(row.remedy for row in rows)


@pytest.mark.parametrize(
    ("report", "word"), [("limits", "CPU"), ("bounded_by", "processes"), ("files_bounded", "files")]
)
def test_a_limit_that_is_not_in_force_is_missing(report: str, word: str) -> None:
    missing = [row.name for row in protections_of({**ALL_ON, report: ""}) if not row.on]

    assert len(missing) == 1
    assert word in missing[0]


def test_one_line_names_the_isolation_what_is_missing_and_what_remains() -> None:
    bare = {**ALL_ON, "own_root": False, "counted_memory": False, "identities": "one"}

    line = summary("child processes", bare)

    assert "\n" not in line
    kind, missing, in_force = line.split(". ")
    assert kind == "sandbox: child processes without namespaces"
    assert missing.startswith("Missing: memory limit of all processes together by a cgroup (")
    assert in_force.startswith("In force: limits of CPU")
    assert summary("containers", ALL_ON).count("Missing: nothing") == 1
