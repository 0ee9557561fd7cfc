"""ShinkaEvolve's task folders, unmodified; docs/shinka.md describes the format."""

from app.adapters.problems.shinka.problem import NAME, OPTIONS, build, read, recognises

__all__ = ["NAME", "OPTIONS", "build", "read", "recognises"]
