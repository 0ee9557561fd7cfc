"""The command `evoq`: reads arguments, calls the engine and the reports, prints.

Holds no rule of the search: those are in `app.domain` and `app.engine`.
"""

from app.cli.application import main

__all__ = ["main"]
