"""Programs of several files in a `problem.yaml`."""

from pathlib import Path

import pytest
import yaml

from app.adapters.problems import loading
from app.domain.evaluation import Trial
from app.domain.problem import Mode, Problem, ProblemError

FILES = {
    "evaluator.py": "def measure(folder):\n    return {'combined_score': 1.0}\n",
    "secret.json": "[1]",
    "library/src/main.py": "from table import get\n\n\ndef answer(x):\n    return get(x)\n",
    "library/src/table.py": "def get(x):\n    return x\n",
    "library/params.json": "{}\n",
    "library/README.md": "# Library\n",
    "library/hidden.txt": "expected",
    "seeds/fast/src/table.py": "def get(x):\n    return x or 0\n",
}
PROGRAM = {
    "root": "library",
    "evolve": ["src/**/*.py", "params.json"],
    "entry": "src/main.py",
    "context": ["README.md"],
}
DESCRIPTION = {"program": PROGRAM, "stages": [{"name": "measure"}]}


def problem(tmp_path: Path, files: dict[str, str] = FILES, **changed: object) -> Problem:
    text = yaml.safe_dump({**DESCRIPTION, **changed})
    for path, contents in {**files, "problem.yaml": text}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(contents)
    return loading.load([tmp_path])


def refused(tmp_path: Path, files: dict[str, str] = FILES, **changed: object) -> str:
    with pytest.raises(ProblemError) as error:
        problem(tmp_path, files, **changed)
    return str(error.value)


def test_files_that_evolve_are_the_program_and_the_others_are_fixed(tmp_path: Path) -> None:
    loaded = problem(tmp_path, hidden=["secret.json", "library/hidden.txt"])
    [seed] = loaded.seeds
    assert [file.path for file in seed.files] == ["params.json", "src/main.py", "src/table.py"]
    assert loaded.context == {"README.md": "# Library\n"}
    assert list(loaded.baselines) == ["start"]
    job = loaded.prepare(Trial("measure", (seed.id,)), {seed.id: seed})
    assert job.mode is Mode.GUARDED
    assert job.folder is not None
    assert (job.folder.entry, job.folder.copied) == ("src/main.py", False)
    [(suffix, contents)] = job.programs
    assert (suffix, len(contents)) == (".py", sum(job.folder.sizes))
    assert set(job.evaluator.fixed) == {"README.md"}
    assert set(job.evaluator.files) >= {"evaluator.py", "secret.json"}
    assert not any(path.startswith("library/") for path in job.evaluator.files)


def test_a_seed_is_a_folder_with_the_files_that_differ(tmp_path: Path) -> None:
    loaded = problem(tmp_path, seeds={"fast": "seeds/fast"})
    start, fast = loaded.seeds
    assert list(loaded.baselines) == ["start", "fast"]
    assert fast.focused("src/table.py").source == FILES["seeds/fast/src/table.py"]
    assert fast.focused("src/main.py").source == start.focused("src/main.py").source


def test_a_program_that_is_built_has_a_stage_that_builds(tmp_path: Path) -> None:
    built = {**PROGRAM, "build": {"command": ["make", "-s"], "seconds": 5.0}}
    loaded = problem(tmp_path, program=built)
    assert loaded.stages == ("build", "measure")
    [seed] = loaded.seeds
    job = loaded.prepare(Trial("build", (seed.id,)), {seed.id: seed})
    assert (job.mode, job.limits.wall_seconds) == (Mode.COMPATIBLE, 5.0)
    assert job.folder is not None
    assert job.folder.copied
    text = job.evaluator.files[job.evaluator.entry].decode()
    assert "['make', '-s']" in text
    assert "def measure(" in text


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"program": {**PROGRAM, "root": "nowhere"}}, "holds no file"),
        ({"program": {**PROGRAM, "root": "."}}, "not a folder below"),
        ({"program": {**PROGRAM, "root": "../library"}}, "not a folder below"),
        ({"program": {**PROGRAM, "evolve": ["lib/*.py"]}}, "matches no file"),
        ({"program": {**PROGRAM, "context": ["docs/*"]}}, "matches no file"),
        ({"program": {**PROGRAM, "entry": "src/none.py"}}, "does not hold the entry"),
        ({"program": {**PROGRAM, "evolve": ["params.json"]}}, "the entry does not evolve"),
        ({"program": {**PROGRAM, "entry": ""}, "mode": "guarded"}, "one Python file"),
        ({"program": {**PROGRAM, "build": {"command": ["make"]}}, "mode": "guarded"}, "a build"),
        ({"seeds": {"other": "seeds/none"}}, "not a folder with files"),
        ({"seeds": {"other": "library"}}, "does not evolve"),
        ({"program": {**PROGRAM, "roots": "x"}}, "roots"),
        ({"players": 2}, "one file"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(
    tmp_path: Path, changed: dict[str, object], words: str
) -> None:
    message = refused(tmp_path, **changed)
    assert words in message
    assert message.startswith("problem.yaml")


def test_a_file_that_evolves_is_text(tmp_path: Path) -> None:
    (tmp_path / "library").mkdir()
    (tmp_path / "library/params.bin").write_bytes(b"\xff\xfe\x00")
    changed = {**PROGRAM, "evolve": ["src/*.py", "params.bin"]}
    assert "not a text in UTF-8" in refused(tmp_path, program=changed)


def test_the_problem_is_the_same_when_it_is_read_from_the_ledger(tmp_path: Path) -> None:
    loaded = problem(tmp_path)
    again = loading.reload(loaded.format, loaded.name, loaded.files, loaded.options)
    assert (again.digest, again.seeds) == (loaded.digest, loaded.seeds)


LARGE = {**FILES, "library/large.md": "x" * 300_000}


@pytest.mark.parametrize(
    ("wrong", "remedied"),
    [
        ({"program": None}, {"program": PROGRAM}),
        ({"players": 2}, {}),
        ({"program": {**PROGRAM, "root": "."}}, {}),
        ({"program": {**PROGRAM, "context": ["*.md"]}}, {}),
        ({"program": {**PROGRAM, "entry": ""}, "mode": "guarded"}, {"mode": "guarded"}),
        (
            {"program": {**PROGRAM, "build": {"command": ["make"]}}, "mode": "guarded"},
            {"program": {**PROGRAM, "build": {"command": ["make"]}}, "mode": "compatible"},
        ),
    ],
)
def test_a_remedy_that_is_carried_out_ends_the_refusal(
    tmp_path: Path, wrong: dict[str, object], remedied: dict[str, object]
) -> None:
    refused(tmp_path, LARGE, **wrong)
    assert problem(tmp_path, LARGE, **remedied).seeds
