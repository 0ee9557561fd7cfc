"""Runs inside a run, as the commands run and show them; `test_nested_on_queues` has workers."""

from pathlib import Path

import pytest

from tests.integration.cli import Evoq, problem_folder

NESTED = (
    *("--set", "search.strategy=best_of_n", "--set", "strategy.n=2"),
    *("--set", "nested.strategy=reflexion", "--set", "nested.proposals=3"),
)


@pytest.mark.usefixtures("servers")
def test_a_reproducible_run_searches_inside_its_proposals_and_shows_it(
    evoq: Evoq, tmp_path: Path
) -> None:
    folder = problem_folder(tmp_path / "sum")

    result = evoq("run", folder, "--iterations", "8", "--name", "around", *NESTED, "--reproducible")
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
