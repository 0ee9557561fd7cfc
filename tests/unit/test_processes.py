import os
import re
import subprocess
import sys
from pathlib import Path

DYING = """
    import os, pytest

    @pytest.fixture(scope="session", autouse=True)
    def server(tmp_path_factory):
        folder = tmp_path_factory.mktemp("server")
        yield
        print("stopped", folder.parent.name)

    def test_before():
        assert os.getpid() != {parent}

    def test_that_ends_its_process():
        os._exit(7)

    def test_after():
        pass
"""
OTHERS = """
    import pytest, warnings

    def test_that_fails():
        print("what it printed")
        assert False, "for a reason"

    @pytest.mark.parametrize("n", range(40))
    def test_many(n):
        pass

    def test_that_warns():
        warnings.warn("a remark")

    def test_that_is_skipped():
        pytest.skip("a lack")
"""


ORDERED = """
    import os, pathlib

    def test_that_needs_what_is_prepared():
        assert pathlib.Path(os.environ["EVOQ_TEST_PREPARED"]).read_text() == "by the first"
"""
PREPARING = """
    import os, pathlib, time

    def test_that_needs_nothing():
        time.sleep(0.5)
        part = pathlib.Path(os.environ["EVOQ_TEST_PREPARED"] + ".part")
        part.write_text("by the first")
        part.rename(os.environ["EVOQ_TEST_PREPARED"])

    def test_the_last_of_a_group():
        pass  # a process looks for its next group before it runs this one
"""
MODULES = {"test_dying.py": DYING, "test_others.py": OTHERS, "test_third.py": "def test_it(): pass"}


def run(folder: Path, *options: str, modules: dict[str, str] = MODULES, **environment: str) -> str:
    """Returns what pytest prints of some modules in two processes."""
    for name, text in modules.items():
        source = "\n".join(line.removeprefix("    ") for line in text.splitlines())
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(source.replace("{parent}", "os.getppid()"))
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "--disable-plugin-autoload", "-p", "tests.processes"]
    command += ["-n2", "-ra", "--rootdir", folder, "-c", folder / "pytest.ini", *options, folder]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        command, cwd=root, env=os.environ | environment, capture_output=True, text=True, timeout=100
    )
    return done.stdout


def test_a_process_that_ends_fails_its_test_and_no_other(tmp_path: Path) -> None:
    printed = run(tmp_path)

    assert re.search(r"FAILED \S*test_dying.py::test_that_ends_its_process", printed)
    assert "the process that ran this test ended with exit code 7" in printed
    assert "AssertionError: for a reason" in printed
    assert "what it printed" in printed
    assert printed.count("UserWarning: a remark") == 1
    assert re.search(r"SKIPPED \[1\] \S*test_others.py:\d+: a lack", printed)
    assert "2 failed, 44 passed, 1 skipped, 1 warning in" in printed


def test_a_run_that_stops_at_a_failure_says_so(tmp_path: Path) -> None:
    printed = run(tmp_path, "-x", "-k", "fails or before or after")

    assert "stopping after 1 failures" in printed
    assert "1 failed" in printed


def test_failures_can_be_run_again_in_one_process(tmp_path: Path) -> None:
    run(tmp_path, "-k", "not ends")
    printed = run(tmp_path, "-n0", "--last-failed")

    assert "1 failed" in printed
    assert "passed" not in printed


def test_what_needs_more_than_the_environment_waits_until_it_is_prepared(tmp_path: Path) -> None:
    modules = {"tests/e2e/test_a.py": ORDERED, "tests/unit/test_b.py": PREPARING}
    prepared = str(tmp_path / "prepared")
    printed = run(tmp_path, modules=modules, EVOQ_TEST_PREPARED=prepared)

    assert "3 passed" in printed
