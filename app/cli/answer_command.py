"""The command `evoq answer` and its options; what it does is imported when it is asked for."""

from typing import Annotated

import typer

from app.cli.options import Debug, Json, RunName
from app.cli.screen import Screen


def answer(
    name: RunName,
    reply: Annotated[
        str | None,
        typer.Option("--reply", metavar="FILE", help="Answer with this file; - is standard input."),
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Option("--prompt", metavar="NAME", help="Which one; else the oldest."),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Shows what a run asks a person (llm.provider=human), or answers it.

    Without --reply the oldest open prompt is printed, and the names of the others.
    """
    from app.cli.answer import answer as act

    act(name, reply, prompt, Screen(json=as_json))
