"""`evoq prompt`: prompts of a problem and of a run."""

from pathlib import Path

import pytest

from tests.integration.cli import Evoq, problem_folder


def test_a_problems_prompt_needs_no_service_and_shows_its_first_seed(evoq: Evoq, tmp_path: Path):
    folder = problem_folder(tmp_path / "toy")

    result = evoq("prompt", folder)

    assert result.code == 0
    assert "operator diff, role generator" in result.out
    assert "----- system -----" in result.out
    assert "return 1.5 + 2.0" in result.out
    assert not (tmp_path / ".evoq").exists()


def test_templates_of_the_problem_and_of_the_run_show_at_once(evoq: Evoq, tmp_path: Path):
    folder = problem_folder(tmp_path / "toy")
    (folder / "prompts").mkdir()
    (folder / "prompts" / "diff_user.txt").write_text("Problem's: {current_program}")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "diff_user.txt").write_text("Run's: {language}")

    problems = evoq("prompt", folder, "--json").json
    runs = evoq("prompt", folder, "--set", "prompts.template_dir=mine", "--json").json

    assert problems["user"].startswith("Problem's: # EVOLVE-BLOCK-START")
    assert (runs["user"], runs["templates"]) == ("Run's: python", ["diff_user"])


def test_what_is_cut_is_named(evoq: Evoq, tmp_path: Path):
    folder = problem_folder(tmp_path / "toy")
    (folder / "seeds").mkdir()
    for n in range(3):
        (folder / "seeds" / f"s{n}.py").write_text(f"def value():\n    return {n} + 0.5\n" * 20)

    document = evoq("prompt", folder, "--set", "prompts.max_prompt_tokens=500", "--json").json

    assert document["left_out"] == ["program 3", "program 2", "program 1"]
    assert document["tokens"] <= document["max_tokens"] == 500
    assert "Left out to keep this short: 3 programs" in document["user"]


def test_a_file_can_be_the_parent(evoq: Evoq, tmp_path: Path):
    folder = problem_folder(tmp_path / "toy")
    (tmp_path / "other.py").write_text("def value():\n    return 77\n")

    result = evoq("prompt", folder, "--program", "other.py", "--operator", "rewrite", "--json").json

    assert "return 77" in result["user"].split("# The current program")[1]
    assert "complete new program in one ```python block" in result["user"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "--run"),
        (["toy", "--operator", "tune"], "Choose among"),
        (["toy", "--program", "nobody.py"], "--program"),
        (["toy", "--set", "prompts.templates.diff_user={nobody}"], "refers to {nobody}"),
        (["--run", "toy-1"], "no runs here"),
    ],
)
def test_wrong_usage_has_a_remedy(evoq: Evoq, tmp_path: Path, arguments: list[str], expected: str):
    problem_folder(tmp_path / "toy")

    result = evoq("prompt", *arguments)

    assert result.code != 0
    assert expected in result.err


@pytest.mark.usefixtures("servers")
def test_a_runs_prompt_shows_what_comes_next_and_any_program_by_its_id(evoq: Evoq, tmp_path: Path):
    folder = problem_folder(tmp_path / "toy")
    run = evoq("run", folder, "--reproducible", "--name", "shown", "--json").json
    best = run["best"]["program"]

    following = evoq("prompt", "--run", "shown", "--json").json
    chosen = evoq("prompt", "--run", "shown", "--program", best[:10], "--json").json
    (folder / "prompts").mkdir()
    (folder / "prompts" / "diff_user.txt").write_text("New: {fitness_score}")
    tried = evoq("prompt", folder, "--run", "shown", "--program", best[:10], "--json")
    absent = evoq("prompt", "--run", "shown", "--program", "ffff0000ffff")

    assert "- Score: " in following["user"]
    assert following["run"] == "shown"
    assert chosen["program"] == best
    assert f"- Score: {run['best']['fitness']:.6g}" in chosen["user"]
    assert best not in chosen["inspirations"]
    assert tried.json["user"] == f"New: {run['best']['fitness']:.6g}"
    assert "is not as it was" in tried.err
    assert absent.code == 1
    assert "evoq metrics shown" in absent.err


def test_a_mix_that_completes_an_unnamed_function_is_refused(evoq: Evoq, tmp_path: Path):
    program = "def value():\n    return 1.5\n\n\ndef other():\n    return 2\n"
    folder = problem_folder(tmp_path / "toy", program=program)
    mix = ("--set", "search.operators={complete: 1}", "--set", "llm.model=m")
    where = ("--set", "llm.base_url=http://localhost:1/v1")

    refused = evoq("run", folder, *mix, *where)
    shown = evoq(
        "prompt", folder, *mix, "--set", "prompts.function=value", "--operator", "complete"
    )

    assert refused.code == 2
    assert "prompts.function" in refused.err
    assert "def value_v1():" in shown.out
