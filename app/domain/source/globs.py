"""Globs: patterns of paths, in which `**` stands for any number of folders."""

import re
from collections.abc import Iterable
from functools import cache

_NO_PLACE = ("", ".", "..", ".git")


def matches(path: str, patterns: Iterable[str]) -> bool:
    """Returns whether a relative POSIX path matches one of the patterns.

    `*` and `?` stand for characters other than a slash, and `**/` for any folders or none; a
    pattern that ends with `/**` stands for everything below a folder.  A path that leads out
    of its folder matches none.
    """
    return inside(path) and any(_expression(pattern).fullmatch(path) for pattern in patterns)


def inside(path: str) -> bool:
    """Returns whether a POSIX path names a place below the folder that it is relative to.

    None in `.git` does, where a file may be a command that git runs, and none whose characters
    cannot be printed, with which a patch could change another file.
    """
    parts = path.lower().split("/")
    return path.isprintable() and not any(part in _NO_PLACE for part in parts)


def expression(patterns: Iterable[str]) -> str:
    """Returns a regular expression of the paths that match one of the patterns."""
    return "|".join(_expression(pattern).pattern for pattern in patterns)


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*/|/\*\*$|\*|\?)", pattern)
    meanings = {"**/": "(?:.*/)?", "/**": "/.+", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(meanings.get(part, re.escape(part)) for part in parts))
