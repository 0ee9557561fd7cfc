"""`evoq delete` and `evoq keep`: runs that leave the ledger, and runs that stay."""

import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from app.cli.export import new_file
from app.cli.options import Debug, Json, RunName
from app.cli.output import Screen
from app.cli.transfer import SUFFIX
from app.client.notes import CommandError
from app.client.target import find_run, find_target, open_ledger, open_run
from app.config.layers import UsageError
from app.engine import retention
from app.engine.inside import refusal
from app.ports.protocols import Store
from app.ports.retention import StoredRun
from app.reports.ledger_file import write_ledger

DAY = 86400.0


def delete(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="RUN...", help="Names or numbers of runs.")
    ] = None,
    older_than: Annotated[
        float | None,
        typer.Option(
            "--older-than", metavar="DAYS", min=0.0, help="All runs that ended so long ago."
        ),
    ] = None,
    keep_best: Annotated[
        int,
        typer.Option("--keep-best", metavar="N", min=0, help="But the best N of each problem."),
    ] = 0,
    export: Annotated[
        str | None,
        typer.Option("--export", metavar="FOLDER", help="Write each run there first, to a file."),
    ] = None,
    full: Annotated[
        bool,
        typer.Option("--full", help="Give the room back to the file system; needs an idle ledger."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001  read by `status_of`
) -> None:
    """Deletes runs, with the runs inside them, and what no other run uses.

    Asks before. A run that is running or kept is refused. A deleted run disappears at once; its
    rows follow, and if this command is interrupted, workers or the next `evoq delete` go on.
    Postgres gives their room to later runs; with --full it rewrites the tables and gives it back
    to the file system.

    Examples:
      evoq delete online_bin_packing-1
      evoq delete --older-than 30 --keep-best 3 --export archive
      evoq delete 1 2 3 --yes
    """
    screen, target = Screen(json=as_json), find_target()
    with open_ledger(target) as ledger:
        store = ledger.store
        if full:
            _require_idle(store)
        chosen = _chosen(store, names or [], older_than, keep_best)
        if chosen:
            _confirm(chosen, screen, yes=yes)
        files = _export(store, chosen, Path(export), screen) if export is not None else {}
        for run in chosen:
            with store.begin() as tx:
                if not tx.retention.delete(run.id, "asked"):
                    raise CommandError(
                        f"{run.name} was changed by another command at the same moment: give "
                        f"the command again"
                    )
            screen.say(f"deleted {run.name}")
        removed = retention.sweep(store)
        if removed or full:
            store.vacuum(full=full)
    _answer(screen, chosen, files, removed)


def _chosen(
    store: Store, names: Sequence[str], older_than: float | None, keep_best: int
) -> list[StoredRun]:
    """Returns the runs to delete; [] where only the rest of earlier deletions is to be swept.

    Raises:
      UsageError: Nothing is named, and nothing is left of earlier deletions.
      CommandError: A named run may not be deleted now.
    """
    if not names and older_than is None:
        with store.begin() as tx:
            if tx.retention.unswept():
                return []
        raise UsageError(
            "no run is named",
            where="RUN",
            remedy="Name runs, or give --older-than DAYS; `evoq list-runs` lists them.",
        )
    runs = [find_run(store, name) for name in names]
    for run in runs:
        if why := refusal(store, run):
            raise CommandError(f"{why}: delete that one")
    with store.begin() as tx:
        found = tx.retention.stored([run.id for run in runs]) if runs else []
        if older_than is not None:
            ended = tx.retention.stored(ended=True, older_seconds=older_than * DAY)
            found += [run for run in ended if run.id not in {one.id for one in found}]
    best = _best(found, keep_best)
    chosen = [run for run in found if run.id not in best]
    if obstacles := [run.obstacle for run in chosen if run.obstacle]:
        raise CommandError("; ".join(obstacles))
    if not chosen:
        kept = f" but the best {keep_best} of each problem" if keep_best else ""
        raise CommandError(f"there is no run to delete{kept}: `evoq list-runs` lists all")
    return chosen


def _best(runs: Sequence[StoredRun], most: int) -> set[int]:
    """Returns the runs with the highest fitness of each problem; the older one of equals."""
    by_problem: defaultdict[str, list[StoredRun]] = defaultdict(list)
    for run in runs:
        if run.best is not None:
            by_problem[run.problem].append(run)
    ranked = (
        sorted(group, key=lambda run: (-(run.best or 0.0), run.id))[:most]
        for group in by_problem.values()
    )
    return {run.id for group in ranked for run in group}


def _require_idle(store: Store) -> None:
    with store.begin() as tx:
        running = tx.runs.running() + tx.runs.running(in_process=True)
    if running:
        raise CommandError(
            f"--full locks every table while it rewrites them, and {len(running)} runs are "
            f"running: pause them first, or leave --full out"
        )


def _confirm(chosen: Sequence[StoredRun], screen: Screen, *, yes: bool) -> None:
    for run in chosen:
        best = "no program measured" if run.best is None else f"best {run.best:g}"
        inside = f", with {len(run.inside)} runs inside: {', '.join(run.inside[:5])}"
        screen.note(
            f"{run.name} ({run.id}): {run.state.value}, {run.proposals} proposals, {best}, "
            f"last event {run.age_seconds / DAY:.1f} days ago{inside if run.inside else ''}"
        )
    if yes:
        return
    if screen.json or not sys.stdin.isatty():
        raise UsageError(
            "nobody can be asked here",
            where="--yes",
            remedy="Give --yes to delete these runs without a question.",
        )
    if not typer.confirm(f"Delete {len(chosen)} runs for good?", err=True):
        raise typer.Abort


def _export(
    store: Store, chosen: Sequence[StoredRun], folder: Path, screen: Screen
) -> dict[str, str]:
    """Writes each run to a file of the folder; nothing is deleted if one cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(
            f"{folder}: cannot be made ({error.strerror}). Give another path with --export"
        ) from error
    files = {}
    for run in chosen:
        path = folder / f"{run.name}{SUFFIX}"
        with new_file(path) as file:
            rows = write_ledger(store, find_run(store, run.name), file)
        files[run.name] = str(path)
        screen.say(f"{path}: {rows} rows, {path.stat().st_size} bytes")
        if run.inside:
            screen.note(f"notice: runs inside {run.name} are not in {path}")
    return files


def _answer(
    screen: Screen, chosen: Sequence[StoredRun], files: dict[str, str], removed: Counter[str]
) -> None:
    rows = ", ".join(f"{table} {n}" for table, n in sorted(removed.items()) if n)
    screen.say(f"removed rows: {rows or 'none'}")
    deleted = [
        {
            "run": run.name,
            "id": run.id,
            "inside": list(run.inside),
            "file": files.get(run.name),
        }
        for run in chosen
    ]
    screen.answer({"deleted": deleted, "removed": dict(removed)})


def keep(
    name: RunName,
    release: Annotated[bool, typer.Option("--release", help="Protect the run no longer.")] = False,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Protects a run from `evoq delete` and from the limits of the ledger.

    Examples:
      evoq keep online_bin_packing-1
      evoq keep online_bin_packing-1 --release
    """
    screen = Screen(json=as_json)
    with open_run(name) as (ledger, run):
        if why := refusal(ledger.store, run):
            raise CommandError(f"{why}: keep that one")
        with ledger.store.begin() as tx:
            tx.retention.keep(run.id, kept=not release)
    screen.say(f"{run.name} is {'no longer kept' if release else 'kept'}")
    screen.answer({"run": run.name, "id": run.id, "kept": not release})
