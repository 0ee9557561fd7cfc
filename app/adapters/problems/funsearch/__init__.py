"""FunSearch's specification files, unmodified; docs/funsearch.md describes the format."""

from app.adapters.problems.funsearch.problem import (
    NAME,
    OPTIONS,
    build,
    configures,
    read,
    recognises,
)

__all__ = ["NAME", "OPTIONS", "build", "configures", "read", "recognises"]
