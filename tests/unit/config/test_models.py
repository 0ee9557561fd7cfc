"""Who is asked in which role, and what is inherited; pure."""

from dataclasses import asdict

import pytest

from app.adapters.model.providers.openai import OpenAIWire, chat_request
from app.adapters.model.providers.presets import PRESETS
from app.adapters.model.providers.spec import model_spec
from app.config.checks import without_models
from app.config.layers import Choices, UsageError, from_assignments
from app.config.models import ModelChoice, ModelSettings, Provider
from app.config.resolve import resolved
from app.domain.operator import Prompt, Role
from app.ports.protocols import Misconfigured


def llm(*assignments: str) -> ModelSettings:
    return resolved([from_assignments(assignments)], {}).settings.llm


def test_a_role_that_says_nothing_is_answered_by_the_models_of_the_section():
    settings = llm("llm.model=small", "llm.temperature=0.4")

    assert settings.models_of(Role.JUDGE) == settings.models_of()
    assert settings.models_of(Role.JUDGE)[0].temperature == 0.4


def test_a_model_inherits_from_its_role_and_a_role_from_the_section():
    settings = llm(
        "llm.model=small",
        "llm.temperature=0.4",
        "llm.max_tokens=100",
        "llm.retries=7",
        'llm.roles.refiner={"max_tokens": 200, "retries": 0, "models": [{"name": "big"}]}',
        "llm.roles.refiner.retries=2",
    )

    [refiner] = settings.models_of(Role.REFINER)

    assert refiner.name == "big"
    assert (refiner.temperature, refiner.max_tokens, refiner.retries) == (0.4, 200, 2)
    assert [model.name for model in settings.models_of()] == ["small"]


def test_a_role_may_keep_the_models_and_change_their_settings():
    settings = llm("llm.model=small", "llm.roles.judge.temperature=0")

    assert [(model.name, model.temperature) for model in settings.models_of(Role.JUDGE)] == [
        ("small", 0.0)
    ]


def test_a_role_that_names_a_provider_inherits_neither_address_nor_key():
    settings = llm(
        "llm.model=small",
        "llm.base_url=http://here/v1",
        "llm.api_key_variable=HERE",
        "llm.roles.refiner={provider: anthropic, model: claude}",
    )
    environment = {"ANTHROPIC_API_KEY": "a", "HERE": "h"}.get

    refiner = model_spec(settings.models_of(Role.REFINER)[0], environment)
    generator = model_spec(settings.models_of()[0], environment)

    assert (refiner.base_url, refiner.api_key) == ("https://api.anthropic.com/v1", "a")
    assert (generator.base_url, generator.api_key) == ("http://here/v1", "h")


def test_a_model_that_names_an_address_inherits_no_provider():
    settings = llm("llm.provider=gemini", "llm.models=[{name: local, base_url: 'http://here/v1'}]")

    spec = model_spec(settings.models_of()[0], {"GEMINI_API_KEY": "g"}.get)

    assert (spec.base_url, spec.api_key, spec.preset.needs_key) == ("http://here/v1", "", False)


def test_each_model_may_have_a_key_and_a_pause_of_its_own():
    settings = llm(
        "llm.retry_delay_seconds=3",
        "llm.models=[{name: a, api_key_variable: A, retry_delay_seconds: 9}, {name: b}]",
    )
    first, second = (model_spec(model, {"A": "1"}.get) for model in settings.models_of())

    assert (first.api_key, first.retry_delay_seconds) == ("1", 9)
    assert (second.api_key, second.retry_delay_seconds) == ("", 3)


def test_prices_are_inherited_like_everything_else():
    settings = llm(
        "llm.model=m",
        "llm.usd_per_million_prompt_tokens=2",
        "llm.usd_per_million_completion_tokens=8",
        "llm.roles.judge.usd_per_million_cached_tokens=0.5",
    )
    spec = model_spec(settings.models_of(Role.JUDGE)[0], {}.get)

    assert (spec.prompt_usd, spec.cached_usd, spec.completion_usd) == (2, 0.5, 8)


def test_an_address_of_a_known_host_has_its_quirks_and_openais_key():
    address = "https://generativelanguage.googleapis.com/v1beta/openai/"
    settings = llm("llm.model=m", f"llm.base_url={address}")

    spec = model_spec(settings.models_of()[0], {"OPENAI_API_KEY": "o"}.get)

    assert spec.preset is PRESETS[Provider.GEMINI]
    assert (spec.base_url, spec.api_key) == (address, "o")


def test_a_provider_replaces_the_address_that_the_problem_suggests():
    suggestions = {"llm.base_url": "https://theirs/v1", "llm.api_key_variable": "THEIRS"}
    line = from_assignments(["llm.provider=ollama", "llm.model=m"])

    llm_settings = resolved([line], suggestions).settings.llm

    assert model_spec(llm_settings.models_of()[0], {}.get).base_url == "http://localhost:11434/v1"


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("127.0.0.1:8000/v1", "http://HOST:PORT/v1"),
        ("localhost:8000/v1", "http://HOST:PORT/v1"),
        ("ftp://far/v1", "http://HOST:PORT/v1"),
        ("http://", "http://HOST:PORT/v1"),
        ("http://far:port/v1", "http://HOST:PORT/v1"),
        ("http://far:99999/v1", "http://HOST:PORT/v1"),
        ("http://[::1/v1", "http://HOST:PORT/v1"),
        ("http://far/v 1", "http://HOST:PORT/v1"),
        ("http://me:hunter2@far/v1", "api_key_variable"),
        ("https://far/openai/v1?api-version=3", "/chat/completions"),
        ("http://far/v1/chat/completions", "/chat/completions"),
    ],
)
@pytest.mark.parametrize("place", ["llm.base_url", "llm.roles.judge.base_url", "llm.models"])
def test_an_unusable_address_is_refused_and_its_password_not_shown(place, address, says):
    settings = f"[{{name: m, base_url: '{address}'}}]" if place == "llm.models" else address

    with pytest.raises(UsageError) as refused:
        llm("llm.model=m", f"{place}={settings}")

    assert says in str(refused.value)
    assert "hunter2" not in f"{refused.value} {refused.value.value}"


@pytest.mark.parametrize("place", ["llm", "llm.roles.judge"])
def test_a_mix_in_which_all_are_reserves_is_refused(place):
    with pytest.raises(UsageError, match="none of a, b has a weight above 0"):
        llm(f"{place}.models=[{{name: a, weight: 0}}, {{name: b, weight: 0}}]")


def test_a_reserve_beside_the_one_model_is_no_mix_of_reserves():
    settings = ModelSettings(model="main", models=[ModelChoice(name="spare", weight=0)])

    assert [(model.name, model.weight) for model in settings.models_of()] == [
        ("spare", 0),
        ("main", 1),
    ]


def test_an_address_in_the_environment_is_looked_at_as_well():
    [choice] = llm("llm.model=m").models_of()

    with pytest.raises(Misconfigured, match="OPENAI_BASE_URL"):
        model_spec(choice, {"OPENAI_BASE_URL": "far:8000/v1"}.get)


def test_a_key_is_read_without_the_newline_that_its_file_ends_with():
    [choice] = llm("llm.model=m").models_of()

    assert model_spec(choice, {"OPENAI_API_KEY": "sk-1\n"}.get).api_key == "sk-1"
    assert model_spec(choice, {"OPENAI_API_KEY": "\n"}.get).api_key == ""


@pytest.mark.parametrize("key", ["sk-\n1", "sk-ä1", "sk-\x001"])
def test_a_key_that_no_header_may_hold_is_named_and_not_shown(key):
    [choice] = llm("llm.model=m").models_of()

    with pytest.raises(Misconfigured, match=r"OPENAI_API_KEY .*: character 4 ") as refused:
        model_spec(choice, {"OPENAI_API_KEY": key}.get)

    assert "sk-" not in str(refused.value)


def test_a_provider_and_an_address_of_one_source_both_have_effect():
    settings = llm("llm.base_url=http://far/v1", "llm.provider=vllm", "llm.model=m")

    spec = model_spec(settings.models_of()[0], {}.get)

    assert (spec.base_url, spec.preset) == ("http://far/v1", PRESETS[Provider.VLLM])


def test_a_model_sends_a_seed_where_it_its_role_or_the_section_asks_for_one():
    plain, asked = llm("llm.model=m"), llm("llm.model=m", "llm.seeded=true")
    own = llm('llm.models=[{"name": "a", "seeded": true}, {"name": "b"}]')

    def seeded(settings: ModelSettings) -> list[bool]:
        specs = [model_spec(choice, {}.get) for choice in settings.models_of()]
        return ["seed" in chat_request(spec, Prompt("", "hi"), 7) for spec in specs]

    assert seeded(plain) == [False]
    assert seeded(asked) == [True]
    assert seeded(own) == [True, False]


@pytest.mark.parametrize(
    ("assignment", "says"),
    [
        ("llm.provider=antropic", "'anthropic'"),
        ("llm.roles.refinr.model=m", "'refiner'"),
        ("llm.roles={judg: {model: m}}", "'judge'"),
        ("llm.roles.refiner.temprature=1", "'temperature'"),
        ("llm.roles.refiner.provider=olama", "'ollama'"),
        ("llm.models=[{name: m, wieght: 2}]", "'weight'"),
    ],
)
def test_what_is_unknown_is_refused_with_the_closest_name(assignment, says):
    with pytest.raises(UsageError, match="the closest is") as refused:
        llm(assignment)

    assert says in str(refused.value)


def test_the_snapshot_of_a_run_is_read_back_as_it_was():
    settings = llm(
        "llm.model=m", "llm.provider=vllm", "llm.roles.judge={model: j, provider: openai}"
    )

    assert ModelSettings(**asdict(settings)) == settings


def test_a_run_without_models_has_none_in_any_role():
    run = resolved([Choices("f", {"llm.model": "m", "llm.roles": {"judge": {"model": "j"}}})], {})

    assert without_models(run).settings.llm.every_model == []


def test_an_endpoints_own_fields_go_with_every_request_and_into_the_digest():
    settings = llm(
        "llm.model=m", 'llm.extra_body={"top_k": 20, "structured_outputs": {"regex": "a+"}}'
    )
    spec = model_spec(settings.models_of()[0], {}.get)

    body = chat_request(spec, Prompt("", "hi"), seed=1)

    assert (body["top_k"], body["structured_outputs"]) == (20, {"regex": "a+"})
    assert OpenAIWire(spec).parameters(Prompt("", "hi"))["top_k"] == 20


def test_a_roles_own_fields_take_the_place_of_the_sections():
    settings = llm(
        "llm.model=m", 'llm.extra_body={"top_k": 20}', 'llm.roles.judge.extra_body={"min_p": 0.1}'
    )

    assert settings.models_of(Role.JUDGE)[0].extra_body == {"min_p": 0.1}
    assert settings.models_of()[0].extra_body == {"top_k": 20}


@pytest.mark.parametrize("field", ["messages", "n", "seed", "max_tokens", "temperature", "stream"])
def test_a_field_with_a_setting_of_its_own_is_not_taken_twice(field: str):
    with pytest.raises(ValueError, match=f"'{field}' is not for extra_body"):
        llm("llm.model=m", f"llm.extra_body={{{field}: 1}}")


def test_a_model_with_a_provider_is_asked_at_another_address_than_that_of_all() -> None:
    llm = ModelSettings(
        **{
            "base_url": "http://127.0.0.1:8/v1",
            "models": [
                {"name": "own", "provider": "openai"},
                {"name": "there", "provider": "openai", "base_url": "http://127.0.0.1:9/v1"},
                {"name": "plain"},
            ],
            "roles": {"refiner": {"provider": "deepseek", "model": "r"}},
        }
    )

    assert [(model.name, address) for model, address in llm.with_another_endpoint] == [
        ("own", "http://127.0.0.1:8/v1"),
        ("r", "http://127.0.0.1:8/v1"),
    ]
