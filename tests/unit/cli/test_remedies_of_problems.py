"""Each remedy of a problem that cannot be read is carried out, and the refusal is gone."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import app.adapters.problems.callables
import app.adapters.problems.described.description
import app.adapters.problems.described.problem
import app.adapters.problems.files
import app.adapters.problems.funsearch.problem
import app.adapters.problems.funsearch.specification
import app.adapters.problems.inputs
import app.adapters.problems.loading
import app.adapters.problems.openevolve.checkpoint
import app.adapters.problems.openevolve.config_yaml
import app.adapters.problems.openevolve.evaluator_source
import app.adapters.problems.openevolve.folder
import app.adapters.problems.openevolve.translation
import app.adapters.problems.options
import app.adapters.problems.yaml_text
from app.adapters.problems import files, load, reload
from app.adapters.problems.callables import source_of
from app.domain.problem import ProblemError
from tests.unit.cli.remedies import is_carried_out, remedies, unprivileged

PROGRAM = "# EVOLVE-BLOCK-START\ndef f(x):\n    return x\n# EVOLVE-BLOCK-END\n"
EVALUATOR = "def evaluate(program_path):\n    return {'combined_score': 1.0}\n"
STAGE = "def evaluate_stage1(program_path):\n    return {'combined_score': 1.0}\n"
FOLDER = {"initial_program.py": PROGRAM, "evaluator.py": EVALUATOR}
DESCRIPTION = "seeds: {start: initial_program.py}\nstages: [{name: evaluate}]\n"
DESCRIBED = FOLDER | {"problem.yaml": DESCRIPTION}
RUN = "@funsearch.run\ndef evaluate(n):\n    return priority(n)\n\n"
EVOLVE = "@funsearch.evolve\ndef priority(n):\n    return n\n"
SPECIFICATION = {"caps.py": f"import funsearch\n\n{RUN}{EVOLVE}"}
WITHOUT_INPUT = {"caps.py": SPECIFICATION["caps.py"].replace("evaluate(n)", "evaluate(n=8)")}
NO_INPUT = {"caps.py": SPECIFICATION["caps.py"].replace("evaluate(n)", "evaluate()")}
CHECKPOINT = {
    "old/checkpoint_1/metadata.json": json.dumps({"archive": ["a"]}),
    "old/checkpoint_1/programs/a.json": json.dumps({"code": PROGRAM, "metrics": {}}),
}


@dataclass(frozen=True, slots=True)
class Given:
    """A problem on the disk, and how it is named.

    Attributes:
      files: Relative path to text or bytes; a number stands for so many bytes.
      options: By the last part of their names; "{}" in a value stands for the folder.
      named: The paths that are given, relative to the folder.
      config: The file that --config names.
    """

    files: Mapping[str, str | bytes | int] = field(default_factory=lambda: FOLDER)
    options: Mapping[str, Any] = field(default_factory=dict)
    named: Sequence[str] = (".",)
    config: str | None = None
    strict: bool = False

    def load(self, folder: Path) -> None:
        """Writes the files and loads the problem."""
        for name, contents in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            match contents:
                case str():
                    path.write_text(contents)
                case bytes():
                    path.write_bytes(contents)
                case int():
                    with path.open("wb") as file:
                        file.truncate(contents)
        load(
            [folder / name for name in self.named],
            config=folder / self.config if self.config else None,
            strict=self.strict,
            options={
                name if "." in name else f"problem.{name}": value.replace("{}", str(folder))
                if isinstance(value, str)
                else value
                for name, value in self.options.items()
            },
        )


@dataclass(frozen=True, slots=True)
class Row:
    """A refusal, with the words of its remedy and what carries it out.

    Attributes:
      given: A problem that is refused.
      remedy: The words of the remedy.
      carried_out: Problems in place of `given`, once for each alternative that the remedy names.
    """

    given: Given
    remedy: str
    carried_out: Sequence[Given]


def folder(**changed: str | bytes | int) -> Given:
    """Returns a folder of OpenEvolve's form; the names have `_` for the last dot."""
    names = {name: ".".join(name.rsplit("_", 1)) for name in changed}
    return Given(FOLDER | {names[name]: contents for name, contents in changed.items()})


def config(text: str, **others: Any) -> Given:
    return Given(FOLDER | {"config.yaml": text}, **others)


def described(text: str, **others: Any) -> Given:
    return Given(DESCRIBED | {"problem.yaml": text}, **others)


def option(name: str, value: Any, given: Given = Given()) -> Given:
    return replace(given, options={**given.options, name: value})


SPEC = Given(SPECIFICATION, named=["caps.py"])
LARGE = files.MAX_BYTES + 1
DATA = Given({f"p/{name}": text for name, text in FOLDER.items()}, named=["p"])
ROWS = [
    Row(
        Given(SPECIFICATION | {"c.yaml": "a: 1\n"}, {"inputs": 8}, ["caps.py"], "c.yaml"),
        "Leave --config out",
        [Given(SPECIFICATION, {"inputs": 8}, ["caps.py"])],
    ),
    Row(
        folder(large_bin=LARGE),
        "Keep large data outside the problem's folder, and name it with --set problem.mounts=PATH",
        [option("mounts", "{}/large.bin", replace(DATA, files={**DATA.files, "large.bin": LARGE}))],
    ),
    Row(
        Given(FOLDER | {"one.bin": LARGE - 9, "two.bin": 99}, named=["initial_program.py"]),
        "Keep initial program, evaluator and what they need in a folder of their own",
        [replace(DATA, files={**DATA.files, "one.bin": LARGE - 9, "two.bin": 99})],
    ),
    Row(
        option("data", "{}/data", replace(DATA, files={**DATA.files, "data/large.bin": LARGE})),
        "name it with --set problem.mounts=PATH in place of problem.data",
        [option("mounts", "{}/data", replace(DATA, files={**DATA.files, "data/large.bin": LARGE}))],
    ),
    Row(
        option(
            "data",
            "{}/large.bin,{}/other.bin",
            replace(DATA, files={**DATA.files, "large.bin": LARGE - 9, "other.bin": 99}),
        ),
        "A problem has at most 4000 files and 64 MiB",
        [
            option(
                "mounts",
                "{}/large.bin,{}/other.bin",
                replace(DATA, files={**DATA.files, "large.bin": LARGE - 9, "other.bin": 99}),
            )
        ],
    ),
    Row(
        option(
            "inputs", "{}/inputs.json", replace(SPEC, files=SPECIFICATION | {"inputs.json": LARGE})
        ),
        "give fewer of them",
        [
            option(
                "inputs",
                "{}/inputs.json",
                replace(SPEC, files=SPECIFICATION | {"inputs.json": "[8]"}),
            )
        ],
    ),
    Row(
        Given(FOLDER | {"a\nb.txt": "x"}),
        "Rename it, with letters that can be printed",
        [Given(FOLDER | {"ab.txt": "x"})],
    ),
    Row(
        folder(evaluator_py=b"x = '\xff'\n"),
        "Save the file as UTF-8 text",
        [Given()],
    ),
    Row(folder(evaluator_py=""), "Fill it, or remove it", [Given()]),
    Row(
        option("data", "{}/a:b", replace(DATA, files={**DATA.files, "a:b": "x"})),
        "Rename it",
        [option("data", "{}/ab", replace(DATA, files={**DATA.files, "ab": "x"}))],
    ),
    Row(
        option(
            "data", "{}/a/n,{}/b/n", replace(DATA, files={**DATA.files, "a/n": "x", "b/n": "y"})
        ),
        "Rename one, or put both into one folder and name the folder",
        [
            option(
                "data", "{}/a/n,{}/b/m", replace(DATA, files={**DATA.files, "a/n": "x", "b/m": "y"})
            ),
            option("data", "{}/c", replace(DATA, files={**DATA.files, "c/a/n": "x", "c/b/n": "y"})),
        ],
    ),
    Row(
        option("data", ",", DATA),
        "Name a file, a folder with files, or several separated by commas",
        [
            option("data", value, replace(DATA, files={**DATA.files, "d/n": "x", "m": "y"}))
            for value in ("{}/m", "{}/d", "{}/m,{}/d")
        ],
    ),
    Row(
        option("data", "{}/m", DATA),
        "Check the spelling of the path",
        [option("data", "{}/n", replace(DATA, files={**DATA.files, "n": "x"}))],
    ),
    Row(
        option("mounts", "{}/m", DATA),
        "Check the spelling of the path. It must exist here and on every worker",
        [option("mounts", "{}/n", replace(DATA, files={**DATA.files, "n": "x"}))],
    ),
    Row(
        option("mounts", "{}/n", Given(FOLDER | {"n": "x", "data/n": "y"})),
        "Write NAME=PATH, with another name",
        [option("mounts", "other={}/n", Given(FOLDER | {"n": "x", "data/n": "y"}))],
    ),
    Row(
        option("mounts", "{}/a b", Given(FOLDER | {"a b": "x"})),
        "Write NAME=PATH; a name has letters, digits, `.`, `_` and `-`",
        [option("mounts", "a-b={}/a b", Given(FOLDER | {"a b": "x"}))],
    ),
    Row(
        option(
            "mounts", "{}/a/n,{}/b/n", replace(DATA, files={**DATA.files, "a/n": "", "b/n": ""})
        ),
        "Write NAME=PATH, with another name for one of them",
        [
            option(
                "mounts",
                "{}/a/n,m={}/b/n",
                replace(DATA, files={**DATA.files, "a/n": "", "b/n": ""}),
            )
        ],
    ),
    Row(
        option(
            "data", "{}/one", replace(DATA, files={**DATA.files, "one": "a", "p/data/one": "b"})
        ),
        "Rename one of them",
        [
            option(
                "data", "{}/two", replace(DATA, files={**DATA.files, "two": "a", "p/data/one": "b"})
            )
        ],
    ),
    Row(
        SPEC,
        "Give the inputs, as --set problem.inputs=8 or 3,4,5 or the path of a file",
        [
            option("inputs", value, replace(SPEC, files=SPECIFICATION | {"a.json": "[8]"}))
            for value in (8, "3,4,5", "{}/a.json")
        ],
    ),
    Row(
        option("inputs", 8, Given(NO_INPUT, named=["caps.py"])),
        "Leave the option out",
        [Given(NO_INPUT, named=["caps.py"])],
    ),
    Row(
        option("inputs", "a, b", SPEC),
        "Write inputs as 3,4,5 or [[11, 4], [12, 5]], or give a file of JSON with a list or an "
        "object; quote texts",
        [
            option("inputs", value, replace(SPEC, files=SPECIFICATION | {"a.json": '{"a": 1}'}))
            for value in ("3,4,5", "[[11, 4], [12, 5]]", "{}/a.json", "'a', 'b'")
        ],
    ),
    Row(
        option("inputs", 8, Given({"caps.py": f"{RUN}{EVOLVE}{EVOLVE}"}, named=["caps.py"])),
        "Decorate exactly one top-level function",
        [option("inputs", 8, SPEC)],
    ),
    Row(
        option(
            "inputs",
            8,
            Given(
                {"caps.py": "@funsearch.run\n@funsearch.evolve\ndef evaluate(n):\n    return n\n"},
                named=["caps.py"],
            ),
        ),
        "Decorate two functions",
        [option("inputs", 8, SPEC)],
    ),
    Row(
        option("inputs", 8),
        "Leave it out; it is for the format",
        [Given(), option("inputs", 8, SPEC)],
    ),
    Row(
        option("checkpoint", "{}/old", DATA),
        "Name a folder with metadata.json and programs/, or one that holds such",
        [
            option("checkpoint", name, replace(DATA, files={**DATA.files, **CHECKPOINT}))
            for name in ("{}/old", "{}/old/checkpoint_1")
        ],
    ),
    Row(config("- a\n"), "Write `key: value` lines", [config("random_seed: 1\n")]),
    Row(
        config("random_seed: many\n"),
        "Correct the value, or remove the key to have the default",
        [config("random_seed: 1\n"), Given()],
    ),
    Row(
        config("evaluator: {timeout: 0}\n"),
        "Correct the value, or remove the key to have the default",
        [config("evaluator: {timeout: 5}\n"), config("evaluator: {}\n")],
    ),
    Row(
        config("random_seed: [1\n"),
        "Correct the syntax on or just above that line",
        [config("random_seed: 1\n")],
    ),
    Row(config("a: \x01\n"), "Correct the syntax of the file", [config("random_seed: 1\n")]),
    Row(
        folder(evaluator_py="x = 1\n"),
        "Define `def evaluate(program_path):` that returns a dict of metrics",
        [Given()],
    ),
    Row(
        Given(
            FOLDER
            | {"evaluator.py": STAGE, "config.yaml": "evaluator: {cascade_evaluation: false}\n"}
        ),
        "or switch `cascade_evaluation` on",
        [
            Given(
                FOLDER
                | {"evaluator.py": STAGE, "config.yaml": "evaluator: {cascade_evaluation: true}\n"}
            )
        ],
    ),
    Row(folder(evaluator_py="def evaluate(:\n"), "Correct the line", [Given()]),
    Row(folder(evaluator_py=f"x = {'-' * 90_000}1\n"), "Correct the file", [Given()]),
    Row(
        Given({"evaluator.py": EVALUATOR}),
        "Add initial_program.py (any extension), or mark one file with EVOLVE-BLOCK-START",
        [
            Given({"evaluator.py": EVALUATOR, "initial_program.rs": "fn f() {}\n"}),
            Given({"evaluator.py": EVALUATOR, "mine.py": PROGRAM}),
        ],
    ),
    Row(
        Given({"initial_program.py": PROGRAM}),
        "Add evaluator.py with a function `evaluate(program_path)`",
        [Given()],
    ),
    Row(
        config("random_sed: 1\n", strict=True),
        "Correct the names, or leave --strict out",
        [config("random_seed: 1\n", strict=True), config("random_sed: 1\n")],
    ),
    Row(
        config("prompt: {template_dir: t}\n"),
        "Give its path relative to the file",
        [Given(FOLDER | {"config.yaml": "prompt: {template_dir: u}\n", "u/diff_user.txt": "x"})],
    ),
    Row(
        Given(named=["a", "b", "c"]),
        "Check the spelling of the path",
        [Given(), Given(named=["initial_program.py", "evaluator.py"])],
    ),
    Row(
        Given(FOLDER | {"a.py": "", "b.py": ""}, named=["a.py", "b.py", "evaluator.py"]),
        "Give one folder, or an initial program and an evaluator",
        [Given(), Given(named=["initial_program.py", "evaluator.py"])],
    ),
    Row(
        Given({"evaluator.py": EVALUATOR, "a.py": PROGRAM, "b.py": PROGRAM}),
        "Name the one that is meant, followed by the evaluator",
        [
            Given(
                {"evaluator.py": EVALUATOR, "a.py": PROGRAM, "b.py": PROGRAM},
                named=["b.py", "evaluator.py"],
            )
        ],
    ),
    Row(
        config("diff_pattern: '(a)'\n"),
        "Capture the text to search for, then its replacement",
        [config("diff_pattern: '<<(.*?)==(.*?)>>'\n")],
    ),
    Row(
        config("database: {feature_bins: 0}\n"),
        "Correct the number",
        [config("database: {feature_bins: 5}\n")],
    ),
    Row(
        config("database: {feature_ranges: {size: [0, 1]}}\n"),
        "Write `NAME: [LOW, HIGH]`; the axes are complexity, diversity",
        [config("database: {feature_ranges: {complexity: [0, 1]}}\n")],
    ),
    Row(
        option("sandbox.wall_seconds", 0),
        "Correct the value, or leave the option out",
        [option("sandbox.wall_seconds", 5), Given()],
    ),
    Row(
        option("sandbox.mode", "open"),
        "Choose one of guarded, compatible",
        [option("sandbox.mode", "guarded"), option("sandbox.mode", "compatible")],
    ),
    Row(
        option("allow_imports", "numpy os.path"),
        "Write names such as `numpy` or `os.path`, separated by commas",
        [option("allow_imports", "numpy,os.path")],
    ),
    Row(
        option("environment", "PYTHONPATH=x"),
        "Write NAME=value; names of EVOQ_, LD_ and PYTHON are taken",
        [option("environment", "DATA=x")],
    ),
    Row(
        option("scoring", "sum", option("inputs", 8, SPEC)),
        "Choose one of last, mean",
        [option("scoring", value, option("inputs", 8, SPEC)) for value in ("last", "mean")],
    ),
    Row(
        option("speed", 1),
        "Options of a problem are problem.data, problem.mounts, problem.environment, "
        "problem.allow_imports, problem.deny_imports, problem.inputs, problem.scoring and "
        "problem.checkpoint",
        [
            option("environment", "A=b"),
            option("allow_imports", "math"),
            option("deny_imports", "math"),
        ],
    ),
    Row(
        described(DESCRIPTION.replace("initial", "missing")),
        "Correct the path, relative to problem.yaml, or add the file",
        [
            Given(DESCRIBED),
            Given(
                DESCRIBED
                | {
                    "problem.yaml": DESCRIPTION.replace("initial", "missing"),
                    "missing_program.py": PROGRAM,
                }
            ),
        ],
    ),
    Row(
        described(f"{DESCRIPTION}mode: compatible\nhidden: [evaluator.py]\n"),
        "Measure in guarded mode, or leave `hidden` out",
        [
            described(f"{DESCRIPTION}mode: guarded\nhidden: [evaluator.py]\n"),
            described(f"{DESCRIPTION}mode: compatible\n"),
        ],
    ),
    Row(
        described(f"{DESCRIPTION}mode: compatible\nplayers: 2\n"),
        "Measure in guarded mode; its programs are Python",
        [described(f"{DESCRIPTION}mode: guarded\nplayers: 2\n")],
    ),
    Row(
        Given(
            DESCRIBED
            | {"problem.yaml": f"{DESCRIPTION}requirements: [numpy]\n", "requirements.txt": "a\n"}
        ),
        "Keep one of the two",
        [
            described(f"{DESCRIPTION}requirements: [numpy]\n"),
            Given(DESCRIBED | {"requirements.txt": "a\n"}),
        ],
    ),
    Row(
        described(f"{DESCRIPTION}speed: 1\n"),
        "docs/problem-yaml.md lists every key, docs/problem.schema.json with its type",
        [described(f"{DESCRIPTION}max_code_chars: 900\n")],
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.remedy[:40])
def test_a_remedy_that_is_carried_out_ends_the_refusal(row: Row, tmp_path: Path) -> None:
    with pytest.raises(ProblemError) as caught:
        row.given.load(tmp_path / "given")
    assert row.remedy in caught.value.remedy, caught.value.remedy

    for number, given in enumerate(row.carried_out):
        given.load(tmp_path / str(number))


@pytest.mark.parametrize(
    "evaluator", ["def probe_behaviour(f):\n    return 1\n", STAGE.replace("stage1", "stage2")]
)
def test_a_switch_that_would_not_help_is_not_advised(evaluator: str, tmp_path: Path) -> None:
    given = folder(evaluator_py=evaluator)
    with pytest.raises(ProblemError) as caught:
        given.load(tmp_path)

    assert "cascade_evaluation" not in caught.value.remedy


def _scores(function: Any) -> float:
    return float(function(2))


def _doubled(x: float) -> float:
    return 2 * x


def test_a_function_at_the_top_level_of_a_file_can_evolve() -> None:
    with pytest.raises(ProblemError) as caught:
        source_of(lambda x: x, _scores)
    assert "Define it with `def` at the top level of a file" in caught.value.remedy

    assert source_of(_doubled, _scores).files


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("evaluator.py", "Check the permissions of the file."),
        (".", "Check the path and its permissions."),
    ],
)
def test_files_that_may_be_read_are_a_problem(name: str, remedy: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        mine = Path(place) / "mine"
        folder().load(mine)
        (mine / name).chmod(0)
        with unprivileged(), pytest.raises(ProblemError) as caught:
            load([mine])
        assert caught.value.remedy == remedy

        (mine / name).chmod(0o755)
        with unprivileged():
            load([mine])


def test_a_version_that_reads_the_format_builds_the_problem() -> None:
    contents = {name: text.encode() for name, text in DESCRIBED.items()}
    with pytest.raises(ProblemError) as caught:
        reload("later", "p", contents, {})
    named = caught.value.remedy.removeprefix("This version reads ").rstrip(".").split(", ")

    assert "problem" in named
    options = {"problem.config": "problem.yaml"}
    assert reload("problem", "p", contents, options).seeds


OTHERWISE = {
    "Check the permissions of the file.": "the test of files that may be read",
    "Check the path and its permissions.": "the test of files that may be read",
    "This version reads {}.": "the test of a version",
    "Define it with `def` at the top level of a file; what it uses must be imports, constants, "
    "functions and classes of that file.": "the test above",
}
"""Remedies that are carried out elsewhere, or cannot be."""

ADAPTERS = app.adapters.problems


@pytest.mark.parametrize(
    "module",
    [
        ADAPTERS.callables,
        ADAPTERS.described.description,
        ADAPTERS.described.problem,
        ADAPTERS.files,
        ADAPTERS.funsearch.problem,
        ADAPTERS.funsearch.specification,
        ADAPTERS.inputs,
        ADAPTERS.loading,
        ADAPTERS.openevolve.checkpoint,
        ADAPTERS.openevolve.config_yaml,
        ADAPTERS.openevolve.evaluator_source,
        ADAPTERS.openevolve.folder,
        ADAPTERS.openevolve.translation,
        ADAPTERS.options,
        ADAPTERS.yaml_text,
    ],
    ids=lambda module: module.__name__,
)
def test_every_remedy_of_a_module_that_reads_problems_is_carried_out_here(module: Any) -> None:
    tried = [row.remedy for row in ROWS]

    for text in remedies(module):
        assert text in OTHERWISE or is_carried_out(text, tried), text
