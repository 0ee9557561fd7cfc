"""What notebooks/rows.md names exists, and it has each row that the three documents state."""

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from app.cli.commands import COMMANDS
from tests.unit.cli.test_named_in_messages import options

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "notebooks" / "rows.md").read_text()
CAPABILITIES = ROOT.parent / "shared" / "capabilities.md"
"""Beside the checkout, and no part of it."""
_ROW = re.compile(r"^\| ([MPB]-\d+) \| ", re.MULTILINE)
_STATED = re.compile(r"^\| ([MPB]-\d+) \| [S!] |^\| (B-\d+) \| R ", re.MULTILINE)
_COMMAND = re.compile(r"`((?:pytest|evoq|python|make) [^`]+)`")
_PATH = re.compile(r"`((?:tests|docs|notebooks|benchmarks|infra)/[\w./-]+)`")


def named(program: str) -> Iterator[list[str]]:
    """Returns the arguments of each command of the page that calls a program."""
    for command in _COMMAND.findall(PAGE):
        name, *arguments = shlex.split(command)
        if name == program:
            yield arguments


@cache
def module(path: Path) -> dict[str, ast.stmt]:
    """Returns the functions and classes of a module by name."""
    kinds = ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef
    return {node.name: node for node in ast.parse(path.read_text()).body if isinstance(node, kinds)}


@cache
def contracts() -> dict[str, ast.stmt]:
    """Returns the classes that tests of several adapters inherit from."""
    paths = sorted((ROOT / "tests" / "contracts").glob("*.py"))
    return {name: node for path in paths for name, node in module(path).items()}


def has_test(found: ast.stmt | None, name: str) -> bool:
    """Returns whether a class has a test, or inherits one that it does not leave out."""
    if not isinstance(found, ast.ClassDef):
        return False
    if any(isinstance(node, ast.FunctionDef) and node.name == name for node in found.body):
        return True
    left_out = (node.targets[0] for node in ast.walk(found) if isinstance(node, ast.Assign))
    if any(isinstance(target, ast.Name) and target.id == name for target in left_out):
        return False
    bases = [base.id for base in found.bases if isinstance(base, ast.Name)]
    return any(has_test(contracts().get(base), name) for base in bases)


def exists(node: str) -> bool:
    """Returns whether pytest would collect something by this name."""
    path, *names = node.split("::")
    if not (ROOT / path).exists() or not names:
        return (ROOT / path).exists()
    found = module(ROOT / path).get(names[0])
    if len(names) == 1:
        return found is not None and names[0].lower().startswith("test")
    return has_test(found, names[1])


def test_every_test_and_path_of_the_page_exists() -> None:
    nodes = [node for arguments in named("pytest") for node in arguments]

    assert len(nodes) > 100
    assert [node for node in (*nodes, *_PATH.findall(PAGE)) if not exists(node)] == []


def test_every_command_and_option_of_the_page_exists() -> None:
    for command, *arguments in named("evoq"):
        assert command in COMMANDS
        # What follows `--` belongs to the command that a candidate runs.
        own = arguments[: arguments.index("--")] if "--" in arguments else arguments
        assert {one for one in own if one.startswith("--")} <= options(command)
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {target for [target] in named("make")} <= set(targets)


def test_every_benchmark_and_option_of_the_page_exists() -> None:
    for option, name, *arguments in named("python"):
        source = ROOT / f"{name.replace('.', '/')}.py"
        assert (option, source.exists()) == ("-m", True), name
        words = re.findall(r"\w+(?:-\w+)*", source.read_text())
        assert {one[2:] for one in arguments if one.startswith("--")} <= {*words}, name


def test_each_stated_row_has_one_line() -> None:
    if not CAPABILITIES.exists():
        pytest.skip(f"the list of stated rows, {CAPABILITIES}, is not beside the checkout")
    stated = [one or other for one, other in _STATED.findall(CAPABILITIES.read_text())]

    assert len(stated) > 80
    assert sorted(_ROW.findall(PAGE)) == sorted(stated)


@pytest.mark.parametrize(
    "node",
    [
        "tests/unit/test_absent.py",
        "tests/unit/test_rows.py::test_that_is_absent",
        "tests/engine/test_store.py::TestSqlStore::test_that_is_absent",
        "tests/kubernetes/test_sandbox_jobs.py::TestJobs::test_a_later_trial_pays_no_boot",
    ],
)
def test_a_name_that_does_not_exist_is_found(node: str) -> None:
    assert not exists(node)
