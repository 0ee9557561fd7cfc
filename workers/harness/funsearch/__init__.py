"""Stand-in for the package of FunSearch's decorators, which a specification may import."""

from __future__ import annotations

from typing import Any


def run(function: Any = None) -> Any:
    """Marks the function that scores; `@funsearch.run` and `@funsearch.run()` do the same."""
    return _same if function is None else function


def evolve(function: Any = None) -> Any:
    """Marks the function that evolves; called or not, as `run`."""
    return _same if function is None else function


def _same(function: Any) -> Any:
    return function
