"""Programs of several files, committed to a folder."""

from pathlib import Path

import pytest

from app.domain.program import Program
from app.patterns.errors import ConflictError
from app.patterns.programs import commit_program

BEFORE = {"a.py": "x = 1\n", "deep/b.py": "y = 1\n"}
AFTER = {"a.py": "x = 2\n", "deep/b.py": "y = 1\n", "new/c.py": "z = 1\n"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "repository"
    for path, text in {**BEFORE, "fixed.txt": "fixed\n"}.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(text)
    (place / "a.py").chmod(0o755)
    return place


def commit(folder: Path) -> list[str]:
    return commit_program(folder, Program.of_files(BEFORE), Program.of_files(AFTER))


def test_a_program_is_committed(folder: Path) -> None:
    (folder / "deep/b.py").write_text("changed = True\n")
    assert commit(folder) == ["a.py", "new/c.py"]
    assert (folder / "a.py").read_text() == "x = 2\n"
    assert (folder / "a.py").stat().st_mode & 0o111
    assert (folder / "new/c.py").read_text() == "z = 1\n"
    assert (folder / "deep/b.py").read_text() == "changed = True\n"
    assert (folder / "fixed.txt").read_text() == "fixed\n"
    assert [path.name for path in folder.parent.iterdir()] == ["repository"]


def test_a_file_that_changed_meanwhile_is_a_conflict_and_nothing_is_written(folder: Path) -> None:
    (folder / "a.py").write_text("x = 3\n")
    with pytest.raises(ConflictError, match=r"a\.py"):
        commit(folder)
    assert (folder / "a.py").read_text() == "x = 3\n"
    assert not (folder / "new").exists()


def test_a_file_that_appeared_where_one_is_added_is_a_conflict(folder: Path) -> None:
    (folder / "new").mkdir()
    (folder / "new/c.py").write_text("mine = 1\n")
    with pytest.raises(ConflictError, match=r"new/c\.py"):
        commit(folder)
    assert (folder / "a.py").read_text() == "x = 1\n"


def test_a_path_that_leads_out_of_the_folder_is_refused(folder: Path) -> None:
    forged = Program.of_files({**BEFORE, "deep/../../mine.py": "x = 1\n"})
    with pytest.raises(ValueError, match="may have no file at"):
        commit_program(folder, Program.of_files(BEFORE), forged)
    assert not (folder.parent / "mine.py").exists()


def test_a_folder_that_has_the_program_already_is_left_as_it_is(folder: Path) -> None:
    commit(folder)
    assert commit(folder) == []


def test_a_file_that_the_program_lacks_is_removed(folder: Path) -> None:
    before = Program.of_files(BEFORE)
    assert commit_program(folder, before, before.removed("deep/b.py")) == ["deep/b.py"]
    assert not (folder / "deep/b.py").exists()
    assert (folder / "fixed.txt").exists()
