"""One filter of secrets: what it takes out of one place it takes out of all."""

import io
import json
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from app.adapters.problems.evaluator_result import bounded_artifacts
from app.adapters.problems.openevolve.config_yaml import without_secrets
from app.config.settings import RunSettings
from app.domain.evaluation import Failure, FailureKind
from app.domain.search.cohort import State
from app.domain.secrets import REDACTED, redacted, redacted_values
from app.logs import filter_secrets
from app.ports.history import Settled
from app.reports.folder import snapshot
from app.reports.metrics import rows
from app.reports.program import failure_document
from tests.engine.toy import problem

KEYS = (
    "sk-abcdefgh",
    "sk-abcdefghijklmno",
    "sk-proj-abcdefghijklmnopqrstuvwxyz",
    "pk-abcdefgh1234",
    "ghp_abcdefgh1234",
    "github_pat_11ABCDEFG0abc",
    "hf_abcdefgh1234",
    "xoxb-1234-abcdefgh",
    "AKIAIOSFODNN7EXAMPLE",
    "AIzaSyA1234567890abcdef",
    "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----",
    "https://me:hunter2@models.example/v1",
    "postgresql://me:p@hunter2@models.example/v1",
    "glpat-abcdefgh1234",
    "gho_abcdefgh1234",
    "pypi-AgEIcHlwaS5vcmcCJDk4",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
)
GUESSES = (
    *(
        f"https://models.example/v1?a=b&{name}=hunter2&c=d"
        for name in ("key", "token", "dashboard_token", "sig", "X-Amz-Signature", "apikey")
    ),
    *("password = hunter2", "Authorization: Bearer abc.def-ghi", "a1" * 20),
    *("{'Authorization': b'Bearer abc.def-ghi'}", "sent Bearer abc.def-ghi_1234 to it"),
    *('"SecretAccessKey": "hunter2"', "dbPassword=hunter2"),
)
"""What may be a secret: removed from what is shown, and kept in files that are used afterwards."""


def artifact(text: str) -> str:
    return bounded_artifacts({"log": text}, chars=20_000, redact=True)["log"]


def snapshot_with(note: str) -> Any:
    """Returns what `settings.json` holds of a run with such a setting."""
    settings = RunSettings().model_dump(mode="json")
    settings["llm"] = {"note": note}
    run = SimpleNamespace(name="r", strategy="map_elites", seed=1, operators={}, settings=settings)
    document = snapshot(SimpleNamespace(run=run), problem(), [])  # type: ignore[arg-type]
    return json.loads(json.dumps(document))


def settings_file(text: str) -> str:
    return str(snapshot_with(text)["settings"]["llm"]["note"])


def logged(text: str) -> str:
    out = io.StringIO()
    log = logging.Logger("test")
    log.addHandler(logging.StreamHandler(out))
    log.warning("%s", text)
    try:
        raise ValueError(text)
    except ValueError:
        log.exception("failed")
    return out.getvalue()


def stored_configuration(text: str) -> str:
    return without_secrets(f"# {text!r}\nllm: {{temperature: 1}}\n", "config.yaml")


def failure(text: str) -> str:
    """Returns what `check`, `evaluate` and `show` print of a failure as JSON."""
    document = failure_document(Failure(FailureKind.RUNTIME, text))
    assert document is not None
    return document.detail


def metrics_row(text: str) -> str:
    """Returns what `evoq metrics` prints of a failed proposal."""
    failed = Settled(
        *(0, State.FAILED, 0, "diff", 1, None, (), None, False),
        *(Failure(FailureKind.RUNTIME, text), 0.0, 0.0, 0.0),
    )
    return next(iter(rows([failed]))).detail


SHOWN = (artifact, settings_file, logged, failure, metrics_row)


@pytest.fixture(autouse=True)
def _filtered_logs():
    before = logging.getLogRecordFactory()
    filter_secrets()
    yield
    logging.setLogRecordFactory(before)


def secret_part(text: str) -> str:
    """Returns a piece of the text that must not remain."""
    return next(part for part in ("MIIE", "hunter2", "abc.def", text[4:]) if part in text)


@pytest.mark.parametrize("place", [*SHOWN, stored_configuration])
@pytest.mark.parametrize("secret", KEYS)
def test_a_key_of_a_known_form_is_removed_everywhere(place: Callable[[str], str], secret: str):
    text = place(f"use {secret} please")

    assert secret_part(secret) not in text
    assert "REDACTED" in text


@pytest.mark.parametrize("place", SHOWN)
@pytest.mark.parametrize("secret", GUESSES)
def test_what_may_be_a_secret_is_removed_wherever_it_is_shown(
    place: Callable[[str], str], secret: str
):
    assert secret_part(secret) not in place(f"use {secret} please")


@pytest.mark.parametrize("place", [*SHOWN, stored_configuration])
def test_ordinary_text_stays(place: Callable[[str], str]):
    text = "ValueError: 12 != 13, tokens: 512, image evoqueue@sha256:" + "0123456789abcdef" * 4

    assert text in place(text)


@pytest.mark.parametrize(
    "name", ["api_key", "apikey", "API_KEY", "password", "HF_TOKEN", "client_secret", "key"]
)
def test_a_setting_with_the_name_of_a_secret_loses_its_value(name: str):
    assert redacted_values({"problem": {"environment": {name: "hunter2"}}}) == {
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
def test_a_setting_without_a_secret_stays(settings):
    assert redacted_values(settings) == settings


def test_a_key_whose_beginning_is_cut_off_is_removed():
    text = redacted(
        "pip says\n  " + "vQ9+" * 16 + "\n  hkiG9w0BAQEFAASC\n  -----END PRIVATE KEY-----"
    )

    assert text == "pip says\n<REDACTED_PRIVATE_KEY>"


def test_a_key_that_is_printed_line_by_line_is_removed():
    lines = ["-----BEGIN RSA PRIVATE KEY-----", "  " + "MIIE" + "vQ9+" * 15, "  | " + "Aa1/" * 16]

    assert not any(part in redacted(line) for line in lines for part in ("vQ9+", "Aa1/"))


@pytest.mark.parametrize(
    "text",
    [
        "https://models.example/v1?page=2&monkey=banana#sha256=0123",
        "A" * 12 + "/" + "b/" * 26 + "c1",
    ],
)
def test_an_address_without_a_secret_and_a_path_stay(text: str):
    assert redacted(f"at {text} there") == f"at {text} there"


def test_an_address_loses_its_password_only():
    settings = redacted_values({"base_url": "https://me:hunter2@models.example/v1"})

    assert settings == {"base_url": f"https://{REDACTED}@models.example/v1"}


def test_the_digest_of_the_problem_stays_in_the_settings_of_a_run():
    assert snapshot_with("")["problem"]["digest"] == problem().digest
