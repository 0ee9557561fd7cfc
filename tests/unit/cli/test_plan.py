"""What a run is created from where the settings leave it open."""

from dataclasses import replace

import pytest

from app.cli.plan import RunPlan, SettingLayers, plan_run
from app.config.layers import from_assignments
from app.domain.problem import Axis
from tests.engine.toy import problem

OPEN = (Axis("complexity", scaled=True), Axis("diversity", scaled=True))


def planned(*assignments: str) -> RunPlan:
    layers = SettingLayers((from_assignments(assignments),))
    return plan_run(replace(problem(), axes=OPEN), layers, local=True)


@pytest.mark.parametrize(
    ("assignments", "islands", "bins"),
    [
        ((), 1, 4),
        (("budget.proposals=300",), 1, 7),
        (("budget.proposals=1000",), 2, 10),
        (("budget.proposals=1000", "search.islands=5"), 5, 6),
        (("budget.proposals=1000", "search.strategy=greedy"), 1, 10),
    ],
)
def test_islands_and_bins_follow_from_the_budget_and_are_stored(
    assignments: tuple[str, ...], islands: int, bins: int
) -> None:
    new = planned(*assignments).new_run("x")

    assert new.islands == islands
    assert new.settings["search"]["islands"] == islands
    assert [axis.bins for axis in new.axes] == [bins, bins]
