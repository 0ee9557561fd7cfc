"""Where a run's settings come from; pure."""

from dataclasses import replace

import pytest

from app.adapters.problems import configures_problem
from app.adapters.tuning.cma import ask
from app.config.checks import require_bounds, require_owned_by_run
from app.config.layers import (
    Choices,
    UsageError,
    addresses,
    from_assignments,
    from_environment,
    from_file,
    problem_options,
    wrong_variables,
)
from app.config.mix import OF_ONE_FUNCTION, WITH_A_MODEL, WITHOUT_A_MODEL, operators
from app.config.models import ModelSettings
from app.config.resolve import resolved
from app.config.section import Owner, fields_of
from app.config.settings import SandboxSettings, owner_of
from app.domain.operators import operators as every_operator
from app.domain.problem import Problem
from app.domain.program import Program
from app.domain.search.budget import Budget, PriceCeiling
from tests.engine.toy import problem

KNOWN = every_operator(ask)


def of_numbers(count: int) -> Problem:
    """Returns a problem whose initial program has so many tunable numbers, and two functions."""
    source = "".join(f"N{n} = {n}.5\n" for n in range(count))
    seed = Program(f"{source}def f():\n    pass\ndef g():\n    pass\n", "python")
    return replace(problem(), seeds=(seed,))


def nothing(loaded: object) -> bool:
    """Recognises no file as a problem's own configuration."""
    return False


def test_the_command_line_wins_over_the_environment_the_file_and_the_problem():
    line = from_assignments(["search.islands=2"])
    environment = from_environment(
        {"EVOQ_SEARCH__ISLANDS": "3", "EVOQ_SEARCH__ARCHIVE_SIZE": "30", "HOME": "/x"}
    )
    file = Choices("f", {"search.archive_size": 40, "search.top_programs": 4})
    suggestions = {"search.top_programs": 5, "search.inspirations": 6, "search.islands": 9}

    search = resolved([line, environment, file], suggestions).settings.search

    assert (search.islands, search.archive_size) == (2, 30)
    assert (search.top_programs, search.inspirations) == (4, 6)
    assert search.migration_interval == 10


@pytest.mark.parametrize(
    ("assignment", "says"),
    [
        ("search.ilands=3", "`search.islands`"),
        ("islands=3", "`search.islands`"),
        ("serch.islands=3", "`search.islands`"),
        ("proposals=3", "`budget.proposals`"),
        ("databse_url=x", "`database_url`"),
        ("problem.dta=x", "`problem.data`"),
        ("search.islands.deep=3", "`search.islands`"),
    ],
)
def test_an_unknown_key_is_refused_with_the_closest_one(assignment, says):
    with pytest.raises(UsageError, match="unknown setting") as refused:
        from_assignments([assignment])

    assert says in refused.value.remedy


@pytest.mark.parametrize("assignment", ["search.islands", "search=3", "search.operators=[a"])
def test_a_malformed_assignment_is_refused(assignment):
    with pytest.raises(UsageError):
        from_assignments([assignment])


def test_an_unknown_variable_of_a_section_is_refused_by_its_name():
    with pytest.raises(UsageError, match="EVOQ_SEARCH__ILANDS"):
        from_environment({"EVOQ_SEARCH__ILANDS": "3"})


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("EVOQ_LLM_MODEL", "EVOQ_LLM__MODEL"),
        ("EVOQ_SEARCH_ISLANDS", "EVOQ_SEARCH__ISLANDS"),
        ("EVOQ_LLM_MAX_INFLIGHT", "EVOQ_LLM_MAX_IN_FLIGHT"),
        ("EVOQ_VLM_MODEL", "EVOQ_VLLM_MODEL"),
        ("EVOQ_DATABASE_URI", "EVOQ_DATABASE_URL"),
        ("EVOQ_GENERATE_CONCURENCY", "EVOQ_GENERATE_CONCURRENCY"),
    ],
)
def test_a_misspelt_variable_is_refused_with_the_correct_name(variable, meant):
    with pytest.raises(UsageError) as refused:
        from_environment({variable: "3"})

    assert refused.value.where == variable
    assert f"closest known one is {meant}." in refused.value.remedy


def test_a_process_names_all_its_variables_that_cannot_be_used(monkeypatch):
    monkeypatch.setenv("EVOQ_LLM_TARGET_INFLIGHT", "9")
    monkeypatch.setenv("EVOQ_LLM_MAX_IN_FLIGHT", "many")
    wrong = wrong_variables()

    assert set(wrong) == {"EVOQ_LLM_TARGET_INFLIGHT", "EVOQ_LLM_MAX_IN_FLIGHT"}
    assert "did you mean EVOQ_LLM_TARGET_IN_FLIGHT?" in wrong["EVOQ_LLM_TARGET_INFLIGHT"]
    assert wrong["EVOQ_LLM_MAX_IN_FLIGHT"].endswith("not 'many'")


def test_variables_that_are_not_settings_are_left_alone():
    line = from_environment(
        {
            "EVOQ_GENERATE_CONCURRENCY": "4",
            "EVOQ_TASK_EVENTS": "true",
            "EVOQ_LLM_MAX_IN_FLIGHT": "9",
            "EVOQ_PROBLEM_DATA": "/data",
            "EVOQ_SHARED": "/shared",
            "EVOQ_TEST_VLLM_MODEL": "/model",
            "EVOQ_LLM_MODEL": "",
        }
    )

    assert line.values == {}


@pytest.mark.parametrize(
    ("assignment", "where"),
    [("search.islands=0", "the command"), ("queue.generating=many", "the command")],
)
def test_a_value_out_of_range_names_the_setting_and_its_source(assignment, where):
    line = Choices("the command line", from_assignments([assignment]).values)

    with pytest.raises(UsageError, match=assignment.split("=")[0]) as refused:
        resolved([line], {})

    assert refused.value.where.startswith(where)


def test_values_are_yaml_and_json():
    line = from_assignments(["search.operators={tune: 1, mutate: 2}", 'llm.models=[{"name": "m"}]'])

    settings = resolved([line], {}).settings

    assert settings.search.operators == {"tune": 1.0, "mutate": 2.0}
    assert [model.name for model in settings.llm.mix] == ["m"]


def test_a_colon_without_a_space_is_refused_with_the_spelling_that_is_meant():
    with pytest.raises(UsageError, match=r"Write tune: 3\."):
        from_assignments(["search.operators={tune:3}"])


def test_null_models_are_no_models():
    line, suggestions = from_assignments(["llm.models=null"]), {"llm.models": [{"name": "theirs"}]}

    assert resolved([line], suggestions).settings.llm.mix == []


def test_one_operator_can_be_weighted_beside_the_others():
    file = Choices("f", {"search.operators": {"tune": 1.0, "mutate": 1.0}})

    settings = resolved([from_assignments(["search.operators.tune=3"]), file], {}).settings

    assert settings.search.operators == {"tune": 3.0, "mutate": 1.0}


def test_naming_a_model_replaces_the_models_of_the_problem():
    suggestions = {"llm.models": [{"name": "theirs"}], "llm.temperature": 0.1}

    llm = resolved([from_assignments(["llm.model=mine"])], suggestions).settings.llm

    assert [model.name for model in llm.mix] == ["mine"]
    assert llm.temperature == 0.1


def test_a_suggestion_without_a_setting_is_a_notice_and_not_an_error():
    run = resolved([], {"search.no_such_thing": 1, "search.islands": 3})

    assert run.settings.search.islands == 3
    assert "search.no_such_thing" in run.notices[0]


def test_without_a_model_the_mix_is_tune_and_mutate():
    assert operators(resolved([], {}).settings, of_numbers(20), KNOWN) == WITHOUT_A_MODEL


@pytest.mark.parametrize(("numbers", "tune"), [(0, 0.25), (9, 0.25), (10, 0.75)])
def test_without_a_model_an_initial_program_of_few_numbers_is_mutated_more(numbers, tune):
    mix = operators(resolved([], {}).settings, of_numbers(numbers), KNOWN)

    assert mix == {"tune": tune, "mutate": 1 - tune}


def test_with_a_model_and_several_functions_one_of_them_is_drawn():
    settings = resolved([from_assignments(["llm.model=m"])], {}).settings

    assert operators(settings, of_numbers(20), KNOWN) == WITH_A_MODEL


def test_with_a_model_the_one_function_that_evolves_is_completed():
    settings = resolved([from_assignments(["llm.model=m"])], {}).settings
    one = Program("def f():\n    return 1\n", "python")
    named = settings.model_copy(update={"prompts": replace(settings.prompts, function="g")})

    assert operators(settings, replace(problem(), seeds=(one,)), KNOWN) == OF_ONE_FUNCTION
    assert operators(named, of_numbers(20), KNOWN) == OF_ONE_FUNCTION
    assert operators(named, replace(problem(), seeds=(one,)), KNOWN) == WITH_A_MODEL


@pytest.mark.parametrize(
    ("recipe", "operator"),
    [("funsearch", "complete"), ("funsearch_lite", "rewrite"), ("tournament", "directed")],
)
def test_a_recipe_may_have_a_mix_of_its_own_for_runs_with_a_model(recipe: str, operator: str):
    lines = [f"search.strategy={recipe}", "llm.model=m"]
    asking = resolved([from_assignments(lines)], {}).settings
    silent = resolved([from_assignments(lines[:1])], {}).settings
    named = resolved([from_assignments([*lines, "search.operators={tune: 1}"])], {}).settings

    assert operators(asking, of_numbers(20), KNOWN) == {operator: 1.0}
    assert operators(silent, of_numbers(20), KNOWN) == WITHOUT_A_MODEL
    assert operators(named, of_numbers(20), KNOWN) == {"tune": 1.0}


@pytest.mark.parametrize(
    ("mix", "says"),
    [
        ("{rewrite: 1}", "llm.model"),
        ("{tume: 1}", "tune"),
        ("{tune: -1}", "0 or more"),
        ("{tune: 0}", "above 0"),
    ],
)
def test_a_mix_that_cannot_work_is_refused_with_a_remedy(mix, says):
    settings = resolved([from_assignments([f"search.operators={mix}"])], {}).settings

    with pytest.raises(UsageError) as refused:
        operators(settings, of_numbers(20), KNOWN)

    assert says in refused.value.remedy


@pytest.mark.parametrize(
    ("text", "foreign"),
    [
        ("max_iterations: 5\nllm: {primary_model: x}\n", True),
        ("llm: {primary_model: x, api_base: y}\n", True),
        ("evaluator: {timeout: 5}\n", True),
        ("llm: {model: x}\n", False),
        ("llm: {temperature: 0.5}\n", False),
        ("search: {islands: 3}\nllm: {model: x}\n", False),
        ("", False),
    ],
)
def test_a_problems_own_configuration_is_recognised_by_its_keys(text, foreign):
    assert (from_file(text, "f.yaml", foreign=configures_problem) is None) is foreign


def test_a_file_of_another_program_is_refused_and_not_read_for_its_one_common_key():
    text = "run_id: demo\nseed: 42\nevaluator: {capacity: 100}\nllm_providers: []\n"

    with pytest.raises(UsageError, match=r"f\.yaml: `run_id` is a name of FunSearch-Lite"):
        from_file(text, "f.yaml", foreign=configures_problem)


def test_our_file_has_sections_and_addresses():
    file = from_file("search:\n  islands: 3\nredis_url: redis://r\n", "f.yaml", foreign=nothing)

    assert file is not None
    assert file.values == {"search.islands": 3, "redis_url": "redis://r"}
    assert addresses([from_assignments(["redis_url=redis://s"]), file]) == {
        "redis_url": "redis://s"
    }


@pytest.mark.parametrize("text", ["search: [", "- a", "serch: {islands: 3}"])
def test_a_file_of_no_known_shape_is_refused_by_its_name(text):
    with pytest.raises(UsageError, match=r"f\.yaml"):
        from_file(text, "f.yaml", foreign=nothing)


def test_what_shapes_a_problem_is_known_before_it_is_loaded():
    line = from_assignments(
        [
            "problem.data=a.txt",
            "problem.environment.LEVEL=3",
            "sandbox.mode=compatible",
            "sandbox.backend=process",
        ]
    )

    assert problem_options([line]) == {
        "problem.data": "a.txt",
        "problem.environment": {"LEVEL": "3"},
        "sandbox.mode": "compatible",
    }


def test_an_image_of_the_environment_does_not_replace_what_a_problem_brings():
    line = from_assignments(["sandbox.image=mine:1"])
    variable = from_environment({"EVOQ_SANDBOX__IMAGE": "default:1"})

    assert problem_options([variable]) == {}
    assert problem_options([line, variable]) == {"sandbox.image": "mine:1"}


@pytest.mark.parametrize(
    "assignment",
    [
        *("sandbox.backend=process", "sandbox.runtime=runsc", "sandbox.places=2"),
        *("queue.lease_seconds=5", "queue.attempts=2", "prices.cpu_usd_per_hour=1"),
    ],
)
def test_a_run_of_a_deployment_cannot_set_what_its_workers_own(assignment: str):
    name = assignment.partition("=")[0]
    variable = "EVOQ_" + name.upper().replace(".", "__")

    with pytest.raises(UsageError, match=f"`{name}` belongs to the workers.*set {variable} where"):
        require_owned_by_run([from_assignments([assignment])])
    with pytest.raises(UsageError, match=r"mine\.yaml"):
        require_owned_by_run([Choices("mine.yaml", {name: 1})])


@pytest.mark.parametrize(
    ("assignment", "file"), [("sandbox.places=2", r"\.env"), ("sandbox.cpus=2", r"workers\.env")]
)
def test_the_refusal_names_the_file_where_compose_reads_a_setting_of_workers(
    assignment: str, file: str
):
    with pytest.raises(UsageError, match=rf"\(with Compose: in {file}\)"):
        require_owned_by_run([from_assignments([assignment])])


def test_a_run_of_a_deployment_cannot_set_what_only_an_embedded_run_reads():
    with pytest.raises(UsageError, match="no effect"):
        require_owned_by_run([from_assignments(["queue.patience_seconds=5"])])


def test_a_run_of_a_deployment_names_the_variables_here_that_have_no_effect_on_it():
    here = {"EVOQ_SANDBOX__RUNTIME": "runsc", "EVOQ_SANDBOX__MEMORY_MIB": "64"}

    [notice] = require_owned_by_run([from_environment(here)])

    assert "EVOQ_SANDBOX__RUNTIME" in notice
    assert "MEMORY" not in notice


def test_a_run_of_a_deployment_sets_what_is_its_own():
    own = ["sandbox.image=mine:1", "sandbox.memory_mib=64", "queue.weight=2", "search.islands=2"]

    assert require_owned_by_run([from_assignments(own)]) == []


def test_every_setting_of_the_sandbox_that_shapes_no_problem_has_another_owner():
    own = {name for name in fields_of(SandboxSettings) if owner_of(f"sandbox.{name}") is Owner.RUN}
    shaping = problem_options([Choices("--set", {f"sandbox.{name}": 1 for name in own})])

    assert {name.removeprefix("sandbox.") for name in shaping} == own


def test_a_cap_on_money_needs_prices_and_a_cap_on_tokens_a_longest_completion():
    llm = ModelSettings(
        **{
            "model": "small",
            "usd_per_million_prompt_tokens": 1,
            "usd_per_million_cached_tokens": 2,
            "usd_per_million_completion_tokens": 3,
            "roles": {"refiner": {"model": "strong", "max_tokens": 9000}},
        }
    )
    assert llm.price_ceiling == PriceCeiling(9000, 2.0, 3.0)
    require_bounds(Budget(1, cost_usd=1.0), llm)
    free = ModelSettings(model="a", roles={"judge": {"usd_per_million_prompt_tokens": 1}})
    require_bounds(Budget(1, tokens=50_000), free)
    with pytest.raises(UsageError, match=r"no price is known of a") as caught:
        require_bounds(Budget(1, cost_usd=1.0), free)
    assert "usd_per_million_prompt_tokens" in caught.value.remedy
    with pytest.raises(UsageError, match="as it likes"):
        require_bounds(Budget(1, tokens=5), ModelSettings(model="a", max_tokens=None))
    require_bounds(Budget(1, tokens=5, cost_usd=1.0), ModelSettings())


@pytest.mark.parametrize(
    ("budget", "where", "least"),
    [
        (Budget(9, tokens=8000), "tokens", "8192"),
        (Budget(9, cost_usd=0.02), "cost_usd", "0.032768"),
    ],
)
def test_a_cap_below_what_one_proposal_may_take_is_refused(budget: Budget, where: str, least: str):
    priced = {"usd_per_million_prompt_tokens": 1, "usd_per_million_completion_tokens": 4}

    with pytest.raises(
        UsageError, match=rf"budget\.{where}: one proposal may take {least}"
    ) as caught:
        require_bounds(budget, ModelSettings(model="a", **priced))

    assert "llm.max_tokens (the longest answer is 4096)" in caught.value.remedy
    require_bounds(budget, ModelSettings(model="a", max_tokens=500, **priced))
