import pytest

from app.reports.redaction import REDACTED, redacted


@pytest.mark.parametrize(
    "name", ["api_key", "apikey", "API_KEY", "password", "HF_TOKEN", "client_secret", "key"]
)
def test_a_value_with_a_secret_name_is_left_out(name):
    assert redacted({"problem": {"environment": {name: "hunter2"}}}) == {
        "problem": {"environment": {name: REDACTED}}
    }


@pytest.mark.parametrize(
    "settings",
    [
        {"api_key_variable": "OPENAI_API_KEY"},
        {"max_tokens": 4096, "tokens": None},
        {"base_url": "http://localhost:8000/v1"},
        {"monkey": "banana", "keys": ["a"]},
        {"password": ""},
    ],
)
def test_what_is_no_secret_stays(settings):
    assert redacted(settings) == settings


def test_a_password_inside_an_address_goes_and_the_address_stays():
    told = redacted({"base_url": "https://me:hunter2@models.example/v1"})

    assert told == {"base_url": f"https://{REDACTED}@models.example/v1"}


def test_a_text_that_looks_like_a_key_goes_wherever_it_is():
    told = redacted({"models": [{"name": "x", "note": "use sk-abcdefghijklmnopqrstuv please"}]})

    assert told["models"][0]["note"] == f"use {REDACTED} please"
