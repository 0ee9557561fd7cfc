"""Runs inside a run, as the commands run and show them."""

from pathlib import Path

import pytest

from tests.integration.cli import Evoq, kept_stack, problem_folder

NESTED = (
    *("--set", "search.strategy=best_of_n", "--set", "strategy.n=2"),
    *("--set", "nested.strategy=reflexion", "--set", "nested.proposals=3"),
)


@pytest.mark.usefixtures("servers")
def test_a_reproducible_run_searches_inside_its_proposals_and_shows_it(
    evoq: Evoq, tmp_path: Path
) -> None:
    require_nested(evoq, tmp_path, "--reproducible")


def test_a_run_on_workers_searches_inside_its_proposals_and_shows_it(
    evoq: Evoq, tmp_path: Path
) -> None:
    with kept_stack(tmp_path / ".evoq"):
        require_nested(evoq, tmp_path)


def require_nested(evoq: Evoq, place: Path, *where: str) -> None:
    folder = problem_folder(place / "sum")

    result = evoq("run", folder, "--iterations", "8", "--name", "around", *NESTED, *where)
    document = evoq("show", "around", "--json").json
    shown, listed = evoq("show", "around").out, evoq("list-runs").out
    [row] = [row for row in evoq("list-runs", "--json").json if row["run"] == "around"]
    inner = evoq("show", "around:0", "--json").json

    assert result.code == 0, result.err
    assert document["state"] == "finished"
    assert document["operators"] == {"search": 1.0}
    assert document["inside"]["runs"] == document["iterations"] >= 2
    assert document["inside"]["proposals"] + document["iterations"] in (7, 8)
    assert f"{document['inside']['proposals']} proposals of" in " ".join(shown.split())
    assert "  around:0" in listed
    assert [one["proposal"] for one in row["inside"]] == list(range(document["iterations"]))
    assert (inner["state"], inner["budget"]) == ("finished", 3)
    for verb in ("pause", "cancel", "resume"):
        refused = evoq(verb, "around:0")
        assert refused.code != 0
        assert "around:0 is inside around" in refused.err
