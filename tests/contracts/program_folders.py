"""What every sandbox promises of a program of several files, in the folder that it evolves in."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from app.domain.evaluation import FailureKind
from app.domain.problem import Evaluator, Folder, Job, Mode
from app.ports.protocols import Sandbox
from tests.contracts.sandbox import LIMITS, kind, last_outcome, metrics

EVALUATOR = b"""
import os, sys

def entry(folder):
    sys.path.insert(0, folder + "/src")
    try:
        import main
    finally:
        del sys.path[0]
    return main

def evaluate(folder):
    return {"combined_score": entry(folder).total(5)}

def seen(folder):
    found = []
    for place, _, files in os.walk(folder, followlinks=True):
        found += [os.path.relpath(os.path.join(place, name), folder) for name in files]
    return {"files": sorted(found)}

def texts(folder):
    place = os.environ["EVOQ_PROGRAM_SOURCE"]
    with open(place + "/src/parts/table.py") as file:
        text = file.read()
    with open(place + "/data/fixed.txt") as file:
        return {"text": text, "fixed": file.read()}

def build(folder):
    with open(folder + "/docs/made.txt", "w") as file:
        file.write("made")
    os.rename(folder + "/docs/made.txt", folder + "/docs/guide.txt")
    return {"made": len(os.listdir(folder + "/docs"))}

def guide(folder):
    with open(folder + "/docs/guide.txt") as file:
        return {"guide": file.read()}
"""
FIXED = {
    "data/fixed.txt": b"fixed",
    "docs/guide.txt": b"guide",
    "src/shared.py": b"SCALE = 10\n",
}
FILES = {
    "data/numbers.json": b"[1, 2]",
    "src/main.py": b"""
import json, os
from parts.table import entry
from shared import SCALE

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

def total(n):
    with open(HERE + "/data/numbers.json") as file:
        numbers = json.load(file)
    with open(HERE + "/data/fixed.txt") as file:
        assert file.read() == "fixed"
    return sum(numbers) * SCALE + entry(n)
""",
    "src/parts/table.py": b"def entry(n):\n    return n + 1\n",
}


def folder_job(
    mode: Mode,
    files: Mapping[str, bytes] = FILES,
    function: str = "evaluate",
    *,
    copied: bool = False,
) -> Job:
    """Returns a job of a program with these files, beside `FIXED`."""
    evaluator = Evaluator("folders", {"evaluator.py": EVALUATOR}, fixed=FIXED)
    sizes = tuple(len(text) for text in files.values())
    folder = Folder(tuple(files), sizes, "src/main.py", copied)
    programs = ((".py", b"".join(files.values())),)
    return Job(evaluator, function, programs, LIMITS, mode, folder=folder)


class FolderContract:
    """Subclass it and provide the fixture `sandbox`, of any scope."""

    @pytest.fixture
    def sandbox(self) -> Sandbox:
        raise NotImplementedError

    @pytest.fixture(params=list(Mode), ids=lambda mode: str(mode.value))
    def mode(self, request: pytest.FixtureRequest) -> Mode:
        mode: Mode = request.param
        return mode

    def test_modules_find_each_other_and_the_fixed_files(
        self, sandbox: Sandbox, mode: Mode
    ) -> None:
        assert metrics(sandbox.run(folder_job(mode))) == {"combined_score": 36}
        changed = {**FILES, "src/parts/table.py": b"def entry(n):\n    return -n\n"}
        assert metrics(sandbox.run(folder_job(mode, changed))) == {"combined_score": 25}

    def test_a_guarded_evaluator_is_given_no_module_but_the_entry(
        self, sandbox: Sandbox, mode: Mode
    ) -> None:
        """One that it imported would run in its own process, with its rights."""
        files = {*FIXED, *FILES} - ({"src/parts/table.py"} if mode is Mode.GUARDED else set())
        found = metrics(sandbox.run(folder_job(mode, function="seen")))["files"]
        assert {name for name in found if "__pycache__" not in name} == files

    def test_the_texts_of_all_files_can_be_read(self, sandbox: Sandbox, mode: Mode) -> None:
        found = metrics(sandbox.run(folder_job(mode, function="texts")))
        assert found == {"text": FILES["src/parts/table.py"].decode(), "fixed": "fixed"}

    def test_a_failure_names_the_file_and_its_line(self, sandbox: Sandbox, mode: Mode) -> None:
        wrong = {**FILES, "src/parts/table.py": b"\ndef entry(n):\n    return n / 0\n"}
        outcome = sandbox.run(folder_job(mode, wrong))
        assert kind(outcome) is FailureKind.RUNTIME
        assert outcome.failure is not None
        assert "src/parts/table.py line 3, in entry: return n / 0" in outcome.failure.detail

    def test_a_module_that_does_not_parse_is_a_failure_of_its_syntax(
        self, sandbox: Sandbox, mode: Mode
    ) -> None:
        wrong = {**FILES, "src/parts/table.py": b"def entry(n) return n\n"}
        assert kind(sandbox.run(folder_job(mode, wrong))) is FailureKind.SYNTAX

    def test_no_program_changes_a_fixed_file(self, sandbox: Sandbox, mode: Mode) -> None:
        attack = (
            FILES["src/main.py"]
            + b"""
def total(n):
    done = 0
    for name in ("data/fixed.txt", "src/shared.py", "docs/guide.txt", "docs/new.txt"):
        path = os.path.realpath(HERE + "/" + name)
        for act in (lambda: open(path, "a").write("x"), lambda: os.chmod(path, 0o777),
                    lambda: os.unlink(path), lambda: os.rename(path, path + "2")):
            try:
                act()
            except OSError:
                continue
            done += 1
    return done
"""
        )
        outcome = sandbox.run(folder_job(mode, {**FILES, "src/main.py": attack}))
        assert metrics(outcome) == {"combined_score": 0}
        assert metrics(sandbox.run(folder_job(mode))) == {"combined_score": 36}

    def test_a_build_may_write_beside_copies(self, sandbox: Sandbox, mode: Mode) -> None:
        job = folder_job(mode, function="build", copied=True)
        assert metrics(sandbox.run(job)) == {"made": 1}
        later = folder_job(mode, function="guide", copied=True)
        assert metrics(sandbox.run(later)) == {"guide": "guide"}

    def test_nothing_of_a_trial_is_left_for_the_next(self, sandbox: Sandbox, mode: Mode) -> None:
        writing = (
            FILES["src/main.py"]
            + b"""
def total(n):
    with open(HERE + "/data/left.txt", "w") as file:
        file.write("left")
    return len(os.listdir(HERE + "/data"))
"""
        )
        for _ in range(2):
            outcome = sandbox.run(folder_job(mode, {**FILES, "src/main.py": writing}))
            assert metrics(outcome) == {"combined_score": 3}

    def test_limits_hold_for_a_folder(self, sandbox: Sandbox, mode: Mode) -> None:
        endless = {**FILES, "src/parts/table.py": b"def entry(n):\n    while True: pass\n"}
        job = folder_job(mode, endless)
        impatient = replace(job, limits=replace(LIMITS, wall_seconds=0.5))
        assert kind(last_outcome(sandbox, impatient)) is FailureKind.TIMEOUT
