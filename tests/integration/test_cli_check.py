"""`evoq check` and `evoq evaluate`, in the real process sandbox."""

import re
from pathlib import Path

import pytest

from tests.integration.cli import CONFIG, EVALUATOR, STAGED, Evoq, problem_folder

CASCADE = f"{CONFIG}  cascade_thresholds: [0.5]\n"


def test_check_reports_the_problem_the_results_of_its_seeds_both_modes_and_the_overhead(
    evoq: Evoq, tmp_path: Path
):
    folder = problem_folder(tmp_path / "problem")

    printed = evoq("check", folder)
    result = evoq("check", folder, "--json")

    assert (printed.code, result.code) == (0, 0)
    assert "fitness -6.5" in printed.out
    assert "protections on" in printed.out
    assert "measures alike" in printed.out
    assert "µs" in printed.out
    document = result.json
    assert document["stages"] == ["evaluate"]
    assert document["limits"]["wall_seconds"] == 20.0
    assert [axis["name"] for axis in document["axes"]] == ["complexity"]
    [seed] = document["seeds"]
    assert (seed["fitness"], seed["failure"]) == (-6.5, None)
    assert seed["metrics"]["value"] == 3.5
    assert "complexity" in seed["features"]
    assert 1.0 < document["overhead"]["call_microseconds"] < 1e5
    assert 0.1 < document["overhead"]["trial_milliseconds"] < 1e5
    assert 0.0 < document["overhead"]["boot_seconds"] < 60.0


NOISY = """
import random

def evaluate_stage1(program_path):
    return {"combined_score": 1.0}

def evaluate_stage2(program_path):
    return {"combined_score": 1.0 + random.random()}

def evaluate(program_path):
    return evaluate_stage2(program_path)
"""


def test_check_measures_a_seed_again_and_says_how_far_its_fitness_differs(
    evoq: Evoq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # No trial would follow one that a stall has lengthened to some seconds.
    monkeypatch.setattr("app.client.noise._SECONDS", 600.0)
    noisy = problem_folder(tmp_path / "noisy", evaluator=NOISY)
    still = problem_folder(tmp_path / "still")

    differing = evoq("check", noisy)
    averaged = evoq("check", noisy, "--set", "search.measurements=3")
    alike = evoq("check", still)

    values = evoq("check", noisy, "--json").json["measured_again"]
    assert len(set(values)) == len(values) == 5
    assert all(1.0 <= value <= 2.0 for value in values)
    assert "differs from one measurement to the next" in differing.err
    assert f"{values[1]:.4g}" in differing.err, "a measurement is repeatable"
    assert "differs" not in averaged.err + alike.err
    assert set(evoq("check", still, "--json").json["measured_again"]) == {-6.5}


def test_a_seed_that_fails_or_takes_long_is_not_measured_again(
    evoq: Evoq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    failing = EVALUATOR.replace("return", "raise ValueError('seven')  #", 1)
    broken = problem_folder(tmp_path / "broken", evaluator=failing)
    folder = problem_folder(tmp_path / "problem")
    monkeypatch.setattr("app.client.noise._SECONDS", 0.0)

    assert evoq("check", broken, "--json").json["measured_again"] == []
    assert evoq("check", folder, "--json").json["measured_again"] == []


def test_a_failure_names_the_stage_that_it_happened_in(evoq: Evoq, tmp_path: Path):
    broken = STAGED.replace("return evaluate(program_path)", "raise ValueError('seven')")

    config = "evaluator:\n  cascade_thresholds: [0.0]\n"
    folder = problem_folder(tmp_path / "problem", evaluator=broken, config=config)
    result = evoq("check", folder, "--json")
    error = result.json["error"]

    assert "failed, runtime in evaluate_stage2 after" in result.err
    assert "modes:" not in result.err
    assert "every seed failed" in result.err
    assert "Mend the evaluator or the initial program" in result.err
    assert error["where"] == "evaluator.py, initial program"
    assert error["value"].startswith("runtime: ValueError: seven")
    assert error["remedy"].startswith("Mend the evaluator")


@pytest.mark.parametrize("raising", [True, False])
def test_check_probes_the_behaviour_of_seeds_before_it_measures_them(
    evoq: Evoq, tmp_path: Path, raising: bool
):
    what = "raise ValueError('seven')" if raising else "return {'kind': 7}"
    probe = f"\n\ndef probe_behaviour(program_path):\n    {what}\n"
    folder = problem_folder(tmp_path / "problem", evaluator=EVALUATOR + probe)

    result = evoq("check", folder, "--json")

    [seed] = result.json["seeds"]
    assert result.code == raising
    assert seed["stages"][0] == "probe_behaviour"
    if raising:
        assert seed["stages"] == ["probe_behaviour"]
        assert result.json["error"]["value"].startswith(
            "runtime: in probe_behaviour: ValueError: seven"
        )
        assert "failed, runtime after" in result.err
    else:
        assert seed["fitness"] == -6.5


def test_check_names_the_stage_at_which_a_seed_stops(evoq: Evoq, tmp_path: Path):
    crashing = STAGED.replace("return evaluate(program_path)", "raise ValueError('seven')")
    folder = problem_folder(tmp_path / "problem", evaluator=crashing, config=CASCADE)

    result = evoq("check", folder, "--json")
    document = result.json

    assert result.code == 0
    assert "stops after evaluate_stage1 with fitness 0, below the threshold 0.5" in result.err
    assert "A run can begin, with the metrics that its seeds reached" in result.err
    assert document["usable"] is True
    [seed] = document["seeds"]
    assert seed["stages"] == ["evaluate_stage1"]
    assert seed["fitness"] == 0.0
    assert seed["stopped"] == {"stage": "evaluate_stage1", "fitness": 0.0, "threshold": 0.5}


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

    result = evoq("check", folder, "--json")

    assert result.code == 1
    [seed] = result.json["seeds"]
    assert seed["failure"]["kind"] == kind
    assert seed["failure"]["detail"]
    assert result.json["usable"] is False


def test_an_evaluator_that_cannot_be_imported_is_an_error_with_the_cause(
    evoq: Evoq, tmp_path: Path
):
    folder = problem_folder(tmp_path / "problem", evaluator=f"import no_such_module\n{EVALUATOR}")

    result = evoq("check", folder, "--json")

    assert result.code == 1
    assert result.json["error"]["kind"] == "evaluator"
    assert "no_such_module" in result.json["error"]["what"]
    assert "Traceback" not in result.err


def test_a_package_that_an_evaluator_lacks_is_an_error_with_the_remedy(evoq: Evoq, tmp_path: Path):
    lacking = f"import nowhere_to_be_found\n{EVALUATOR}"

    result = evoq("check", problem_folder(tmp_path / "problem", evaluator=lacking))

    assert result.code == 1
    assert "No module named 'nowhere_to_be_found'" in result.err
    assert "requirements.txt" in result.err


def test_evaluate_answers_in_the_order_of_the_files(evoq: Evoq, tmp_path: Path):
    folder = problem_folder(tmp_path / "problem")
    values = {"far.py": "0.0", "near.py": "9.5", "loud.py": "1 / 0", "broken.py": "("}
    for name, value in values.items():
        (tmp_path / name).write_text(f"def value():\n    return {value}\n")
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00")
    files = [tmp_path / name for name in (*values, "binary.py")]

    result = evoq("evaluate", folder, *files, "--json")

    assert result.code == 0
    assert [measured["file"] for measured in result.json] == [str(file) for file in files]
    assert [measured["fitness"] for measured in result.json] == [-10.0, -0.5, None, None, None]
    kinds = [
        measured["failure"]["kind"] if measured["failure"] else None for measured in result.json
    ]
    assert kinds == [None, None, "runtime", "syntax", "syntax"]
    assert all(measured["verified"] for measured in result.json[:2])


def test_evaluate_goes_through_every_stage(evoq: Evoq, tmp_path: Path):
    config = "evaluator:\n  cascade_thresholds: [0.5]\n"
    folder = problem_folder(tmp_path / "problem", evaluator=STAGED, config=config)

    result = evoq("evaluate", folder, folder / "initial_program.py", "--json")

    [measured] = result.json
    assert measured["stages"] == ["evaluate_stage1", "evaluate_stage2"]
    assert measured["fitness"] == -6.5
    assert measured["metrics"]["stage1"] == 1.0


def test_compatible_mode_is_labelled_unverified(evoq: Evoq, tmp_path: Path):
    folder = problem_folder(tmp_path / "problem")

    result = evoq(
        "evaluate", folder, folder / "initial_program.py", "--mode", "compatible", "--json"
    )

    [measured] = result.json
    assert (measured["fitness"], measured["verified"]) == (-6.5, False)


def test_a_program_file_that_is_missing_is_one_message(evoq: Evoq, tmp_path: Path):
    result = evoq("evaluate", problem_folder(tmp_path / "problem"), "absent.py", "--json")

    assert result.code == 1
    assert "absent.py" in result.json["error"]["what"]


@pytest.mark.parametrize("option", [("--sandbox", "cage"), ("--mode", "wild")])
def test_a_sandbox_or_mode_that_does_not_exist_is_wrong_usage(
    evoq: Evoq, tmp_path: Path, option: tuple[str, str]
):
    folder = problem_folder(tmp_path / "problem")

    result = evoq("evaluate", folder, folder / "initial_program.py", *option, "--json")

    assert result.code != 0
    assert option[1] in str(result.json["error"])


READER = EVALUATOR.replace(
    "    return {", "    text = open(program_path).read()\n    return {'size': len(text), ", 1
)


def test_check_explains_a_seed_that_measures_differently_in_the_other_mode(
    evoq: Evoq, tmp_path: Path
):
    folder = problem_folder(tmp_path / "problem", evaluator=READER)

    result = evoq("check", folder)
    quiet = evoq("check", folder, "--set", "sandbox.compare_modes=false")

    assert result.code == 0
    assert "size is" in result.err
    assert "EVOQ_PROGRAM_SOURCE" in result.err
    assert "size is" not in quiet.err


def test_a_failure_of_one_mode_alone_is_quoted(evoq: Evoq, tmp_path: Path):
    evaluator = EVALUATOR.replace(
        "    return {", "    class Mine(program.Theirs):\n        pass\n\n    return {", 1
    )
    program = "class Theirs:\n    pass\n\n\ndef value():\n    return 3.5\n"
    folder = problem_folder(tmp_path / "problem", evaluator=evaluator, program=program)

    result = evoq("check", folder)

    assert "failure is runtime (CannotCross: the evaluator derives a class" in result.err
    assert "in guarded and no failure in compatible mode" in result.err


ARTIFACTS = """\
def evaluate(program_path):
    return {"speed": 0.0, "size": 2.0, "why": "cargo: no network; api_key=hunter2-hunter2"}
"""


@pytest.mark.parametrize("command", ["check", "evaluate"])
def test_a_score_comes_with_what_it_is_the_mean_of_and_with_artifacts_without_secrets(
    evoq: Evoq, tmp_path: Path, command: str
):
    folder = problem_folder(tmp_path / "problem", evaluator=ARTIFACTS)
    files = [folder / "initial_program.py"] if command == "evaluate" else []

    result = evoq(command, folder, *files, "--json")
    document = result.json

    assert "artifact why: cargo: no network; api_key=<REDACTED>" in result.err
    [seed] = document["seeds"] if command == "check" else document
    assert seed["artifacts"] == {"why": "cargo: no network; api_key=<REDACTED>"}
    if command == "check":
        assert "fitness: the mean of size, speed, because the evaluator returns no" in result.err
        assert "never names `combined_score`" in result.err


def text_folder(folder: Path) -> Path:
    problem_folder(folder, evaluator="def evaluate(path):\n    return {'combined_score': 1.0}\n")
    (folder / "initial_program.py").unlink()
    (folder / "initial_program.txt").write_text("Answer briefly.\n")
    return folder


CONSTANT = "# EVOLVE-BLOCK-START\ndef value():\n    return None\n# EVOLVE-BLOCK-END\n"


@pytest.mark.parametrize("command", ["check", "run"])
def test_a_text_that_no_operator_can_change_is_refused_before_the_first_proposal(
    evoq: Evoq, tmp_path: Path, command: str
):
    result = evoq(command, text_folder(tmp_path / "problem"))

    assert result.code == (0 if command == "check" else 2)
    said = result.out + result.err
    assert "no proposal could change the program" in said
    assert "'mutate' edits Python, and this program is 'text'" in said
    assert "Name a model" in said


@pytest.mark.parametrize("command", ["check", "run"])
def test_a_python_program_without_anything_to_edit_is_refused(
    evoq: Evoq, tmp_path: Path, command: str
):
    evaluator = "def evaluate(path):\n    return {'combined_score': 1.0}\n"
    folder = problem_folder(tmp_path / "problem", program=CONSTANT, evaluator=evaluator)

    result = evoq(command, folder)

    assert result.code == (0 if command == "check" else 2)
    assert "No edit made a new program of its parent" in result.out + result.err


def test_a_problem_that_can_be_measured_and_needs_a_model_says_so_in_its_document(
    evoq: Evoq, tmp_path: Path
):
    result = evoq("check", text_folder(tmp_path / "problem"), "--json")

    assert result.code == 0
    assert result.json["usable"] is True
    assert result.json["seeds"][0]["fitness"] == 1.0
    assert "Name a model, as --set llm.model=NAME" in result.json["needs"]


def test_a_model_that_no_operator_asks_is_asked_by_one_that_the_remedy_names(
    evoq: Evoq, tmp_path: Path
):
    folder = text_folder(tmp_path / "problem")
    model = ["--set", "llm.model=mock", "--set", "llm.base_url=http://127.0.0.1:1/v1"]
    only = ["--set", "search.operators={mutate: 1}"]

    needs = evoq("check", folder, "--json", *model, *only).json["needs"]
    [other] = re.findall(r"--set '([^']+)'", needs)

    assert evoq("check", folder, "--json", *model, "--set", other).json["needs"] == ""
    assert evoq("check", folder, "--json", *model).json["needs"] == ""


def test_a_text_can_be_changed_by_a_model(evoq: Evoq, tmp_path: Path):
    folder = text_folder(tmp_path / "problem")
    model = ["--set", "llm.model=mock", "--set", "llm.base_url=http://127.0.0.1:1/v1"]

    result = evoq("check", folder, "--json", *model)

    assert result.code == 0
    assert result.json["usable"] is True


@pytest.mark.parametrize("command", ["check", "evaluate"])
def test_requirements_are_installed_whatever_image_the_environment_names(
    evoq: Evoq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
):
    monkeypatch.setenv("EVOQ_SANDBOX__IMAGE", "evoqueue-sandbox:1")
    folder = problem_folder(tmp_path / "problem")
    (folder / "requirements.txt").write_text("./missing\n")
    program = [folder / "initial_program.py"] if command == "evaluate" else []

    result = evoq(command, folder, *program)
    named = evoq(command, folder, *program, "--set", "sandbox.image=evoqueue-sandbox:1")

    assert result.code != 0
    assert "requirements.txt, line 1: './missing' is not in the problem's folder" in result.err
    assert named.code == 0, named.err
