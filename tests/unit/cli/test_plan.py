"""What a run is created from where the settings leave it open."""

from dataclasses import replace
from pathlib import Path

import pytest

from app.client.plan import RunPlan, plan_run
from app.client.setting_layers import SettingLayers
from app.config.layers import UsageError, from_assignments
from app.config.rules import rules_of
from app.domain.problem import Axis
from app.domain.program import Program
from app.domain.search.back_pressure import InFlightLimits
from app.domain.search.budget import Budget
from app.domain.search.recipes import RECIPES
from tests.engine.toy import problem

OPEN = (Axis("complexity", scaled=True), Axis("diversity", scaled=True))


def planned(*assignments: str, reproducible: bool = False) -> RunPlan:
    layers = SettingLayers((from_assignments(assignments),))
    settled = replace(problem(), axes=OPEN)
    return plan_run(settled, layers, local=True, reproducible=reproducible)


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


def test_a_run_is_created_with_what_its_settings_say() -> None:
    budget = ("budget.proposals=7", "budget.wall_seconds=8", "budget.tokens=9", "budget.cost_usd=1")
    search = ("search.strategy=greedy", "search.seed=5", "search.operators={mutate: 1}")
    new = planned(*budget, *search, "queue.generating=3", "queue.evaluating=4").new_run("x")

    assert new.budget == Budget(7, 8.0, 9, 1.0)
    assert (new.strategy, new.seed, new.operators) == ("greedy", 5, {"mutate": 1.0})
    assert new.limits == InFlightLimits(3, 4)


def test_a_run_that_asks_a_person_stores_where_its_prompts_are() -> None:
    asked = planned("llm.provider=human", "llm.model=me", "llm.answers=answers/mine").settings

    assert asked.llm.answers == str(Path("answers/mine").absolute())


def test_a_reproducible_run_has_one_proposal_in_flight() -> None:
    new = planned("queue.generating=3", "queue.evaluating=4", reproducible=True).new_run("x")

    assert new.limits == InFlightLimits(1, 1)


def test_more_gates_than_steps_between_stages_are_refused() -> None:
    assert planned().settings.search.gates is None
    with pytest.raises(UsageError, match="at most 0 gates"):
        planned("search.gates=[0.5]")


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
    ("assignments", "reproducible", "seeded"),
    [
        ((), False, False),
        ((), True, True),
        (("llm.seeded=true",), False, True),
        (("llm.seeded=false",), True, False),
    ],
)
def test_requests_have_seeds_where_the_setting_says_so_else_where_a_run_is_reproducible(
    assignments: tuple[str, ...], reproducible: bool, seeded: bool
) -> None:
    assert planned(*assignments, reproducible=reproducible).settings.llm.seeded is seeded


def test_models_are_drawn_by_their_gains_only_where_there_are_two() -> None:
    adaptive = ("llm.base_url=http://127.0.0.1:9/v1", "llm.adaptive_weights=true")
    two = "llm.models=[{name: a}, {name: b}]"

    assert planned(*adaptive, two).settings.llm.adaptive_weights
    with pytest.raises(UsageError, match="no two models"):
        planned(*adaptive, "llm.model=m")
    with pytest.raises(UsageError, match="no operator of the run asks"):
        planned(*adaptive, two, "search.operators={mutate: 1}")


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


def test_a_run_with_runs_inside_searches_by_default_and_stores_their_operators() -> None:
    plan = planned("nested.strategy=reflexion", "nested.parameters.attempts=2")

    assert plan.operators == {"search": 1.0}
    rules = rules_of(plan.settings.search.strategy, plan.settings.model_dump(mode="json")).nested
    assert rules is not None
    assert (rules.strategy, rules.proposals, rules.islands) == ("reflexion", 10, 1)
    assert rules.recipe == RECIPES["reflexion"](attempts=2)  # type: ignore[call-arg]
    assert rules.operators == planned().operators
    assert rules.settings["nested"]["strategy"] is None
    assert not rules.gridded


def test_runs_inside_have_their_own_recipe_operators_and_share_what_is_not_theirs() -> None:
    given = ("search.stop_patience=5", "search.stop_fitness=2", "search.strategy=best_of_n")
    plan = planned(
        *("nested.strategy=map_elites", "nested.proposals=20", "nested.operators={mutate: 1}"),
        *given,
    )

    rules = rules_of("best_of_n", plan.settings.model_dump(mode="json")).nested
    assert rules is not None
    assert (rules.operators, rules.proposals, rules.gridded) == ({"mutate": 1.0}, 20, True)
    search = rules.settings["search"]
    assert (search["stop_patience"], search["stop_fitness"], search["validate_best"]) == (
        None,
        2,
        0,
    )
    assert rules.settings["budget"]["proposals"] == 20


@pytest.mark.parametrize(
    ("assignments", "where", "what"),
    [
        (("nested.strategy=reflexio",), "--set", "no recipe 'reflexio'"),
        (
            ("nested.strategy=reflexion", "nested.parameters.attempt=2"),
            "--set",
            "has no parameter `nested.parameters.attempt`",
        ),
        (
            ("nested.strategy=reflexion", "nested.parameters.attempts=0"),
            "--set",
            "attempts must be at least 1",
        ),
        (("nested.proposals=3",), "nested.proposals", "and there are none"),
        (("search.operators={search: 1}",), "search.operators", "their recipe is not named"),
        (
            ("nested.strategy=reflexion", "nested.operators={search: 1}"),
            "search.operators",
            "a run inside has none inside it",
        ),
        (
            ("nested.strategy=reflexion", "search.operators={tune: 1}"),
            "nested.strategy",
            "no operator begins a run inside",
        ),
        (
            ("nested.strategy=reflexion", "budget.proposals=1"),
            "budget.proposals",
            "2 proposals or more",
        ),
        (("nested.strategy=reflexion", "queue.trials_at_once=3"), "queue.trials_at_once", "alone"),
        (("nested.strategy=tournament",), "search.strategy", "is no game"),
    ],
)
def test_settings_of_runs_inside_that_cannot_hold_are_refused(
    assignments: tuple[str, ...], where: str, what: str
) -> None:
    with pytest.raises(UsageError) as refused:
        planned(*assignments)

    assert what in str(refused.value)
    assert where in str(refused.value)


MODEL = ("llm.model=m", "llm.base_url=http://127.0.0.1:9/v1")


def planned_from(source: str, *assignments: str) -> RunPlan:
    layers = SettingLayers((from_assignments((*MODEL, *assignments)),))
    return plan_run(replace(problem(), seeds=(Program(source),)), layers, local=True)


def test_edits_of_an_empty_region_are_refused_before_a_model_is_asked() -> None:
    empty = "# EVOLVE-BLOCK-START\n\n# EVOLVE-BLOCK-END\ndef f(x):\n    return x\n"

    with pytest.raises(UsageError, match="every EVOLVE-BLOCK region is empty"):
        planned_from(empty, "search.operators={diff: 1, mend: 1}")
    planned_from(empty, "search.operators={diff: 1, rewrite: 1}")
    planned_from(empty, "search.operators={diff: 1}", "search.enforce_blocks=false")


def test_a_budget_below_one_prompt_and_answer_is_refused_before_a_model_is_asked() -> None:
    source = "x = 1\n" * 200
    budget = ("llm.max_tokens=100", "llm.repair_turns=0", "budget.tokens=300")

    with pytest.raises(UsageError, match="with the shortest prompt"):
        planned_from(source, *budget)
    planned_from("x = 1\n", *budget)
