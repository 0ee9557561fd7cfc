"""The end of a run: its results are written, its best program is shown, its state is told."""

from pathlib import Path
from typing import Any

from rich.syntax import Syntax
from rich.table import Table

from app.cli.costing import total
from app.cli.display import duration, number
from app.cli.faults import DONE, FAILED, Failed, Fault
from app.cli.screen import Screen
from app.domain.problem import Problem
from app.domain.run import RunState
from app.ports.protocols import Store
from app.reports.summary import Summary, document, summarise

MAX_LINES = 200
"""Of a best program that are shown on the screen; the file has them all."""


def end(
    store: Store, run: int, problem: Problem, folder: Path, screen: Screen, *, stays: bool
) -> int:
    """Writes the results of a run as it stands and shows them; returns the exit status.

    Args:
      store: The ledger.
      run: The run.
      problem: The run's.
      folder: Where the files go.
      screen: Where the rest goes.
      stays: Whether a run that is not at its end goes on without this command.
    """
    from app.reports import folder as results

    summary = summarise(store, run, problem)
    try:
        results.write(store, summary, problem, folder)
    except OSError as error:
        name = summary.run.name
        raise Failed(
            f"{error.filename or folder}: the results of {name}, which is "
            f"{summary.run.state.value}, could not be written ({error.strerror}). The ledger has "
            f"everything: free some space, then `evoq resume {name} --out DIR` writes them"
        ) from error
    if not screen.json:
        show_best(summary, problem, screen)
    told = document(summary, str(folder))
    failed = outcome(summary, stays=stays)
    screen.say(
        f"{summary.iterations} proposals settled in {duration(summary.seconds)}: "
        f"{summary.admitted} admitted, {summary.cut} cut, {sum(summary.failures.values())} failed; "
        f"files in {folder}"
    )
    if summary.costs.models:
        screen.say(f"cost so far: {total(summary.costs)}")
    if failed:
        broken = "error: " if summary.run.state is RunState.FAILED else ""
        screen.note(f"{broken}{failed}")
        told["error"] = Fault(summary.run.state.value, failed, failed).document()
    screen.answer(told)
    return FAILED if failed else DONE


def outcome(summary: Summary, *, stays: bool) -> str:
    """Returns what to say of a run that did not finish; "" of one that did."""
    run = summary.run
    why = f" ({run.reason})" if run.reason else ""
    again = f"`evoq resume {run.name}` goes on"
    match run.state:
        case RunState.FINISHED:
            return ""
        case RunState.RUNNING if stays:
            return f"{run.name} goes on without this command: `evoq watch {run.name}` follows it"
        case RunState.RUNNING:
            return f"{run.name} was left running: {again}"
        case RunState.PAUSED:
            return f"{run.name} is paused{why}: {again}"
        case RunState.FAILED:
            return (
                f"{run.name} failed{why}. A run keeps its problem's files as they were: what is "
                f"mended in them needs a new `evoq run`, anything else {again}"
            )
        case RunState.CANCELLED:
            return f"{run.name} was cancelled{why}: {again}"


def show_best(summary: Summary, problem: Problem, screen: Screen) -> None:
    """Prints the best program, and its measurements beside those of the baselines."""
    best = summary.best
    if best is None:
        screen.say("no program has been measured")
        return
    origin = (
        f"proposal {best.settled.ordinal} by {best.settled.operator}, "
        f"generation {best.settled.generation}"
        if best.settled.ordinal >= 0
        else "a seed of the problem"
    )
    unverified = "" if best.measured.verified else "; unverified: evaluated in compatible mode"
    screen.say(f"\nbest program of {summary.run.name} ({origin}{unverified}):\n")
    lines = best.source.rstrip().splitlines()
    text = "\n".join(lines[:MAX_LINES])
    if screen.out.is_terminal:
        screen.out.print(Syntax(text, problem.language, background_color="default"))
    else:
        screen.say(text)
    if len(lines) > MAX_LINES:
        screen.say(f"… {len(lines) - MAX_LINES} more lines in the file")
    screen.say("")
    screen.out.print(_comparison(summary))


def _comparison(summary: Summary) -> Table:
    assert summary.best is not None
    columns = {"best": summary.best.measured, **summary.baselines}
    table = Table(box=None, padding=(0, 3, 0, 0))
    table.add_column("")
    for name in columns:
        table.add_column(name, justify="right")
    table.add_row("fitness", *(number(one.fitness) for one in columns.values()), style="bold")
    for metric in sorted(summary.best.measured.metrics):
        values: list[Any] = [one.metrics.get(metric) for one in columns.values()]
        table.add_row(metric, *(number(value) for value in values))
    return table
