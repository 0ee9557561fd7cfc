"""What a folder of this machine says of its runs: results that are there, commands at work."""

import json
from pathlib import Path

import pytest

from app.client.local_state import is_held, is_worked_on, require_own, run_lock, work_lock
from app.client.notes import CommandError
from app.config.layers import UsageError


@pytest.mark.parametrize(
    "name", ["best_program.rs", "best_program", "best.patch", "metrics.csv", "evolution.png"]
)
def test_a_folder_with_the_file_of_someone_else_is_refused_by_name(tmp_path: Path, name: str):
    (tmp_path / name).write_text("mine")

    with pytest.raises(UsageError) as caught:
        require_own(tmp_path, "--out")

    assert caught.value.where == "--out"
    assert name in caught.value.value
    assert (tmp_path / name).read_text() == "mine"


def test_a_folder_with_other_files_may_get_results(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("mine")

    assert require_own(tmp_path, "--out") == tmp_path


@pytest.mark.parametrize(("run", "problem"), [("other-1", "d1"), ("mine-1", "d2"), ("", "")])
def test_results_are_written_again_only_by_the_run_that_wrote_them(
    tmp_path: Path, run: str, problem: str
):
    settings = {"run": "mine-1", "problem": {"digest": "d1"}}
    (tmp_path / "settings.json").write_text(json.dumps(settings))

    assert require_own(tmp_path, "--out", run="mine-1", problem="d1") == tmp_path
    with pytest.raises(UsageError):
        require_own(tmp_path, "--out", run=run, problem=problem)


def test_a_folder_is_worked_on_while_a_command_holds_its_lock(tmp_path: Path):
    assert not is_worked_on(tmp_path)
    with work_lock(tmp_path):
        assert is_worked_on(tmp_path)
    assert not is_worked_on(tmp_path)


def test_a_command_is_alone_until_another_works_on_runs(tmp_path: Path):
    with work_lock(tmp_path) as first, work_lock(tmp_path) as second:
        assert (first, second) == (True, False)
    with work_lock(tmp_path) as third:
        assert third


def test_one_process_at_a_time_works_on_a_run_that_workers_leave_alone(tmp_path: Path):
    assert not is_held(tmp_path, "r")
    with run_lock(tmp_path, "r"), run_lock(tmp_path, "other"):
        assert is_held(tmp_path, "r")
        with (
            pytest.raises(CommandError, match="end it with `evoq pause r`"),
            run_lock(tmp_path, "r"),
        ):
            pass
    assert not is_held(tmp_path, "r")
