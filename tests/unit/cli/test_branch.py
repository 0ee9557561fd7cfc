"""`evoq branch`: each pattern with commands, on a real folder."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.adapters.sandbox import isolated_command
from app.cli.application import status_of

Branch = Callable[..., tuple[int, Any]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "folder"
    made.mkdir()
    (made / "log").write_text("")
    return made


@pytest.fixture
def branch(folder: Path, capfd: pytest.CaptureFixture[str]) -> Branch:
    def run(pattern: str, *arguments: str) -> tuple[int, Any]:
        options = [pattern, "--folder", str(folder), "--json", *arguments]
        code = status_of(["branch", *options])
        return code, json.loads(capfd.readouterr().out)

    return run


def log(folder: Path) -> str:
    return (folder / "log").read_text()


def test_speculate_commits_the_command_that_succeeds(branch: Branch, folder: Path):
    code, said = branch("speculate", "-c", "echo broken >log; exit 3", "-c", "echo good >log")

    assert (code, said["winner"], said["committed"], log(folder)) == (0, 1, True, "good\n")


def test_a_shell_whose_folder_a_commit_has_replaced_branches_it_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PWD", str(folder))

    codes = [status_of(["branch", "speculate", "-c", f"echo {n} >>log"]) for n in (1, 2)]

    assert (codes, log(folder)) == ([0, 0], "1\n2\n")


def test_speculate_with_all_prefers_the_order_given(branch: Branch, folder: Path, tmp_path: Path):
    waits = f"while [ ! -e {tmp_path}/done ]; do sleep 0.01; done; echo first >log"

    branch("speculate", "--all", "-c", waits, "-c", f"touch {tmp_path}/done; echo second >log")

    assert log(folder) == "first\n"


def test_a_command_that_fails_says_why_and_the_exit_status_is_1(branch: Branch, folder: Path):
    code, said = branch("best-of-n", "-n", "2", "--", "sh", "-c", "echo no such thing >&2; exit 4")

    assert (code, said["winner"], said["committed"]) == (1, None, False)
    assert said["results"][1] == {
        "index": 1,
        "success": False,
        "score": 0.0,
        "error": "no such thing",
        "value": {"exit_status": 4, "output": "no such thing\n"},
    }


def test_best_of_n_reads_the_score_on_descriptor_3(branch: Branch, folder: Path):
    script = "echo $BRANCHING_ATTEMPT >log; echo $(( (BRANCHING_ATTEMPT * 2) % 5 )) >&3"

    code, said = branch("best-of-n", "-n", "5", "--", "sh", "-c", script)

    assert (code, said["winner"], log(folder)) == (0, 2, "2\n")
    assert [result["score"] for result in said["results"]] == [0, 2, 4, 1, 3]


def test_a_score_that_is_no_number_is_a_failure(branch: Branch):
    code, said = branch("best-of-n", "-c", "echo much >&3")

    assert (code, [result["success"] for result in said["results"]]) == (1, [False])
    assert said["results"][0]["error"] == "the score on descriptor 3 is no number: 'much'"


def test_evaluate_comes_before_the_own_score_and_no_commit_changes_nothing(
    branch: Branch, folder: Path
):
    script = "echo $BRANCHING_ATTEMPT >log; echo $((9 - BRANCHING_ATTEMPT)) >&3"
    options = ("--no-commit", "--evaluate", "cat log", "-n", "3")

    code, said = branch("best-of-n", *options, "--", "sh", "-c", script)

    assert (code, said["winner"], said["committed"], log(folder)) == (0, 2, False, "")


def test_cascaded_hands_outputs_of_failures_on(branch: Branch, folder: Path):
    script = 'echo "<$BRANCHING_FEEDBACK>" >log; echo bad; [ -n "$BRANCHING_FEEDBACK" ]'

    code, said = branch("cascaded", "--fan-out", "1,1", "--", "sh", "-c", script)

    assert (code, said["winner"], log(folder)) == (0, 1, "<bad>\n")


def test_reflexion_hands_the_critique_on(branch: Branch, folder: Path):
    script = 'echo "$BRANCHING_ATTEMPT$BRANCHING_FEEDBACK" >log; [ $BRANCHING_ATTEMPT = 2 ]'

    code, said = branch("reflexion", "--critique", "echo c; cat log", "--", "sh", "-c", script)

    assert (code, len(said["results"]), log(folder)) == (0, 3, "2c\n1c\n0\n")


@pytest.mark.parametrize(
    ("pattern", "extra", "expected"),
    [("tree-of-thoughts", (), "01 11 "), ("beam", ("--width", "1"), "01 11 ")],
)
def test_levels_build_on_the_level_before(
    branch: Branch, folder: Path, pattern: str, extra: tuple[str, ...], expected: str
):
    script = 'printf "$BRANCHING_DEPTH$BRANCHING_ATTEMPT " >>log; echo $BRANCHING_ATTEMPT >&3'

    code, _ = branch(pattern, "-n", "2", "--depth", "2", *extra, "--", "sh", "-c", script)

    assert (code, log(folder)) == (0, expected)


def test_a_tournament_asks_the_judge(branch: Branch, folder: Path):
    judge = '[ $(cat "$BRANCHING_FIRST/log") -gt $(cat "$BRANCHING_SECOND/log") ]; echo $?'
    candidates = [word for n in (4, 7, 5) for word in ("-c", f"echo {n} >log")]

    code, said = branch("tournament", "--judge", judge, *candidates)

    assert (code, said["winner"], log(folder)) == (0, 1, "7\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sideways", "--", "true"), "No such command 'sideways'"),
        (("speculate",), "no candidate is given"),
        (("speculate", "-c", "true", "--", "true"), "both are given"),
        (("speculate", "-n", "2", "-c", "true"), "-n: has no effect beside -c"),
        (("speculate", "--judge", "x", "--", "true"), "No such option: --judge"),
        (("cascaded", "--fan-out", "1,x", "--", "true"), "is no list of numbers (1,x)"),
        (("reflexion", "-c", "true", "-c", "true"), "reflexion has one command"),
        (("tournament", "--", "true"), "Missing option '--judge'"),
        (("tournament", "--judge", " ", "--", "true"), "the command for the shell is empty"),
        (("speculate", "--env", "X=1", "--", "true"), "--env: has no effect without --sandbox"),
    ],
)
def test_wrong_usage_is_named(
    branch: Branch,
    arguments: tuple[str, ...],
    message: str,
):
    code, said = branch(*arguments)

    assert code == 2
    assert message in f"{said['error']['message']}"


def test_the_help_of_a_pattern_has_its_own_options_and_those_of_all(
    capfd: pytest.CaptureFixture[str],
):
    named = {"cascaded": "--fan-out", "reflexion": "--critique", "beam": "--width"}

    for pattern, option in named.items():
        assert status_of(["branch", pattern, "--help"]) == 0
        shown = capfd.readouterr().out
        assert {option, "--folder", "--sandbox", "--json"} <= set(shown.split())
        assert not ({*named.values()} - {option}) & set(shown.split())
        assert f"evoq branch {pattern}" in shown.partition("Examples:")[2]


def test_a_folder_that_is_none_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    missing = tmp_path / "missing"

    assert status_of(["branch", "speculate", "--folder", str(missing), "--", "true"]) == 1
    assert f"{missing} is no folder" in capsys.readouterr().err


def test_people_see_who_won(folder: Path, capsys: pytest.CaptureFixture[str]):
    options = ["--folder", str(folder), "-c", "echo bad; exit 1", "-c", "true"]

    assert status_of(["branch", "best-of-n", *options]) == 0
    shown = capsys.readouterr().out
    assert "  0: failed: bad\n* 1: score 1\n" in shown
    assert "committed: candidate 1" in shown


def test_commands_in_the_sandbox_see_their_branch_and_what_is_named(
    branch: Branch, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SECRET", "s3cret")
    monkeypatch.setenv("NAMED", "shown")
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "text").write_text("visible")
    text = (
        'echo "$SECRET<$NAMED" >log; cat ../../../../tools/text >>log; ls / >>log; '
        "[ $BRANCHING_ATTEMPT = 1 ] || { echo bad; exit 1; }; echo 2.5 >&3"
    )
    options = ("--sandbox", "--visible", f"{tmp_path}/tools", "--env", "NAMED")

    code, said = branch("reflexion", *options, "--critique", "cat log", "-c", text)

    if "nothing here keeps a candidate apart" in str(said):
        pytest.skip(str(said))
    assert code == 0, said
    assert [result["score"] for result in said["results"]] == [0.0, 2.5]
    assert said["results"][0]["error"].startswith("<shown\nvisible")
    assert log(folder).startswith("<shown\nvisible")
    assert "boot" not in log(folder)


def test_a_machine_that_keeps_nothing_apart_says_what_to_do(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(isolated_command, "_LEVELS", ())
    options = ["--folder", str(folder), "-c", "echo x >log"]

    assert status_of(["branch", "speculate", "--sandbox", *options]) == 1
    said = capsys.readouterr().err
    assert "nothing here keeps a candidate apart" in said
    assert "as root, or permit user namespaces" in said
    assert log(folder) == ""
    assert status_of(["branch", "speculate", *options]) == 0
    assert log(folder) == "x\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--on", "moon"], "Choose one of cpu, kubernetes."),
        (["--on", "cpu", "--sandbox"], "Leave one of them out"),
        (["--on", "cpu", "--claim", "x"], "Add --on kubernetes"),
        (["--group", "x"], "Add --on cpu or --on kubernetes"),
        (["--on", "kubernetes", "--image", "x"], "Give --claim NAME"),
        (["--on", "kubernetes", "--claim", "x", "--image", "x", "--group", "a b"], "another name"),
    ],
)
def test_where_commands_run_is_said_once(
    options: list[str], said: str, capfd: pytest.CaptureFixture[str]
):
    assert status_of(["branch", "speculate", "-c", "true", *options]) == 2
    assert said in " ".join(capfd.readouterr().err.split())
