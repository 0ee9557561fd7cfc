"""Patches that git applies."""

import shutil
import subprocess
from pathlib import Path

import pytest

from app.domain.program import Program
from app.reports.patch import changes_of, patch_of

BEFORE = {
    "a.py": "one\ntwo\nthree\n",
    "deep/b.txt": "no end of line",
    "c.json": "{}\n",
    "odd.txt": "a\x0cb\r\nc\n",
}


@pytest.mark.parametrize(
    "after",
    [
        {**BEFORE, "a.py": "one\n2\nthree\n"},
        {**BEFORE, "deep/b.txt": "no end of line\nand more"},
        {**BEFORE, "deep/b.txt": "an end\n"},
        {**BEFORE, "deep/new.py": "x = 1\n", "a.py": ""},
        {**BEFORE, "odd.txt": "a\x0cb\r\nd\n"},
        {path: text for path, text in BEFORE.items() if path != "c.json"},
    ],
)
@pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
def test_git_applies_a_patch(tmp_path: Path, after: dict[str, str]) -> None:
    for path, text in BEFORE.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, newline="")
    patch = patch_of(Program.of_files(BEFORE), Program.of_files(after))
    done = subprocess.run(
        ["git", "apply", "-"],
        cwd=tmp_path,
        input=patch,
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = {
        str(path.relative_to(tmp_path)): path.read_bytes().decode()
        for path in tmp_path.rglob("*")
        if path.is_file()
    }
    assert found == after


def test_equal_programs_have_an_empty_patch() -> None:
    assert patch_of(Program.of_files(BEFORE), Program.of_files(BEFORE)) == ""


def test_each_change_has_its_kind_and_a_difference_without_lines_of_git() -> None:
    after = {**BEFORE, "a.py": "one\n2\nthree\n", "empty.py": "", "new.py": "x = 1\n"}
    del after["c.json"]
    changes = changes_of(Program.of_files(BEFORE), Program.of_files(after))
    assert [(change.path, change.kind) for change in changes] == [
        ("a.py", "changed"),
        ("c.json", "removed"),
        ("empty.py", "added"),
        ("new.py", "added"),
    ]
    assert changes[0].difference.splitlines()[:2] == ["--- a/a.py", "+++ b/a.py"]
    assert changes[2].difference == ""
    assert changes[3].difference.splitlines()[2:] == ["@@ -0,0 +1 @@", "+x = 1"]
