"""Evoqueue's own format: a folder with a `problem.yaml`; docs/problem-yaml.md describes it."""

from app.adapters.problems.described.problem import NAME, OPTIONS, build, read, recognises

__all__ = ["NAME", "OPTIONS", "build", "read", "recognises"]
