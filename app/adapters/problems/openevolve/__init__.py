"""OpenEvolve's problem folders (version 0.4.0); `docs/openevolve.md` describes the format."""

from app.adapters.problems.openevolve.folder import read, recognises
from app.adapters.problems.openevolve.problem import NAME, OPTIONS, build

__all__ = ["NAME", "OPTIONS", "build", "read", "recognises"]
