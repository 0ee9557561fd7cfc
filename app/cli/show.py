"""`evoq list-runs`, `show`, `watch`: reads of the ledger."""

import os
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich.table import Table

from app.adapters.model.congestion.status import Standing, published
from app.adapters.model.congestion.status import shown as address
from app.adapters.model.providers.specs import model_spec
from app.adapters.queue.address import client_url
from app.cli.costing import cost_rows
from app.cli.display import duration, number, shown
from app.cli.execution import find
from app.cli.faults import DONE, FAILED
from app.cli.finish import show_best
from app.cli.following import Follower, Tail
from app.cli.interruption import Interruption
from app.cli.local_state import recall
from app.cli.screen import Screen
from app.cli.target import opened, place, require_runs
from app.config.models import ModelSettings
from app.domain.problem import Problem
from app.domain.run import Run, RunState
from app.ports.protocols import Store
from app.reports.summary import Summary, document, summarise


def list_runs(screen: Screen) -> None:
    """Lists the newest runs; none where the embedded folder was never used."""
    at = place()
    rows: list[dict[str, Any]] = []
    if at.deployed or at.home.exists():
        with opened(at) as ledger, ledger.store.begin() as tx:
            rows = [
                {
                    "run": run.name,
                    "id": run.id,
                    "problem": run.problem_name,
                    "state": run.state.value,
                    "iterations": run.proposals - tx.proposals.backlog(run.id).unsettled,
                    "budget": run.budget.proposals,
                    "best": best.fitness if (best := tx.history.best_quality(run.id)) else None,
                    "age_seconds": round(run.elapsed_seconds, 1),
                    "reason": run.reason,
                }
                for run in tx.runs.newest()
            ]
    if not rows:
        screen.say("no runs yet: `evoq run PROBLEM` starts one")
    else:
        screen.out.print(_table(rows))
    screen.answer(rows)


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("id", "run", "problem", "state", "settled", "best", "started"):
        table.add_column(column)
    for row in rows:
        table.add_row(
            str(row["id"]),
            row["run"],
            row["problem"],
            row["state"],
            f"{row['iterations']}/{row['budget']}",
            number(row["best"]),
            f"{timedelta(seconds=round(row['age_seconds']))} ago",
        )
    return table


def show(name: str, screen: Screen) -> None:
    """Shows a run."""
    at = place()
    require_runs(at)
    with opened(at) as ledger:
        run = find(ledger.store, name)
        problem = problem_of(ledger.store, run)
        summary = summarise(ledger.store, run.id, problem)
        endpoints = _endpoints(run, ledger.redis_url)
    folder = Path(recall(at.home, run.name).out)
    told = document(summary, str(folder) if folder.is_dir() else None)
    kinds = ", ".join(f"{kind} {n}" for kind, n in summary.failures.items())
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    rows = {
        "run": f"{run.name} (number {run.id})",
        "problem": f"{run.problem_name} ({run.problem[:12]})",
        "state": run.state.value + (f": {run.reason}" if run.reason else ""),
        "settled": f"{summary.iterations} of {run.budget.proposals}: {summary.admitted} admitted, "
        f"{summary.cut} cut, {sum(summary.failures.values())} failed",
        "failures": kinds or "none",
        "seed": str(run.seed),
        **cost_rows(summary.costs),
        "took": duration(summary.seconds),
        "files": told["out"] or "none here",
    }
    for row in rows.items():
        table.add_row(*row)
    if summary.load is not None:
        table.add_row("generating", summary.load.generating.text)
        table.add_row("evaluating", summary.load.evaluating.text)
        told["models"] = [asdict(one) for one in endpoints]
    for one in endpoints:
        table.add_row("model", f"{one.endpoint}: {one.text}")
    for text in summary.notices:
        table.add_row("notice", text)
    screen.out.print(table)
    if not screen.json:
        show_best(summary, problem, screen)
    screen.answer(told)


def _endpoints(run: Run, redis_url: str) -> list[Standing]:
    """Returns where the run's endpoints stand, all workers together; none if it asks nobody."""
    models = [] if run.state.final else ModelSettings(**run.settings["llm"]).every_model
    if not models:
        return []
    try:
        found = published(client_url(redis_url))
    except OSError:  # a run can be shown without the queue
        return []
    if any(one.base_url is None and one.provider is None for one in models):
        return found  # the workers' environment says which is the run's
    asked = {address(model_spec(one, os.environ.get).base_url) for one in models}
    return [one for one in found if one.endpoint in asked]


def watch(name: str, screen: Screen) -> int:
    """Follows a run that somebody else has worked on; returns the exit status."""
    at = place()
    require_runs(at)
    with opened(at) as ledger:
        run = find(ledger.store, name)
        with (
            Interruption() as stop,
            shown(screen.out, "`evoq doctor` says whether workers are there") as display,
        ):
            tail = Tail(ledger.store, run.id)
            Follower(tail, display, check=ledger.check, note=screen.note).follow(lambda: stop.asked)
        problem = problem_of(ledger.store, run)
        summary = summarise(ledger.store, run.id, problem)
    screen.say(f"{run.name} is {summary.run.state.value}; best {number(_best(summary))}")
    screen.answer(document(summary, None))
    return DONE if summary.run.state is RunState.FINISHED else FAILED


def _best(summary: Summary) -> float | None:
    return summary.best.measured.fitness if summary.best else None


def problem_of(store: Store, run: Run) -> Problem:
    """Returns a run's problem as the ledger has it."""
    from app import bootstrap

    return bootstrap.ProblemCatalogue(store)(run.problem)
