"""What a run is created from where the settings leave it open."""

from dataclasses import replace

import pytest

from app.cli.plan import RunPlan, SettingLayers, plan_run
from app.config.layers import UsageError, from_assignments
from app.domain.problem import Axis
from tests.engine.toy import problem

OPEN = (Axis("complexity", scaled=True), Axis("diversity", scaled=True))


def planned(*assignments: str) -> RunPlan:
    layers = SettingLayers((from_assignments(assignments),))
    return plan_run(replace(problem(), axes=OPEN), layers, local=True)


@pytest.mark.parametrize(
    ("assignments", "islands", "bins"),
    [
        ((), 1, [4, 4]),
        (("budget.proposals=300",), 1, [7, 7]),
        (("budget.proposals=1000",), 2, [10, 10]),
        (("budget.proposals=1000", "search.islands=5"), 5, [6, 6]),
        (("budget.proposals=1000", "search.strategy=greedy"), 1, []),
        (("budget.proposals=1000", "search.strategy=funsearch"), 2, []),
        (
            (
                *("budget.proposals=1000", "search.strategy=funsearch"),
                "strategy.reset_interval=0",
            ),
            1,
            [],
        ),
    ],
)
def test_islands_and_bins_follow_from_the_budget_and_are_stored(
    assignments: tuple[str, ...], islands: int, bins: list[int]
) -> None:
    new = planned(*assignments).new_run("x")

    assert new.islands == islands
    assert new.settings["search"]["islands"] == islands
    assert [axis.bins for axis in new.axes] == bins


@pytest.mark.parametrize(
    ("assignments", "role", "why"),
    [
        (("llm.model=m", "llm.roles.judge.model=strict"), "judge", "`llm.feedback` is false"),
        (("llm.model=m", "llm.roles={judge: {temperature: 0}}"), "judge", "`llm.feedback`"),
        (("llm.model=m", "llm.roles.refiner.model=big", "llm.refiner_share=0"), "refiner", "is 0"),
        (
            (
                *("llm.model=m", "llm.roles.refiner.model=big"),
                *("llm.refiner_top=0", "llm.refiner_stalled=0"),
            ),
            "refiner",
            "`llm.refiner_top` and `llm.refiner_stalled` are 0",
        ),
        (("llm.roles.refiner.model=big",), "refiner", "no operator"),
        (("llm.roles.generator.model=big",), "generator", "no operator"),
        (("llm.model=m", "llm.roles.strategist.model=big"), "strategist", "`directed` does"),
        (("llm.model=m", "llm.roles.adversary.top_p=0.5"), "adversary", "`directed` does"),
        (("llm.roles.embedder.model=e",), "embedder", "`search.similarity` has no value"),
        (
            ("llm.model=m", "search.similarity=0.9", "llm.roles.embedder.timeout_seconds=9"),
            "embedder",
            "no model of its own",
        ),
        (
            ("llm.model=m", "search.operators={mutate: 1}", "llm.roles.refiner.model=big"),
            "refiner",
            "no operator",
        ),
    ],
)
def test_a_role_that_no_step_asks_is_refused_by_name(
    assignments: tuple[str, ...], role: str, why: str
) -> None:
    with pytest.raises(UsageError) as refused:
        planned("llm.base_url=http://127.0.0.1:9/v1", *assignments)

    assert f"`{role}`" in refused.value.what
    assert why in refused.value.what
    assert f"llm.roles.{role}" in refused.value.where


@pytest.mark.parametrize(
    "assignments",
    [
        ("llm.roles.refiner.model=big",),
        ("llm.roles.generator.temperature=1",),
        ("llm.roles.judge.model=strict", "llm.feedback=true"),
        ("llm.roles.judge.model=strict", "llm.feedback=true", "search.operators={tune: 1}"),
        ("llm.roles.strategist.temperature=1", "search.operators={directed: 1}"),
        ("llm.roles.adversary.model=strict", "search.operators={directed: 1, mutate: 1}"),
        ("llm.roles.embedder.model=e", "search.similarity=0.9"),
    ],
)
def test_a_role_that_a_step_asks_is_kept(assignments: tuple[str, ...]) -> None:
    plan = planned("llm.base_url=http://127.0.0.1:9/v1", "llm.model=m", *assignments)

    assert len(plan.settings.llm.roles) == 1


def test_a_role_that_only_the_problem_names_is_left_out_with_a_notice() -> None:
    suggestions = {"llm.model": "m", "llm.roles.judge.models": [{"name": "strict"}]}
    judged = replace(problem(), axes=OPEN, suggestions=suggestions)
    layers = SettingLayers((from_assignments(["llm.base_url=http://127.0.0.1:9/v1"]),))

    plan = plan_run(judged, layers, local=True)

    assert plan.settings.llm.roles == {}
    [notice] = [notice for notice in plan.notices if "llm.roles.judge" in notice]
    assert "without effect in this run" in notice
