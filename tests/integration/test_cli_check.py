"""`evoq check` and `evoq evaluate`, in the real process sandbox."""

from pathlib import Path

import pytest

from tests.integration.cli import CONFIG, EVALUATOR, STAGED, Evoq, problem_folder

CASCADE = f"{CONFIG}  cascade_thresholds: [0.5]\n"


@pytest.fixture
def evoq(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Evoq:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVOQ_SANDBOX__BACKEND", "process")
    return Evoq(capsys)


def test_check_tells_what_was_understood_and_what_the_seeds_scored(evoq: Evoq, tmp_path: Path):
    folder = problem_folder(tmp_path / "problem")

    said = evoq("check", folder, "--json")

    assert said.code == 0
    told = said.json
    assert told["stages"] == ["evaluate"]
    assert told["limits"]["wall_seconds"] == 20.0
    assert [axis["name"] for axis in told["axes"]] == ["complexity"]
    [seed] = told["seeds"]
    assert (seed["fitness"], seed["failure"]) == (-6.5, None)
    assert seed["metrics"]["value"] == 3.5
    assert "complexity" in seed["features"]


def test_a_failure_names_the_stage_that_it_happened_in(evoq: Evoq, tmp_path: Path):
    broken = STAGED.replace("return evaluate(program_path)", "raise ValueError('seven')")

    config = "evaluator:\n  cascade_thresholds: [0.0]\n"
    said = evoq("check", problem_folder(tmp_path / "problem", evaluator=broken, config=config))

    assert "failed, runtime in evaluate_stage2 after" in said.out
    assert "modes:" not in said.out
    assert "every seed failed" in said.err


def test_check_says_at_which_stage_a_seed_stops_and_that_a_run_begins(evoq: Evoq, tmp_path: Path):
    crashing = STAGED.replace("return evaluate(program_path)", "raise ValueError('seven')")
    folder = problem_folder(tmp_path / "problem", evaluator=crashing, config=CASCADE)

    said = evoq("check", folder)
    told = evoq("check", folder, "--json").json

    assert said.code == 0
    assert "stops after evaluate_stage1 with fitness 0, below the threshold 0.5" in said.out
    assert "A run can begin, with the metrics that its seeds reached" in said.out
    assert told["usable"] is True
    [seed] = told["seeds"]
    assert seed["stages"] == ["evaluate_stage1"]
    assert seed["fitness"] == 0.0
    assert seed["stopped"] == {"stage": "evaluate_stage1", "fitness": 0.0, "threshold": 0.5}


def test_check_without_json_is_for_people(evoq: Evoq, tmp_path: Path):
    said = evoq("check", problem_folder(tmp_path / "problem"))

    assert said.code == 0
    assert "fitness -6.5" in said.out
    assert "protections on" in said.out


@pytest.mark.parametrize(
    ("broken", "kind"),
    [
        ({"program": "def value():\n    raise ValueError('no')\n"}, "runtime"),
        ({"program": "def value(:\n"}, "syntax"),
        ({"evaluator": "def evaluate(path):\n    return 'good'\n"}, "invalid_result"),
        ({"evaluator": "def evaluate(path):\n    return {'a': float('nan')}\n"}, "invalid_result"),
    ],
    ids=["raises", "syntax", "a string", "not a number"],
)
def test_check_fails_when_no_seed_can_be_measured(evoq: Evoq, tmp_path: Path, broken, kind: str):
    folder = problem_folder(tmp_path / "problem", **broken)

    said = evoq("check", folder, "--json")

    assert said.code == 1
    [seed] = said.json["seeds"]
    assert seed["failure"]["kind"] == kind
    assert seed["failure"]["detail"]
    assert said.json["usable"] is False


def test_an_evaluator_that_cannot_be_imported_says_where(evoq: Evoq, tmp_path: Path):
    folder = problem_folder(tmp_path / "problem", evaluator=f"import no_such_module\n{EVALUATOR}")

    said = evoq("check", folder, "--json")

    assert said.code == 1
    assert said.json["error"]["kind"] == "evaluator"
    assert "no_such_module" in said.json["error"]["what"]
    assert "Traceback" not in said.err


def test_a_package_that_an_evaluator_lacks_is_told_with_the_remedy(evoq: Evoq, tmp_path: Path):
    lacking = f"import nowhere_to_be_found\n{EVALUATOR}"

    said = evoq("check", problem_folder(tmp_path / "problem", evaluator=lacking))

    assert said.code == 1
    assert "No module named 'nowhere_to_be_found'" in said.err
    assert "requirements.txt" in said.err


def test_evaluate_answers_in_the_order_of_the_files(evoq: Evoq, tmp_path: Path):
    folder = problem_folder(tmp_path / "problem")
    values = {"far.py": "0.0", "near.py": "9.5", "loud.py": "1 / 0", "broken.py": "("}
    for name, value in values.items():
        (tmp_path / name).write_text(f"def value():\n    return {value}\n")
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00")
    files = [tmp_path / name for name in (*values, "binary.py")]

    said = evoq("evaluate", folder, *files, "--json")

    assert said.code == 0
    assert [one["file"] for one in said.json] == [str(file) for file in files]
    assert [one["fitness"] for one in said.json] == [-10.0, -0.5, None, None, None]
    kinds = [one["failure"]["kind"] if one["failure"] else None for one in said.json]
    assert kinds == [None, None, "runtime", "syntax", "syntax"]
    assert all(one["verified"] for one in said.json[:2])


def test_evaluate_goes_through_every_stage(evoq: Evoq, tmp_path: Path):
    config = "evaluator:\n  cascade_thresholds: [0.5]\n"
    folder = problem_folder(tmp_path / "problem", evaluator=STAGED, config=config)

    said = evoq("evaluate", folder, folder / "initial_program.py", "--json")

    [one] = said.json
    assert one["stages"] == ["evaluate_stage1", "evaluate_stage2"]
    assert one["fitness"] == -6.5
    assert one["metrics"]["stage1"] == 1.0


def test_compatible_mode_is_labelled_unverified(evoq: Evoq, tmp_path: Path):
    folder = problem_folder(tmp_path / "problem")

    said = evoq("evaluate", folder, folder / "initial_program.py", "--mode", "compatible", "--json")

    [one] = said.json
    assert (one["fitness"], one["verified"]) == (-6.5, False)


def test_a_program_file_that_is_missing_is_one_message(evoq: Evoq, tmp_path: Path):
    said = evoq("evaluate", problem_folder(tmp_path / "problem"), "absent.py", "--json")

    assert said.code == 1
    assert "absent.py" in said.json["error"]["what"]


@pytest.mark.parametrize("option", [("--sandbox", "cage"), ("--mode", "wild")])
def test_a_sandbox_or_mode_that_does_not_exist_is_wrong_usage(
    evoq: Evoq, tmp_path: Path, option: tuple[str, str]
):
    folder = problem_folder(tmp_path / "problem")

    said = evoq("evaluate", folder, folder / "initial_program.py", *option, "--json")

    assert said.code != 0
    assert option[1] in str(said.json["error"])


READER = EVALUATOR.replace(
    "    return {", "    text = open(program_path).read()\n    return {'size': len(text), ", 1
)


def test_check_compares_both_modes_and_says_what_the_sandbox_costs(evoq: Evoq, tmp_path: Path):
    folder = problem_folder(tmp_path / "problem")

    said = evoq("check", folder)
    told = evoq("check", folder, "--json").json

    assert "measures alike" in said.out
    assert "µs" in said.out
    assert 1.0 < told["overhead"]["call_microseconds"] < 1e5
    assert 0.1 < told["overhead"]["trial_milliseconds"] < 1e5
    assert 0.0 < told["overhead"]["boot_seconds"] < 60.0


def test_check_explains_a_seed_that_measures_differently_in_the_other_mode(
    evoq: Evoq, tmp_path: Path
):
    folder = problem_folder(tmp_path / "problem", evaluator=READER)

    said = evoq("check", folder)
    quiet = evoq("check", folder, "--set", "sandbox.compare_modes=false")

    assert said.code == 0
    assert "size is" in said.err
    assert "EVOQ_PROGRAM_SOURCE" in said.err
    assert "size is" not in quiet.err
