"""`evoq evaluate`: program files through a problem's evaluation, without any service."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from app.cli.measurement import print_measurements
from app.cli.options import Assignments, Config, Debug, Json
from app.cli.output import Screen
from app.cli.program_folder import program_with, read_evolving
from app.client.measuring import Measurement, measure, open_sandbox, validating
from app.client.notes import CommandError
from app.client.setting_layers import load_problem, named_problem, read_layers
from app.config.layers import UsageError
from app.config.resolve import resolved
from app.domain.evaluation import Failure, FailureKind
from app.domain.problem import Problem, ProblemError
from app.domain.program import Program
from app.ports.protocols import Sandbox

_Content: TypeAlias = bytes | Mapping[str, bytes]
"""The bytes of a program of one file, or of those files of several that are given, by path."""


def evaluate(
    problem: Annotated[str, typer.Argument(metavar="PROBLEM", help="A problem folder.")],
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...", help="Programs to evaluate; of several files, their folders."
        ),
    ],
    sandbox: Annotated[
        str | None, typer.Option("--sandbox", metavar="BACKEND", help="A value of sandbox.backend.")
    ] = None,
    mode: Annotated[
        str | None, typer.Option("--mode", metavar="MODE", help="guarded or compatible.")
    ] = None,
    validation: Annotated[
        bool, typer.Option("--validation", help="Measure on the problem's validation data.")
    ] = False,
    config: Config = None,
    assignments: Assignments = None,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001  read by `status_of`
) -> None:
    """Evaluates program files by a problem's evaluator, one after the other in one sandbox.

    Needs no service. A failure of a program is a result, not an error: the exit status is 0 when
    every file was evaluated. The files of a folder that evolve take the place of those of the first
    start program.

    Examples:
      evoq evaluate examples/online_bin_packing runs/online_bin_packing-1/best_program.py
      evoq evaluate examples/online_bin_packing a.py --validation --set problem.data=binpack1.txt
      evoq evaluate my_problem a.py b.py --sandbox process --json
      evoq evaluate examples/spelling runs/spelling-1/best_program
    """
    settings = list(assignments or ())
    settings += [f"sandbox.backend={sandbox}"] if sandbox else []
    settings += [f"sandbox.mode={mode}"] if mode else []
    screen = Screen(json=as_json)
    paths, config = named_problem([problem], config)
    layers = read_layers(settings, config)
    loaded = load_problem(paths, layers)
    resolution = resolved(layers.choices, loaded.suggestions, loaded.suggested_by)
    if validation and not loaded.validation:
        raise UsageError(
            "the problem has no validation",
            where="--validation",
            value=loaded.name,
            remedy="Leave it out, or define one: docs/problems.md.",
        )
    loaded = validating(loaded) if validation else loaded
    several = bool(loaded.seeds[0].path)
    contents: list[_Content] = [
        read_evolving(loaded, Path(file), "FILE") if several else _read_content(Path(file))
        for file in files
    ]
    with open_sandbox(resolution.settings.sandbox, screen) as box:
        measurements = [
            (str(Path(file)), _measure_content(loaded, box, content))
            for file, content in zip(files, contents, strict=True)
        ]
    print_measurements(measurements, screen)
    screen.answer([{"file": file, **measured.document()} for file, measured in measurements])


def _measure_content(problem: Problem, sandbox: Sandbox, content: _Content) -> Measurement:
    """Returns what was measured of a program; a file that is no text has failed."""
    try:
        if isinstance(content, bytes):
            program = Program(content.decode("utf-8-sig"), problem.language)
        else:
            program = program_with(problem, content)
    except UnicodeDecodeError as error:
        return _failed(f"the file is not text in UTF-8: {error}")
    except ProblemError as error:
        return _failed(str(error))
    return measure(problem, sandbox, program)


def _failed(detail: str) -> Measurement:
    failure = Failure(FailureKind.SYNTAX, detail)
    return Measurement(None, {}, {}, failure, 0.0, 0.0, False, ())


def _read_content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise CommandError(f"{file}: cannot be read ({error.strerror}). Check the path") from error
