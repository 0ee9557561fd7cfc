"""The file of a program of several that a child changes first of all."""

from collections import Counter
from dataclasses import replace

from app.domain.evaluation import Failure, FailureKind
from app.domain.operator import Ancestry, Brief, Draft, FailedChild, ProgramRecord
from app.domain.operators.focus import in_focus
from app.domain.program import Program
from app.domain.prompting.rules import PromptRules

FILES = {"a.py": "x = 1\n", "b.py": "y = 1\n", "c.json": "{}\n"}
PARENT = Program.of_files(FILES)
NONE = Ancestry()


def brief(seed: int = 0, ancestry: Ancestry = NONE, fitness: float = 1.0) -> Brief:
    record = ProgramRecord(PARENT, fitness)
    draft = Draft(0, 0, 0, 1, (PARENT.id,))
    return Brief("", "python", (draft,), {PARENT.id: record}, ancestry=ancestry, seed=str(seed))


def focus(given: Brief, language: str = "") -> str:
    return in_focus(given, language).known[PARENT.id].program.path


def test_every_file_comes_into_focus() -> None:
    counts = Counter(focus(brief(seed)) for seed in range(300))
    assert set(counts) == set(FILES)
    assert min(counts.values()) > 60


def test_an_operator_of_one_language_edits_files_of_that_language() -> None:
    assert {focus(brief(seed), "python") for seed in range(50)} == {"a.py", "b.py"}


def test_equal_briefs_have_the_same_file_in_focus() -> None:
    assert focus(brief(7)) == focus(brief(7))


def test_a_file_whose_change_improved_the_program_is_drawn_more_often() -> None:
    before = Program.of_files({**FILES, "b.py": "y = 0\n"})
    ancestry = Ancestry((ProgramRecord(before, 0.5),))
    counts = Counter(focus(brief(seed, ancestry)) for seed in range(300))
    assert counts["b.py"] > counts["a.py"]
    worse = Counter(focus(brief(seed, ancestry, fitness=0.1)) for seed in range(300))
    assert worse["b.py"] < worse["a.py"]


def test_a_failure_brings_the_file_that_it_names_into_focus() -> None:
    child = PARENT.focused("a.py").changed("x = 2\n")
    failure = Failure(FailureKind.RUNTIME, "NameError\nprogram b.py line 1, in f: y")
    given = replace(brief(), failed=FailedChild(failure, child))
    seen = in_focus(given, "")
    assert seen.known[PARENT.id].program.path == "b.py"
    assert seen.failed is not None
    assert seen.failed.program is not None
    assert seen.failed.program.path == "b.py"


def test_a_failure_that_names_no_file_brings_the_changed_one_into_focus() -> None:
    child = PARENT.focused("c.json").changed('{"a": 1}\n')
    given = replace(brief(), failed=FailedChild(Failure(FailureKind.TIMEOUT, ""), child))
    assert focus(given) == "c.json"


def test_the_language_is_that_of_the_file_in_focus() -> None:
    seen = {in_focus(brief(seed), "").language for seed in range(50)}
    assert seen == {"python", "json"}


def test_a_program_of_one_file_stays_as_it_is() -> None:
    program = Program("x = 1\n")
    draft = Draft(0, 0, 0, 1, (program.id,))
    given = Brief("", "python", (draft,), {program.id: ProgramRecord(program)})
    assert in_focus(given, "python") is given


def test_the_function_that_the_settings_name_chooses_the_file() -> None:
    program = Program.of_files({**FILES, "d.py": "def solve():\n    return 1\n"})
    draft = Draft(0, 0, 0, 1, (program.id,))
    rules = PromptRules(function="solve")
    given = Brief("", "python", (draft,), {program.id: ProgramRecord(program)}, prompts=rules)
    briefs = [in_focus(replace(given, seed=str(n)), "python", of_function=True) for n in range(20)]
    assert {each.known[program.id].program.path for each in briefs} == {"d.py"}
