import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.groups import group

ROOT = Path(__file__).parents[2]
DYING = """
import os

def test_before():
    pass

def test_that_ends_its_process():
    os._exit(7)

def test_after():
    pass
"""
OTHERS = """
import os, pytest

class TestSome:
    @pytest.mark.parametrize("n", range(20))
    def test_many(self, n):
        with open(__file__ + ".processes", "a") as file:
            print(os.getpid(), file=file)

def test_that_fails():
    TestSome().test_many(0)
    assert False, "for a reason"

def test_that_is_skipped():
    pytest.skip("a lack")
"""


def run(folder: Path, *options: str, **modules: str) -> str:
    """Returns what pytest prints of some modules with the options of this project."""
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "--disable-plugin-autoload", "-p", "xdist"]
    command += ["-p", "tests.groups", *project["tool"]["pytest"]["ini_options"]["addopts"].split()]
    names = os.environ.keys() - {"PYTEST_XDIST_WORKER", "PYTEST_ADDOPTS"}
    done = subprocess.run(
        [*command, *options, "--rootdir", folder, "-c", folder / "pytest.ini", folder],
        cwd=ROOT,
        env={name: os.environ[name] for name in names} | {"COLUMNS": "500"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    return done.stdout


def test_a_module_is_a_group() -> None:
    assert group("tests/unit/test_logs.py::TestLines::test_one[a@b]") == "tests/unit/test_logs.py"


def test_the_tests_of_the_deployment_are_one_group() -> None:
    assert group("tests/e2e/test_chaos.py::test_it") == group("tests/e2e/test_compose.py::test_it")


def test_each_class_of_attacks_is_a_group() -> None:
    attacks = "tests/integration/test_sandbox_attacks.py::TestContainers"

    assert group(f"{attacks}::test_one[x]") == attacks


def test_a_group_is_run_by_one_process_and_its_failures_can_be_run_again(tmp_path: Path) -> None:
    modules = {"test_others": OTHERS, "test_more": OTHERS, "test_few": "def test_it(): pass"}
    first = run(tmp_path, "-n", "2", **modules)
    processes = [set(path.read_text().split()) for path in tmp_path.glob("*.processes")]
    again = run(tmp_path, "--last-failed")

    assert re.search(r"FAILED \S*test_others\.py::test_that_fails - ", first)
    assert re.search(r"SKIPPED \[1\] \S*test_others\.py:\d+: a lack", first)
    assert "2 failed, 41 passed, 2 skipped in" in first
    assert [len(each) for each in processes] == [1, 1]
    assert "2 failed in" in again


def test_a_process_that_ends_fails_its_test_and_the_run(tmp_path: Path) -> None:
    printed = run(tmp_path, "-n", "2", test_dying=DYING, test_few="def test_it(): pass")

    assert re.search(r"FAILED \S*::test_that_ends_its_process - worker '\w+' crashed", printed)
    assert "worker restarting disabled" in printed
