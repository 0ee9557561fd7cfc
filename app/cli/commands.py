"""The commands and their options.  What they do is imported when it is asked for: help is fast."""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from app.cli.answer_command import answer
from app.cli.mock_command import mock_llm
from app.cli.options import (
    Assignments,
    Config,
    Debug,
    Json,
    Problem,
    RunName,
    Strict,
)
from app.cli.problem_commands import check, evaluate, prompt
from app.cli.screen import Screen


class Format(StrEnum):
    """How metrics are written."""

    JSONL = "jsonl"
    CSV = "csv"


Iterations = Annotated[
    int | None, typer.Option("--iterations", metavar="N", min=1, help="Proposals in all.")
]


def run(
    problem: Problem,
    iterations: Iterations = None,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="S", min=0, help="Of every draw; 42 otherwise.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the run; PROBLEM-NUMBER otherwise.")
    ] = None,
    config: Config = None,
    assignments: Assignments = None,
    out: Annotated[
        str | None, typer.Option("--out", metavar="DIR", help="Folder of results; runs/NAME.")
    ] = None,
    detach: Annotated[
        bool,
        typer.Option("--detach", help="Submit to a deployment, or to `evoq up`, and return."),
    ] = False,
    as_json: Json = False,
    strict: Strict = False,
    reproducible: Annotated[
        bool,
        typer.Option("--reproducible", help="One process, one proposal at a time: repeatable."),
    ] = False,
    debug: Debug = False,  # noqa: ARG001  read by `main`
) -> None:
    """Starts a search and follows it to its end.

    Without EVOQ_DATABASE_URL and EVOQ_REDIS_URL everything it needs is started here and ended with
    it. Ctrl-C pauses the run; `evoq resume` goes on. Exit status: 0 finished, 1 not, 2 wrong usage.
    """
    from app.cli.execution import Asked, start

    asked = Asked(
        paths=tuple(map(Path, problem)),
        iterations=iterations,
        seed=seed,
        name=name,
        config=Path(config) if config else None,
        assignments=tuple(assignments or ()),
        out=Path(out) if out else None,
        detach=detach,
        strict=strict,
        reproducible=reproducible,
    )
    raise typer.Exit(start(asked, Screen(json=as_json)))


def resume(
    run: RunName,
    iterations: Iterations = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="budget.KEY=VALUE", help="Another cap; may be repeated."),
    ] = None,
    out: Annotated[
        str | None, typer.Option("--out", metavar="DIR", help="Folder of results; as before.")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Do not follow the run.")] = False,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Goes on with a run that was paused, interrupted, killed, cancelled or broken.

    It ends at exactly its budget; --iterations gives it another one, and --set another cap, as
    budget.tokens, budget.cost_usd or budget.wall_seconds.
    """
    from app.cli.execution import Again, go_on

    folder = Path(out) if out else None
    again = Again(run, iterations, tuple(assignments or ()), folder, detach)
    raise typer.Exit(go_on(again, Screen(json=as_json)))


def watch(run: RunName, as_json: Json = False, debug: Debug = False) -> None:  # noqa: ARG001
    """Follows a run that is going on elsewhere. Ctrl-C stops watching, not the run."""
    from app.cli.show import watch as act

    raise typer.Exit(act(run, Screen(json=as_json)))


def list_runs(as_json: Json = False, debug: Debug = False) -> None:  # noqa: ARG001
    """Lists the newest hundred runs."""
    from app.cli.show import list_runs as act

    act(Screen(json=as_json))


def show(
    run: RunName,
    program: Annotated[
        str | None,
        typer.Option("--program", metavar="ID", help="One of its programs: beginning of an id."),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Shows a run: its state and why, counts, failures by kind, the best program.

    With --program: that program, what its trials measured, and the wall, CPU and boot time and
    memory they took.
    """
    if program is not None:
        from app.cli.program import show_program

        show_program(run, program, Screen(json=as_json))
        return
    from app.cli.show import show as act

    act(run, Screen(json=as_json))


def costs(as_json: Json = False, debug: Debug = False) -> None:  # noqa: ARG001
    """Shows what all runs cost together, and the workers' time that no run had."""
    from app.cli.costing import costs as act

    act(Screen(json=as_json))


def pause(run: RunName, as_json: Json = False, debug: Debug = False) -> None:  # noqa: ARG001
    """Stops planning for a run; what is in flight still settles."""
    from app.cli.control import pause as act

    act(run, Screen(json=as_json))


def cancel(run: RunName, as_json: Json = False, debug: Debug = False) -> None:  # noqa: ARG001
    """Ends a run now; what is in flight is cut."""
    from app.cli.control import cancel as act

    act(run, Screen(json=as_json))


def export_best(
    run: RunName,
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="Standard output otherwise.")
    ] = None,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Writes the source of a run's best program."""
    from app.cli.exporting import export_best as act

    act(run, Path(out) if out else None, Screen(json=as_json))


def metrics(
    run: RunName,
    form: Annotated[Format, typer.Option("--format", help="One line a settled proposal.")] = (
        Format.JSONL
    ),
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="Standard output otherwise.")
    ] = None,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Writes what every settled proposal came to; with --json as one list."""
    from app.cli.exporting import metrics as act

    act(run, form.value, Path(out) if out else None, Screen(json=as_json))


def plot(
    run: RunName,
    out: Annotated[
        str | None, typer.Option("--out", metavar="DIR", help="The run's own folder otherwise.")
    ] = None,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Draws evolution.png, failures.png and archive.png."""
    from app.cli.exporting import plot as act

    act(run, Path(out) if out else None, Screen(json=as_json))


def doctor(as_json: Json = False, debug: Debug = False) -> None:  # noqa: ARG001
    """Says what is installed, reachable and missing: one line each, with the remedy.

    Exit status 1 when something is missing that a run needs.
    """
    from app.cli.doctor import doctor as act

    raise typer.Exit(act(Screen(json=as_json)))


def up(
    flower: Annotated[
        bool, typer.Option("--flower", help="Show workers and queues on a local page.")
    ] = False,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Flower's port.")] = 5555,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Keeps the embedded stack running for several runs, until Ctrl-C."""
    from app.cli.up import up as act

    act(flower=flower, port=port, screen=Screen(json=as_json))


COMMANDS: dict[str, Callable[..., None]] = {
    "run": run,
    "resume": resume,
    "watch": watch,
    "list-runs": list_runs,
    "show": show,
    "costs": costs,
    "pause": pause,
    "cancel": cancel,
    "export-best": export_best,
    "metrics": metrics,
    "plot": plot,
    "check": check,
    "prompt": prompt,
    "answer": answer,
    "evaluate": evaluate,
    "doctor": doctor,
    "up": up,
    "mock-llm": mock_llm,
}
