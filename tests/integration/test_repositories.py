"""Repositories: problems whose programs have several files, from `evoq new` to a patch."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.cli import Evoq

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SPELLING = EXAMPLES / "spelling"
SIEVE = EXAMPLES / "prime_sieve"
SEEDS = range(1, 7)
CHECK = "import evaluator, sys; print(evaluator.wrong_answer(evaluator.load(sys.argv[1])))"


def test_check_names_what_evolves_and_what_is_never_shown(evoq: Evoq, tmp_path: Path):
    shown = evoq("check", SPELLING)
    document = evoq("check", SPELLING, "--json").json

    assert shown.code == 0
    assert "edits.py, main.py, params.json, table.py (4 files" in shown.out
    assert "prompts may show tests/test_answers.py" in shown.out
    assert "hidden files, files beside the root" in shown.out
    assert "measures alike in guarded and in compatible mode" in shown.out
    program = document["program"]
    assert list(program["evolve"]) == ["edits.py", "main.py", "params.json", "table.py"]
    assert (program["entry"], program["fixed"]) == ("main.py", 2)
    assert program["context"] == ["tests/test_answers.py"]
    asked = evoq("prompt", SPELLING, "--json").json
    assert program["prompt_tokens"] == asked["tokens"] > 100
    assert document["modes_compared"] is True


@pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")
def test_check_compares_no_modes_where_guarded_mode_cannot_measure(evoq: Evoq):
    document = evoq("check", SIEVE, "--json").json

    assert document["modes_compared"] is False
    assert document["program"]["entry"] == ""
    assert "program" not in evoq("check", EXAMPLES / "function_minimization", "--json").json


def test_a_folder_is_measured_and_prompted_in_the_place_of_the_first_seed(
    evoq: Evoq, tmp_path: Path
):
    folder = tmp_path / "changed"
    (folder / "tests").mkdir(parents=True)
    (folder / "params.json").write_text('{"alphabet": "abc", "most": 6}\n')
    (folder / "tests/test_answers.py").write_text("assert False\n")
    (tmp_path / "params.json").write_text("{}")
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "notes.txt").write_text("mine")
    binary = tmp_path / "binary"
    binary.mkdir()
    (binary / "main.py").write_bytes(b"\xff\xfe\x00")

    measured = evoq("evaluate", SPELLING, SPELLING / "library", folder, binary, "--json")
    prompted = evoq("prompt", SPELLING, "--program", folder, "--operator", "rewrite", "--json")
    file = evoq("evaluate", SPELLING, tmp_path / "params.json")
    nothing = evoq("evaluate", SPELLING, notes, "--json")

    first, changed, no_text = measured.json
    assert measured.code == 0
    assert first["failure"] is None
    assert "test_a_known_word_comes_first fails" in changed["failure"]["detail"]
    assert "not a text in UTF-8" in no_text["failure"]["detail"]
    assert '"alphabet": "abc"' in prompted.json["user"]
    assert file.code == 2
    assert "have several files, and this is no folder" in file.err
    assert nothing.code == 2
    assert "no file of the folder evolves" in nothing.json["error"]["what"]


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        ("edits.py", "yield word[:n] + word[n + 1 :]", "pass"),
        ("edits.py", "yield word[:n] + letter + word[n + 1 :]", "pass"),
        ("edits.py", "yield word[:n] + letter + word[n:]", "pass"),
        ("edits.py", "yield word[:n] + word[n + 1] + word[n] + word[n + 2 :]", "pass"),
        ("edits.py", "in range(len(word) + 1)", "in range(len(word))"),
        ("edits.py", "in range(len(word) + 1)", "in range(1, len(word) + 1)"),
        ("edits.py", "in range(len(word) - 1)", "in range(len(word) - 2)"),
        ("edits.py", "in range(len(word) - 1)", "in range(1, len(word) - 1)"),
        ("main.py", "[query] if query in table else []", "[]"),
        ("main.py", "word != query and word in table", "word in table"),
        ("main.py", "sorted(others)", "sorted(others)[::-1]"),
        ("params.json", '"most": 6', '"most": 5'),
        ("params.json", '"most": 6', '"most": 7'),
    ],
)
def test_each_wrong_library_is_refused_before_its_speed_is_measured(
    tmp_path: Path, path: str, before: str, after: str
):
    library = tmp_path / "library"
    shutil.copytree(SPELLING / "library", library)
    text = (library / path).read_text()
    assert before in text
    (library / path).write_text(text.replace(before, after, 1))

    done = subprocess.run(
        [sys.executable, "-c", CHECK, library],
        cwd=SPELLING,
        capture_output=True,
        text=True,
        check=True,
    )

    assert "is wrong" in done.stdout


@pytest.mark.usefixtures("servers")
@pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
def test_a_run_without_a_model_ends_with_a_patch_that_applies_and_passes_the_tests(
    evoq: Evoq, tmp_path: Path
):
    library, patch = tmp_path / "library", tmp_path / "better.patch"
    shutil.copytree(SPELLING / "library", library)

    # On a machine with other work a measured time may hide that a child is faster.
    for seed in SEEDS:
        name, results = f"spelled-{seed}", tmp_path / f"results-{seed}"
        run = evoq(
            *("run", SPELLING, "--no-model", "--reproducible", "--iterations", "12"),
            *("--seed", seed, "--name", name, "--out", results, "--json"),
        )
        assert run.code == 0, run.err
        if run.json["best"]["ordinal"] >= 0:
            break
    else:
        pytest.skip(f"no child of {len(SEEDS)} runs was measured to be faster")
    exported = evoq("export", name, "--patch", "--out", patch, "--json").json
    applied = subprocess.run(
        ["git", "apply", "--verbose", str(patch)],
        cwd=library,
        capture_output=True,
        text=True,
        check=False,
    )
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=library,
        capture_output=True,
        text=True,
        check=False,
    )

    assert exported["files"]
    assert applied.returncode == 0, applied.stderr
    assert tested.returncode == 0, tested.stdout
    best = run.json["best"]
    assert {path: (library / path).read_text() for path in best["files"]} == best["files"]
    assert (results / "best.patch").read_text() == patch.read_text()
    assert {path: (results / "best_program" / path).read_text() for path in best["files"]} == best[
        "files"
    ]
    shutil.rmtree(library)
    shutil.copytree(SPELLING / "library", library)
    committed = evoq("apply", name, library, "--json")
    assert committed.json["files"] == exported["files"]
