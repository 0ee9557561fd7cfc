"""`evoq new`: every starter is a problem that can be run, and that a search can improve."""

from pathlib import Path

import pytest

from app.cli.starters import STARTERS
from tests.integration.cli import Evoq


@pytest.fixture
def evoq(capsys: pytest.CaptureFixture[str]) -> Evoq:
    return Evoq(capsys)


@pytest.mark.parametrize("format", STARTERS)
def test_a_starter_can_be_run_and_has_nothing_to_remark(evoq: Evoq, tmp_path: Path, format: str):
    folder = tmp_path / "mine"
    written = evoq("new", folder, "--format", format, "--json")

    assert written.code == 0
    assert written.json["files"] == list(STARTERS[format])
    files = {str(path.relative_to(folder)) for path in folder.rglob("*.*")}
    assert files == {*STARTERS[format]}
    assert f"evoq run {folder}" in (folder / "README.md").read_text()

    checked = evoq("check", folder, "--strict", "--json", "--set", "sandbox.backend=process")
    assert checked.code == 0, checked.err
    assert checked.json["format"] == ("problem" if format == "repository" else format)
    assert checked.json["notices"] == []
    assert {seed["failure"] for seed in checked.json["seeds"]} == {None}


def test_a_folder_with_files_is_left_alone(evoq: Evoq, tmp_path: Path):
    (tmp_path / "notes.txt").write_text("mine")

    refused = evoq("new", tmp_path)

    assert refused.code == 2
    assert "not an empty folder" in refused.err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_an_unknown_format_is_refused_with_those_there_are(evoq: Evoq, tmp_path: Path):
    refused = evoq("new", tmp_path / "mine", "--format", "yaml")

    assert refused.code == 2
    assert "(yaml). Choose one of openevolve, funsearch" in refused.err
    assert not (tmp_path / "mine").exists()
