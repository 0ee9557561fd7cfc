"""Names of runs."""

import re

from app.client.local_state import RESULTS
from app.config.layers import UsageError
from app.ports.protocols import Store

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def require_name(name: str | None, where: str = "--name") -> None:
    """Raises `UsageError` unless a run may have that name; None is the default."""
    if name is not None and (not _NAME.fullmatch(name) or name.isdigit()):
        raise UsageError(
            "not a name for a run",
            where=where,
            value=name,
            remedy="Use up to 100 letters, digits, dots, dashes and underscores, a letter or digit "
            "first, not digits alone.",
        )


def free_name(store: Store, problem: str) -> str:
    """Returns PROBLEM-NUMBER, with the first free number above that of the newest run.

    A number is free if neither a run nor a folder of results has it.
    """
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", problem).strip("-._")[:80] or "run"
    with store.begin() as tx:
        newest = tx.runs.newest(limit=1)
        number = newest[0].id + 1 if newest else 1
        while tx.runs.named(f"{stem}-{number}") or (RESULTS / f"{stem}-{number}").exists():
            number += 1
    return f"{stem}-{number}"
