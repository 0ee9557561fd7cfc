"""Patterns of paths."""

import pytest

from app.domain.source.globs import matches


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("src/**/*.py", "src/a.py", True),
        ("src/**/*.py", "src/deep/er/a.py", True),
        ("src/**/*.py", "other/src/a.py", False),
        ("src/*.py", "src/deep/a.py", False),
        ("*.py", "a.py", True),
        ("*.py", "src/a.py", False),
        ("**/*.py", "a.py", True),
        ("src/**", "src/deep/a.txt", True),
        ("src/**", "src", False),
        ("params.json", "params.json", True),
        ("params.json", "paramsxjson", False),
        ("a?.py", "ab.py", True),
        ("a[1].py", "a[1].py", True),
        ("src/**/*.py", "src/../../a.py", False),
        ("**/*.py", "/etc/a.py", False),
        ("src/**", "src/./a.py", False),
        ("**/*", ".git/hooks/pre-commit", False),
        ("*.py", "a.py\n+++ b/other.py", False),
    ],
)
def test_a_pattern_matches_whole_paths(pattern: str, path: str, expected: bool) -> None:
    assert matches(path, [pattern]) is expected


def test_one_of_several_patterns_is_enough() -> None:
    assert matches("a.c", ["*.py", "*.c"])
    assert not matches("a.c", [])
