"""The end of a command that followed a run: its files, its lines, its exit status."""

from pathlib import Path

from app.cli.costs import total_cost
from app.cli.output import DONE, FAILED, ErrorReport, Screen, counted, counted_measured
from app.cli.show import print_best
from app.domain.problem import Problem
from app.domain.run import RunState
from app.ports.protocols import Store
from app.reports import folder as results
from app.reports.decoration import NotMade, attempt
from app.reports.documents import RunDocument, to_json
from app.reports.summary import Summary, summarise
from app.reports.text import duration


def report_end(
    store: Store, run: int, problem: Problem, folder: Path, screen: Screen, *, detached: bool
) -> int:
    """Writes the results of a run at its present state and shows them; returns the exit status.

    Args:
      store: The ledger.
      run: The run.
      problem: The run's problem.
      folder: Where the files go.
      screen: Where the rest goes.
      detached: Whether an unfinished run goes on without this command.
    """
    summary = summarise(store, run, problem)
    unwritten, missing = _write_results(store, summary, problem, folder)
    notices = [f"{each.text}; `evoq plot {summary.run.name}` tries again" for each in missing]
    if not screen.json:
        shown = attempt("the best program's table", lambda: print_best(summary, problem, screen))
        notices += [shown.text] if isinstance(shown, NotMade) else []
    screen.say(
        f"{summary.iterations} proposals settled in {duration(summary.seconds)}: "
        f"{counted_measured(summary.measured, summary.entered)}, cut {counted(summary.cuts)}, "
        f"failed {counted(summary.failures)}; files in {folder}"
    )
    if summary.explanation is not None:
        screen.say(f"commonest failure: {summary.explanation.text}")
    if not summary.iterations and summary.run.state is RunState.FINISHED:
        screen.note(f"notice: no proposal was made: {summary.run.reason}")
    if summary.costs.models:
        screen.say(f"cost so far: {total_cost(summary.costs)}")
    answer = to_json(RunDocument(summary, out=str(folder)))
    for text in notices:
        screen.note(f"notice: {text}")
    answer["notices"] += notices
    unfinished = _why_unfinished(summary, detached=detached)
    faults = [fault for fault in (unwritten, unfinished) if fault]
    for fault in faults:
        failed = fault == unwritten or summary.run.state is RunState.FAILED
        screen.note(f"{'error: ' if failed else ''}{fault}")
    if faults:
        kind = summary.run.state.value if unfinished else "failed"
        answer["error"] = ErrorReport(kind, faults[0], faults[0]).document()
    screen.answer(answer)
    return FAILED if faults else DONE


def _write_results(
    store: Store, summary: Summary, problem: Problem, folder: Path
) -> tuple[str, list[NotMade]]:
    """Writes the files of a run; returns why they could not be written, and what is missing.

    The first is "" where all results were written: a run whose results are not is an error, one
    without a picture is not.
    """
    name = summary.run.name
    made = attempt(str(folder), lambda: results.write(store, summary, problem, folder))
    if not isinstance(made, NotMade):
        return "", made
    return (
        f"{folder}: the results of {name}, which is {summary.run.state.value}, could not be "
        f"written ({made.why}). The ledger has everything: free some space, then `evoq resume "
        f"{name} --out DIR` writes them"
    ), []


def _why_unfinished(summary: Summary, *, detached: bool) -> str:
    """Returns why a run did not finish and how it continues; "" for a finished run."""
    run = summary.run
    why = f" ({run.reason})" if run.reason else ""
    again = f"`evoq resume {run.name}` continues it"
    match run.state:
        case RunState.FINISHED:
            return ""
        case RunState.RUNNING if detached:
            return f"{run.name} goes on without this command: `evoq watch {run.name}` follows it"
        case RunState.RUNNING:
            return f"{run.name} was left running: {again}"
        case RunState.PAUSED:
            return f"{run.name} is paused{why}: {again}; --set KEY=VALUE changes a setting"
        case RunState.FAILED:
            return (
                f"{run.name} failed{why}. A run keeps its problem's files as they were: a change "
                f"of them needs a new `evoq run`; after any other correction {again}"
            )
        case RunState.CANCELLED:
            return f"{run.name} was cancelled{why}: {again}"
