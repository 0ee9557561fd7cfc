"""The command in a folder of its own, with nothing in the environment that would shape a run."""

from pathlib import Path

import pytest

from tests.integration.cli import Evoq

SHAPING = (
    "EVOQ_DATABASE_URL",
    "EVOQ_REDIS_URL",
    "EVOQ_HOME",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The folder in which `evoq` runs."""
    return tmp_path


@pytest.fixture
def evoq(place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Evoq:
    """Runs commands in `place`, with child processes as sandboxes."""
    monkeypatch.chdir(place)
    monkeypatch.setenv("EVOQ_SANDBOX__BACKEND", "process")
    for variable in SHAPING:
        monkeypatch.delenv(variable, raising=False)
    return Evoq(capsys)
