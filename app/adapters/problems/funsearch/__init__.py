"""FunSearch's specification files, unmodified; docs/funsearch.md describes the format."""

from app.adapters.problems.funsearch.problem import NAME, OPTIONS, build, read, recognises

__all__ = ["NAME", "OPTIONS", "build", "read", "recognises"]
