"""Settings of a run that has begun: which can change, and why the others cannot."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args

import pytest
from pydantic.fields import FieldInfo

from app.adapters.tuning.cma import ask
from app.config.changes import fixed, revision_of, unused
from app.config.layers import Choices, UsageError
from app.config.rules import rules_of
from app.config.section import fields_of
from app.config.settings import PromptSettings, RunSettings, SearchSettings
from app.domain.operators import operators
from app.domain.run import Revision, Run, RunState
from app.domain.search.back_pressure import InFlightLimits
from app.domain.search.budget import Budget
from tests.engine.toy import problem

OPERATORS = operators(ask)
WITH_A_MODEL = {"diff": 0.5, "rewrite": 0.5}

CHANGES: Mapping[str, Any] = {
    "budget.proposals": 50,
    "budget.wall_seconds": 60,
    "budget.tokens": 900_000,
    "search.top_programs": 4,
    "search.inspirations": 0,
    "search.samples": 4,
    "search.operators": {"rewrite": 1.0},
    "search.validate_best": 0,
    "search.reuse": True,
    "search.similarity": 0.9,
    "search.stop_fitness": 1.5,
    "search.stop_admitted": 5,
    "search.stop_patience": 7,
    "search.stop_threshold": 0.5,
    "queue.generating": 3,
    "queue.evaluating": 3,
    "queue.trials_at_once": 2,
    "queue.weight": 2.0,
    "sandbox.wall_seconds": 5,
    "sandbox.memory_mib": 512,
    "sandbox.cpu_seconds": 7,
    "sandbox.output_bytes": 100,
    "sandbox.result_bytes": 100,
    "sandbox.file_bytes": 100,
    "sandbox.processes": 4,
    "sandbox.open_files": 40,
    "prompts.max_prompt_tokens": 400,
    "prompts.include_artifacts": False,
    "prompts.system_message": "Improve it.",
    "prompts.templates.diff_user": "Change {current_program}",
    "llm.model": "other",
    "llm.models": [{"name": "a", "weight": 2.0}, {"name": "b"}],
    "llm.provider": "ollama",
    "llm.base_url": "http://127.0.0.1:9/v1",
    "llm.api_key_variable": "ANOTHER_KEY",
    "llm.temperature": 0.2,
    "llm.max_tokens": 100,
    "llm.timeout_seconds": 5,
    "llm.min_timeout_seconds": 1,
    "llm.deadline_seconds": 9,
    "llm.retries": 1,
    "llm.retry_delay_seconds": 1,
    "llm.max_in_flight": 2,
    "llm.target_in_flight": 2,
    "llm.parallel_generations": 2,
    "llm.repair_turns": 0,
    "llm.cache": True,
    "llm.failover_after": 1,
    "llm.reasoning_effort": "low",
    "llm.roles.generator.model": "stronger",
}
"""Another value for each setting that an operator may need to change."""

FIXED_VALUES: Mapping[str, Any] = {
    "search.learn_forms": True,
    "problem.data": "there",
    "strategy.patience": 3,
    "search.strategy": "best_of_n",
    "search.migration_interval": 3,
    "search.migration_rate": 0.5,
    "search.exploration_ratio": 0.5,
    "search.exploitation_ratio": 0.5,
    "search.archive_size": 5,
    "search.seed": 7,
    "search.islands": 3,
    "search.enforce_blocks": True,
    "search.gates": [0.5],
    "search.measurements": 3,
    "search.grid_after": 3,
    "nested.strategy": "reflexion",
    "sandbox.mode": "compatible",
    "sandbox.image": "mine:1",
    "prompts.function": "f",
    "llm.feedback": True,
    "llm.feedback_weight": 0.5,
}


def begun(settings: Mapping[str, Any] = {}, state: RunState = RunState.RUNNING) -> Run:
    """Returns a run of the toy problem that asks a model."""
    stored = RunSettings.model_validate(
        {"llm": {"model": "m", "base_url": "http://127.0.0.1:8/v1"}, **settings}
    ).model_dump(mode="json")
    return Run(
        *(1, "toy", problem().digest, "toy", "map_elites", stored),
        *(rules_of("map_elites", stored), WITH_A_MODEL, (), 42, 1, Budget(20)),
        *(InFlightLimits(1, 1), state),
    )


def revision(run: Run, values: Mapping[str, Any]) -> Revision:
    return revision_of(run, values, problem(), OPERATORS)


def another(field: FieldInfo) -> Any:
    """Returns a value of a setting that is within its bounds and not its default."""
    kinds = (field.annotation, *get_args(field.annotation))
    match field.get_default(call_default_factory=True):
        case bool(default):
            return not default
        case int(default):
            return default + 1
        case float(default):
            return default / 2
        case str():
            return "f"
        case dict():
            return {"key": ["text"] if "list" in str(field.annotation) else "text"}
        case _:
            return next(
                value for kind, value in ((int, 1), (float, 0.5), (bool, True)) if kind in kinds
            )


OTHERS: Mapping[str, Any] = {
    f"{section}.{name}": another(field)
    for section, fields in (("search", SearchSettings), ("prompts", PromptSettings))
    for name, field in fields_of(fields).items()
    if f"{section}.{name}" not in {*CHANGES, *FIXED_VALUES}
}
"""Another value for each further setting of the sections that steps read as they are."""
CHANGEABLE = {**CHANGES, **{name: OTHERS[name] for name in OTHERS if name not in fixed()}}
UNCHANGEABLE = {**FIXED_VALUES, **{name: OTHERS[name] for name in OTHERS if name in fixed()}}


@pytest.mark.parametrize("setting", CHANGEABLE)
def test_an_operator_may_change_it_in_the_middle_of_a_run(setting: str) -> None:
    found = revision(begun(), {setting: CHANGEABLE[setting]})

    named = {fact.setting for fact in found.changes}
    assert (
        any(f"{setting}.".startswith(f"{name}.") for name in named) or setting == "budget.cost_usd"
    )


@pytest.mark.parametrize("setting", UNCHANGEABLE)
def test_what_cannot_change_says_why(setting: str) -> None:
    run = begun({"prompts": {"function": "g"}})
    with pytest.raises(UsageError) as caught:
        revision(run, {setting: UNCHANGEABLE[setting]})

    section = setting.partition(".")[0]
    assert setting in caught.value.what
    assert (fixed().get(setting) or fixed()[section]) in caught.value.what


def test_every_setting_of_the_run_can_change_or_has_a_reason() -> None:
    tested = {name.partition(".")[0]: set[str]() for name in (*CHANGEABLE, *UNCHANGEABLE)}
    for name in (*CHANGEABLE, *UNCHANGEABLE):
        tested[name.partition(".")[0]].add(name.split(".")[1])

    assert set(fields_of(SearchSettings)) == tested["search"]
    assert set(fixed()) <= {*UNCHANGEABLE, "problem", "strategy", "nested"}


@pytest.mark.parametrize("setting", ["search.seed", "search.strategy", "sandbox.mode"])
def test_the_value_that_a_run_has_is_no_change(setting: str) -> None:
    run = begun()
    section, _, name = setting.partition(".")

    assert revision(run, {setting: run.settings[section][name]}).changes == ()


def test_a_change_names_the_value_before_and_after_and_keeps_the_rest() -> None:
    run = begun()
    found = revision(run, {"llm.max_tokens": 100, "budget.tokens": 70_000})

    assert {(fact.setting, fact.before, fact.after) for fact in found.changes} == {
        ("llm.max_tokens", 4096, 100),
        ("budget.tokens", None, 70_000),
    }
    assert found.budget == Budget(20, tokens=70_000)
    assert found.settings["llm"] == {**run.settings["llm"], "max_tokens": 100}
    assert {**found.settings, "llm": None} == {**run.settings, "llm": None}


def test_models_take_the_place_of_the_model_and_a_provider_that_of_the_address() -> None:
    found = revision(begun(), {"llm.models": [{"name": "a"}], "llm.provider": "ollama"})

    assert found.settings["llm"]["model"] is None
    assert found.settings["llm"]["base_url"] is None


def test_the_first_model_of_a_run_gives_it_operators_that_ask_it() -> None:
    run = replace(begun({"llm": {}}), operators={"tune": 1.0})
    found = revision(run, {"llm.model": "m"})

    assert set(found.operators) == {"function", "diff", "rewrite", "mend"}
    assert "search.operators" in {fact.setting for fact in found.changes}


def test_a_role_that_no_step_asks_is_refused() -> None:
    with pytest.raises(UsageError, match="no step of this run asks the role `strategist`"):
        revision(begun(), {"llm.roles.strategist.model": "s"})


def test_the_judges_of_a_run_stay_and_their_address_may_change() -> None:
    llm = {"model": "m", "feedback": True, "roles": {"judge": {"model": "j"}}}
    run = begun({"llm": llm})

    with pytest.raises(UsageError, match="judges of the run would change"):
        revision(run, {"llm.roles.judge.model": "k"})
    assert revision(run, {"llm.roles.judge.base_url": "http://127.0.0.1:9/v1"}).changes
    assert revision(run, {"llm.model": "n"}).changes


def test_a_value_out_of_range_and_caps_without_prices_are_refused() -> None:
    with pytest.raises(UsageError, match=r"llm\.max_tokens"):
        revision(begun(), {"llm.max_tokens": 0})
    with pytest.raises(UsageError, match="no price is known of m"):
        revision(begun(), {"budget.cost_usd": 1})


def test_what_workers_read_at_their_start_waits_for_a_resume() -> None:
    with pytest.raises(UsageError, match=r"Pause the run, then give it to `evoq resume`"):
        revision(begun(), {"sandbox.cpus": 2})

    assert revision(begun(state=RunState.PAUSED), {"sandbox.cpus": 2}).changes


def test_variables_that_a_run_does_not_take_are_named() -> None:
    given = {"llm.model": "n", "llm.retries": 5, "sandbox.cpus": 2, "search.islands": 3}

    assert unused(Choices("the environment", given), begun()) == [
        "EVOQ_LLM__MODEL",
        "EVOQ_SEARCH__ISLANDS",
    ]


def test_a_budget_is_not_less_than_what_was_planned() -> None:
    found = revision(replace(begun(), proposals=12), {"budget.proposals": 1})

    assert found.budget.proposals == 12
    assert [fact.after for fact in found.changes] == [12]


def test_a_function_can_be_named_while_none_evolves() -> None:
    run = begun()
    two = "def f(x):\n    return x\n\n\ndef g(x):\n    return x\n"
    problem_of_two = problem(seeds=(two,))
    complete = {"search.operators": {"complete": 1.0}}
    with pytest.raises(UsageError) as caught:
        revision_of(run, complete, problem_of_two, OPERATORS)
    assert "--set prompts.function=NAME" in caught.value.remedy

    revision_of(run, {**complete, "prompts.function": "g"}, problem_of_two, OPERATORS)

    with pytest.raises(UsageError, match="it is the function that the run evolves"):
        revision_of(
            replace(run, operators={"complete": 1.0}),
            {"prompts.function": "g"},
            problem_of_two,
            OPERATORS,
        )
