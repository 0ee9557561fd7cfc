"""`--model auto`: which server of this machine a command takes."""

from pathlib import Path
from typing import Any

import pytest

from app.adapters.model import local_servers
from app.adapters.model.local_servers import LocalModel, LocalServer, NoServer
from app.cli.change import given
from app.client.local_model import with_local_model
from app.client.plan import plan_run
from app.client.setting_layers import load_problem, read_layers
from app.config.layers import Choices, UsageError
from app.config.resolve import PROBLEMS_OWN
from tests.unit.cli.remedies import replace_everywhere

LLAMA = LocalServer("llama.cpp", "http://127.0.0.1:8080/v1", (LocalModel("qwen", 6144),))
OLLAMA = LocalServer(
    "Ollama", "http://127.0.0.1:11434/v1", (LocalModel("a"), LocalModel("b", 8192))
)


@pytest.fixture
def answers(monkeypatch) -> list[Any]:
    """What the servers of this machine answer."""
    found: list[Any] = []

    def asked(base_urls=("http://127.0.0.1:8000/v1", "http://127.0.0.1:8080/v1"), key=""):
        servers = [each for each in found if isinstance(each, LocalServer)]
        return servers, [NoServer(url, "nothing listens there") for url in base_urls]

    replace_everywhere(monkeypatch, local_servers, "local_servers", asked)
    return found


def auto(**more: Any) -> Choices:
    return Choices("the command line", {"llm.model": "auto", **more})


def test_the_model_and_address_of_the_first_server_are_taken_and_fit_its_context(answers):
    answers += [LLAMA, OLLAMA]

    [layer] = with_local_model([auto()])

    assert layer.values == {
        "llm.model": "qwen",
        "llm.base_url": "http://127.0.0.1:8080/v1",
        "llm.max_tokens": 2048,
        "prompts.max_prompt_tokens": 3686,
    }
    [notice] = layer.notices
    assert notice.startswith("model: llama.cpp at http://127.0.0.1:8080/v1: qwen (6,144 tokens")
    assert "Also found: Ollama at http://127.0.0.1:11434/v1" in notice
    assert "--model auto --api-base URL takes another server" in notice


def test_of_a_server_with_several_models_the_others_are_named(answers):
    answers += [OLLAMA]

    [layer] = with_local_model([auto()])

    assert layer.values == {"llm.model": "a", "llm.base_url": "http://127.0.0.1:11434/v1"}
    assert "It also serves b: --model NAME --api-base URL takes one" in layer.notices[0]


def test_what_is_set_is_kept(answers):
    answers += [LLAMA]
    line, environment = auto(**{"llm.max_tokens": 1144}), Choices("the environment", {})

    taken = with_local_model([line, environment])

    assert taken[0].values["llm.max_tokens"] == 1144
    assert taken[0].values["prompts.max_prompt_tokens"] == 4500
    assert taken[1] is environment


def test_auto_in_the_environment_does_not_override_a_named_model(answers):
    named = Choices("the command line", {"llm.model": "gpt-5-mini"})
    environment = Choices("the environment", {"llm.model": "auto"})

    assert with_local_model([named, environment]) == [named, environment]


def test_without_a_server_every_address_is_named_with_its_reason(answers):
    with pytest.raises(UsageError, match="no server on this machine offers a model") as caught:
        with_local_model([auto()])

    assert "http://127.0.0.1:8000/v1: nothing listens there; http://" in caught.value.value
    assert "--api-base URL" in caught.value.remedy


def test_an_address_is_the_only_one_that_is_asked(answers):
    with pytest.raises(UsageError) as caught:
        with_local_model([auto(**{"llm.base_url": "http://127.0.0.1:9/v1"})])

    assert caught.value.value == "http://127.0.0.1:9/v1: nothing listens there"


def test_a_provider_beside_auto_is_refused(answers):
    with pytest.raises(UsageError, match=r"llm\.provider"):
        with_local_model([auto(**{"llm.provider": "openai"})])


AUTO_LISTS = {
    "llm.models": [{"name": "auto", "weight": 2.0}],
    "llm.roles.judge.models": [{"name": "auto"}],
    "llm.roles.judge": {"model": "auto"},
}


@pytest.mark.parametrize("key", AUTO_LISTS)
@pytest.mark.parametrize("source", ["--set", "the environment", "f.yaml", PROBLEMS_OWN])
def test_a_model_of_a_list_or_a_role_is_found_wherever_it_is_set(answers, source, key):
    answers += [LLAMA]

    [_, layer] = with_local_model([Choices("--set"), Choices(source, {key: AUTO_LISTS[key]})])

    text = repr(layer.values[key])
    assert "'auto'" not in text
    assert "'qwen'" in text
    assert "'base_url': 'http://127.0.0.1:8080/v1'" in text
    assert layer.values["prompts.max_prompt_tokens"] == 3686
    assert layer.notices[0].startswith("model: llama.cpp")


def test_the_model_of_a_role_has_the_address_of_its_server(answers):
    answers += [OLLAMA]

    [layer] = with_local_model([Choices("--set", {"llm.roles.refiner.model": "auto"})])

    assert layer.values == {
        "llm.roles.refiner.model": "a",
        "llm.roles.refiner.base_url": "http://127.0.0.1:11434/v1",
    }


def test_what_a_source_replaces_is_not_looked_for(answers):
    named = Choices("--set", {"llm.model": "m", "llm.roles.judge.model": "j"})
    file = Choices("f.yaml", {"llm.models": [{"name": "auto"}], "llm.roles.judge.model": "auto"})
    own = Choices(PROBLEMS_OWN, {"llm.roles.judge.models": [{"name": "auto"}]})

    assert with_local_model([named, file, own]) == [named, file, own]


def test_a_provider_of_a_list_beside_auto_is_refused(answers):
    answers += [LLAMA]
    entry = {"name": "auto", "provider": "openai"}

    with pytest.raises(UsageError, match=r"llm\.models\.0\.provider"):
        with_local_model([Choices("--set", {"llm.models": [entry]})])


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("config.yaml", "llm: {primary_model: auto}\n"),
        ("config.yaml", "llm: {models: [{name: auto, weight: 1.0}]}\n"),
    ],
)
def test_a_problem_whose_own_configuration_says_auto_is_asked_of_this_machine(
    answers, tmp_path: Path, file: str, text: str
):
    answers += [LLAMA]
    (tmp_path / "initial_program.py").write_text(
        "# EVOLVE-BLOCK-START\nx = 1\n# EVOLVE-BLOCK-END\n"
    )
    (tmp_path / "evaluator.py").write_text(
        "def evaluate(path):\n    return {'combined_score': 1}\n"
    )
    (tmp_path / file).write_text(text)
    layers = read_layers([], None)

    plan = plan_run(load_problem([tmp_path], layers), layers, local=True)

    [model] = plan.settings.llm.mix
    assert (model.name, model.base_url) == ("qwen", "http://127.0.0.1:8080/v1")
    assert any(notice.startswith("model: llama.cpp") for notice in plan.notices)
    answers.clear()
    plan_run(load_problem([tmp_path], layers), layers, local=True, no_model=True)


def test_a_run_that_has_begun_takes_the_model_of_a_server_too(answers):
    answers += [LLAMA]

    values = given(["llm.model=auto"], local=True)

    assert values["llm.model"] == "qwen"
    assert values["llm.base_url"] == "http://127.0.0.1:8080/v1"
