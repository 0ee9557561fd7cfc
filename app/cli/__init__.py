"""The `evoq` command: reads arguments, calls the engine's front, prints.  No rule of the search."""

from app.cli.application import main

__all__ = ["main"]
