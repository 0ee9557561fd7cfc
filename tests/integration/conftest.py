"""What tests of several modules use: commands in a folder of their own, and a package."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.ports.protocols import Store
from app.reports.folder import Drawn
from app.reports.summary import Summary
from tests.integration.cli import Evoq, kept_stack
from tests.integration.game_examples import fetched_chess

SHAPING = (
    "EVOQ_DATABASE_URL",
    "EVOQ_REDIS_URL",
    "EVOQ_HOME",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
)


@pytest.fixture(scope="session")
def chess_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the package `chess`."""
    return fetched_chess(tmp_path_factory.mktemp("fetched"))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The folder in which `evoq` runs."""
    return tmp_path


def not_drawn(store: Store, summary: Summary, folder: Path) -> Drawn:
    """Writes files in the place of the pictures of a run."""
    files = [folder / f"{name}.png" for name in ("evolution", "failures", "archive")]
    for file in files:
        file.write_bytes(b"not drawn")
    return Drawn(files, [])


@pytest.fixture
def evoq(place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Evoq:
    """Runs commands in `place`, with child processes as sandboxes, and draws no pictures.

    To draw the three of a run takes as long as the rest of many a command.
    """
    monkeypatch.chdir(place)
    monkeypatch.setattr("app.reports.folder.draw", not_drawn)
    monkeypatch.setenv("EVOQ_SANDBOX__BACKEND", "process")
    for variable in SHAPING:
        monkeypatch.delenv(variable, raising=False)
    return Evoq(capsys)


@pytest.fixture(scope="session")
def kept_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a stack without workers that is kept running."""
    folder = tmp_path_factory.mktemp("servers")
    with kept_stack(folder, workers=False):
        yield folder


@pytest.fixture
def servers(evoq: Evoq, kept_servers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets commands find a Postgres that runs, with the runs of other tests in it.

    To start one takes several times what most commands do.
    """
    monkeypatch.setenv("EVOQ_HOME", str(kept_servers))
