"""The files of a program of several, as a tree and as a folder."""

from pathlib import Path

import pytest

from app.domain.program import Program
from app.reports.program_files import file_tree, write_files

FILES = {
    "src/deep/a.py": "a = 1\n",
    "src/b.py": "b = 1\r\n",
    "src-more/c.py": "",
    "params.json": "{}\n",
}


def test_a_tree_has_each_folder_once_and_marks_behind_names() -> None:
    assert file_tree(FILES, {"src/b.py": "changed", "params.json": "added"}) == [
        "params.json  (added)",
        "src/",
        "  b.py  (changed)",
        "  deep/",
        "    a.py",
        "src-more/",
        "  c.py",
    ]


def test_a_folder_has_each_file_as_it_is(tmp_path: Path) -> None:
    write_files(Program.of_files(FILES), tmp_path / "new")
    paths = [path for path in (tmp_path / "new").rglob("*") if path.is_file()]
    found = {str(path.relative_to(tmp_path / "new")): path.read_bytes().decode() for path in paths}
    assert found == FILES


@pytest.mark.parametrize("path", ["../a.py", "src/../../a.py", "/tmp/a.py", "a//b.py"])
def test_a_path_that_leads_out_of_the_folder_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(ValueError, match="may have no file at"):
        write_files(Program.of_files({"a.py": "x = 1\n", path: "x = 2\n"}), tmp_path / "new")
    assert list(tmp_path.iterdir()) == []
