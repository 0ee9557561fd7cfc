"""Arguments and options that several commands share."""

from typing import Annotated

import typer

Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on standard output, nothing else.")
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
RunName = Annotated[
    str, typer.Argument(metavar="RUN", help="Name or number of a run; `evoq list-runs` lists them.")
]
Problem = Annotated[
    list[str],
    typer.Argument(
        metavar="PROBLEM...",
        help="A problem folder, an initial program in one, or `initial_program.py evaluator.py`.",
    ),
]
Config = Annotated[
    str | None,
    typer.Option(
        "--config", metavar="FILE", help="Settings in YAML, or an OpenEvolve config.yaml."
    ),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="One setting, as search.islands=3; may be repeated."
    ),
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Refuse unknown keys of an OpenEvolve config.yaml.")
]
OutFile = Annotated[
    str | None,
    typer.Option("--out", metavar="FILE", help="File to write; standard output by default."),
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Name every protection of the sandbox.")
]
