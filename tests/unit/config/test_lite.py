"""A configuration of FunSearch-Lite: every key is a setting, or is said to have no effect."""

from typing import Any

import pytest
import yaml

from app.adapters.problems import configures_problem
from app.config.layers import Choices, UsageError, from_file
from app.config.lite import Experiment
from app.config.resolve import resolved

LITE = """\
run_id: demo
seed: 42
max_generations: 20
population_size: 50
num_islands: 3
top_k_for_full_eval: 10
task_name: bin_packing
evaluator: {capacity: 100, seed: 42}
llm_providers:
  - {provider_id: cheap, provider_type: deepseek, model_name: small, timeout_seconds: 30}
  - {provider_id: strong, provider_type: openai, model_name: large, max_retries: 3}
  - {provider_id: none, provider_type: fake, model_name: fake-model}
generator_provider_id: cheap
refiner_provider_id: strong
artifact_dir: artifacts
save_interval: 5
"""


def read(**changes: Any) -> Choices:
    text = yaml.safe_dump({**yaml.safe_load(LITE), **changes})
    choices = from_file(text, "lite.yaml", foreign=configures_problem)
    assert choices is not None
    return choices


def test_the_keys_become_settings_of_a_run():
    settings = resolved([read()], {}).settings

    assert settings.search.strategy == "funsearch_lite"
    assert (settings.search.seed, settings.search.islands) == (42, 3)
    assert settings.budget.proposals == 20 * 50 * 3
    assert settings.strategy == {
        "fresh": 5,
        "mutations": 43,
        "refinements": 2,
        "top_k": 10,
        "population": 50,
    }
    [generator] = settings.llm.models
    assert (generator.name, generator.provider, generator.timeout_seconds) == (
        "small",
        "deepseek",
        30,
    )
    assert "large" in str(settings.llm.roles)


def test_a_fake_provider_asks_no_model():
    settings = resolved(
        [read(generator_provider_id="none", refiner_provider_id="none")], {}
    ).settings

    assert settings.llm.models == []
    assert settings.strategy["refinements"] == 0
    assert settings.strategy["mutations"] == 45


def test_a_key_without_effect_is_named_with_the_reason():
    assert [text.split("`")[1] for text in read().notices] == ["save_interval"]


def test_the_run_its_task_and_its_folder_are_read():
    assert read().experiment == Experiment("bin_packing", "demo", "artifacts")
    assert read().values["problem.environment"] == {"CAPACITY": "100", "SEED": "42"}


def test_every_key_of_a_provider_is_a_setting_of_its_model():
    provider = {
        "provider_id": "cheap", "provider_type": "openai", "model_name": "small",
        "base_url": "http://127.0.0.1:8000/v1", "api_key": "${MY_KEY}", "temperature": 0.2,
        "top_p": 0.9, "max_tokens": 900, "timeout_seconds": 30, "max_retries": 3,
    }  # fmt: skip
    changes = {"refiner_provider_id": "cheap", "llm_providers": [provider]}
    settings = resolved([read(**changes)], {}).settings
    [model] = settings.llm.models
    assert (model.base_url, model.api_key_variable) == ("http://127.0.0.1:8000/v1", "MY_KEY")
    assert (model.temperature, model.top_p, model.max_tokens) == (0.2, 0.9, 900)
    assert (model.timeout_seconds, model.retries) == (30, 3)
    assert settings.llm.roles["refiner"].models == [model]


def test_a_key_by_its_variable_is_a_setting_of_its_model():
    provider = {"provider_id": "cheap", "model_name": "small", "api_key_env": "MY_KEY"}
    choices = read(refiner_provider_id="cheap", llm_providers=[provider])
    assert choices.values["llm.models"] == [{"name": "small", "api_key_variable": "MY_KEY"}]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_generation": 3}, "`max_generation` is no key of FunSearch-Lite"),
        ({"population_size": 0}, "`population_size` must be a whole number above 0"),
        ({"generator_provider_id": "other"}, "no provider is called 'other'"),
        ({"evaluator": [1]}, "`evaluator` must be a mapping"),
        ({"task_name": ["a"]}, "`task_name` must be a text"),
        ({"llm_providers": [{"provider_id": "a", "endpoint": "x"}]}, "`endpoint` of 'a' is no key"),
        ({"llm_providers": [{"provider_id": "a", "api_key": "sk-1"}]}, "`api_key` must be"),
    ],
)
def test_what_cannot_be_used_is_refused(changes, message):
    with pytest.raises(UsageError, match=message):
        read(**changes)
