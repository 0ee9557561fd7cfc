"""Folders on which patterns run candidates: a problem that is no search."""

from app.adapters.problems.workspace.problem import (
    NAME,
    OPTIONS,
    build,
    read,
    recognises,
)

__all__ = ["NAME", "OPTIONS", "build", "read", "recognises"]
