"""Commands on the runs of the ledger: `evoq list-runs`, `watch`, `pause` and `cancel`."""

from collections.abc import Sequence
from datetime import timedelta

from rich.table import Table

from app.cli.display import progress_display
from app.cli.interruption import Interruption
from app.cli.options import Debug, Json, RunName
from app.cli.output import DONE, FAILED, Screen
from app.cli.tables import columns_table
from app.client.following import Follower, ProgressReader
from app.client.notes import CommandError
from app.client.target import (
    find_run,
    find_target,
    open_ledger,
    open_run,
    stored_problem,
    without_queue,
    worked_on,
)
from app.domain.digits import number_texts
from app.domain.run import RunState
from app.engine import lifecycle
from app.engine.inside import refusal
from app.reports.documents import RunDocument, to_json
from app.reports.runs import InsideRow, RunRow, read_runs
from app.reports.summary import summarise
from app.reports.waiting import read_queue, watched_queue

MOST_INSIDE = 5
"""Newest runs inside a run that are shown on the screen below it; --json has up to a thousand."""


def list_runs(as_json: Json = False, debug: Debug = False) -> None:  # noqa: ARG001  read elsewhere
    """Lists the newest hundred runs.

    Examples:
      evoq list-runs
      evoq list-runs --json
    """
    screen, target = Screen(json=as_json), find_target()
    rows: list[RunRow] = []
    if target.used:
        with open_ledger(target) as ledger:
            queue = read_queue(ledger.redis_url)
            rows = read_runs(ledger.store, queue, lambda run: worked_on(target, run))
    if not rows:
        screen.say("no runs yet: `evoq run PROBLEM` starts one")
    else:
        screen.out.print(_table(rows))
    screen.answer([to_json(row) for row in rows])


def _table(rows: Sequence[RunRow]) -> Table:
    columns = ("id", "run", "problem", "state", "settled", "best", "started")
    waiting = any(row.waiting for row in rows)
    table = columns_table(*columns, *(["waits"] if waiting else []), apart=2)
    bests = _best_texts(rows)
    for row in rows:
        table.add_row(
            str(row.id),
            row.run,
            row.problem,
            f"{row.state}, nobody at work" if row.worked_on is False else row.state,
            f"{row.iterations}/{row.budget}",
            bests[row.id],
            _ago(row.age_seconds),
            *([row.waiting] if waiting else []),
        )
        for one in row.inside[-MOST_INSIDE:]:
            settled = f"{one.proposals}/{one.budget}"
            table.add_row(
                *(str(one.id), f"  {one.run}", "", one.state, settled),
                *(bests[one.id], _ago(one.age_seconds)),
            )
    return table


def _ago(seconds: float) -> str:
    return f"{timedelta(seconds=round(seconds))} ago"


def _best_texts(rows: Sequence[RunRow]) -> dict[int, str]:
    """Returns the best fitness of each run by its id, told apart from its start and from others."""
    runs: list[RunRow | InsideRow] = []
    for row in rows:
        runs += [row, *row.inside]
    texts = number_texts([run.best for run in runs], [run.start for run in runs])
    return dict(zip((run.id for run in runs), texts, strict=True))


def watch(name: RunName, as_json: Json = False, debug: Debug = False) -> int:  # noqa: ARG001
    """Follows a run that another process works on. Ctrl-C stops watching, not the run.

    Examples:
      evoq watch online_bin_packing-1
    """
    screen = Screen(json=as_json)
    with open_run(name) as (ledger, run):
        hint = "`evoq doctor` says whether workers are there"
        with Interruption() as interruption, progress_display(screen.out, hint) as show:
            reader = ProgressReader(ledger.store, run.id, watched_queue(ledger.redis_url))
            follower = Follower(reader, show, check=ledger.check, note=screen.note)
            follower.follow(lambda: interruption.requested)
        summary = summarise(ledger.store, run.id, stored_problem(ledger.store, run))
    screen.say(f"{run.name} is {summary.run.state.value}; best {summary.best_text}")
    screen.answer(to_json(RunDocument(summary)))
    return DONE if summary.run.state is RunState.FINISHED else FAILED


def pause(name: RunName, as_json: Json = False, debug: Debug = False) -> None:  # noqa: ARG001
    """Stops a run: no step begins any more, and steps in progress end.

    Examples:
      evoq pause online_bin_packing-1
    """
    _change(name, "pause", Screen(json=as_json))


def cancel(name: RunName, as_json: Json = False, debug: Debug = False) -> None:  # noqa: ARG001
    """Ends a run now; what is in flight is withdrawn and spends nothing of the budget.

    Examples:
      evoq cancel online_bin_packing-1
    """
    _change(name, "cancel", Screen(json=as_json))


def _change(name: str, verb: str, screen: Screen) -> None:
    """Pauses or cancels a run.

    Raises:
      CommandError: It is not running, or has ended before.
    """
    act = lifecycle.pause if verb == "pause" else lifecycle.cancel
    with open_run(name) as (ledger, run):
        if why := refusal(ledger.store, run):
            raise CommandError(f"{why}: there is nothing to {verb} here")
        done = act(without_queue(ledger), run.id)
        after = find_run(ledger.store, run.name)
    if not done:
        raise CommandError(f"{run.name} is {after.state.value}: there is nothing to {verb}")
    screen.say(f"{run.name} is {after.state.value}; `evoq resume {run.name}` continues it")
    screen.answer({"run": run.name, "id": run.id, "state": after.state.value})
