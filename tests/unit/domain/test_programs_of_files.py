"""Programs of several files: their identity, their file in focus, and their changes."""

import pytest

from app.domain.program import File, Program, fingerprint
from app.domain.search.features import distance

FILES = {"src/main.py": "x = 1\n", "params.json": "{}\n", "src/other.py": "def f():\n    pass\n"}


def test_the_file_in_focus_does_not_matter_for_the_identity() -> None:
    program = Program.of_files(FILES)
    views = [program.focused(path) for path in FILES]
    assert {view.id for view in views} == {program.id}
    assert {fingerprint(view) for view in views} == {fingerprint(program)}
    assert {view.text for view in views} == {program.text}
    assert [view.path for view in views] == list(FILES)
    assert [view.language for view in views] == ["python", "json", "python"]


def test_paths_belong_to_the_identity() -> None:
    program = Program.of_files(FILES)
    renamed = {path.replace("other", "another"): text for path, text in FILES.items()}
    assert Program.of_files(renamed).id != program.id
    assert fingerprint(Program.of_files(renamed)) != fingerprint(program)
    assert Program.of_files({"main.py": "x = 1\n"}).id != Program("x = 1\n").id


def test_a_change_of_the_file_in_focus_leaves_the_others() -> None:
    program = Program.of_files(FILES).focused("src/main.py")
    child = program.changed("x = 2\n")
    assert {file.path: file.source for file in child.files} == {**FILES, "src/main.py": "x = 2\n"}
    assert child.length == program.length
    assert distance(child, program) == 0.5 * 2


def test_layout_and_comments_of_any_file_do_not_make_a_new_program() -> None:
    program = Program.of_files(FILES)
    laid_out = {**FILES, "src/other.py": "# A comment.\ndef f():\n\n    pass\n"}
    assert Program.of_files(laid_out).id != program.id
    assert fingerprint(Program.of_files(laid_out)) == fingerprint(program)


def test_a_file_can_be_added() -> None:
    program = Program.of_files(FILES).focused("src/other.py").added("src/new.py", "y = 1\n")
    assert program.path == "src/other.py"
    assert File("src/new.py", "y = 1\n") in program.files
    assert [file.path for file in program.files] == sorted(file.path for file in program.files)


def test_a_program_of_one_file_has_no_path() -> None:
    program = Program("x = 1\n")
    assert program.files == (File("", "x = 1\n"),)
    assert (program.text, program.length) == ("x = 1\n", 6)


def test_a_file_that_is_not_there_cannot_be_in_focus() -> None:
    with pytest.raises(KeyError):
        Program.of_files(FILES).focused("src/none.py")
