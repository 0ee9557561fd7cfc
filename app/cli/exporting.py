"""`evoq export-best`, `metrics` and `plot`: files from the ledger."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from app.cli.execution import find
from app.cli.faults import Failed
from app.cli.local_state import recall, writable
from app.cli.screen import Screen
from app.cli.show import problem_of
from app.cli.target import opened, place, require_runs
from app.reports.metrics import history, rows, write_csv, write_jsonl
from app.reports.summary import best_document, summarise


def export_best(name: str, out: Path | None, screen: Screen) -> None:
    """Writes the best program's source to a file or to standard output.

    Raises:
      Failed: The run has no measured program.
    """
    at = place()
    require_runs(at)
    with opened(at) as ledger:
        run = find(ledger.store, name)
        best = summarise(ledger.store, run.id, problem_of(ledger.store, run)).best
    if best is None:
        raise Failed(f"{run.name} has no measured program yet")
    if out is not None:
        with _writing(out) as file:
            file.write(best.source)
        screen.say(f"{out}: fitness {best.measured.fitness:.6g}")
    elif not screen.json:
        sys.stdout.write(best.source)
    screen.answer({"run": run.name, **best_document(best), "out": str(out) if out else None})


def metrics(name: str, form: str, out: Path | None, screen: Screen) -> None:
    """Writes one line a settled proposal; as one JSON list where that was asked for."""
    at = place()
    require_runs(at)
    write = write_csv if form == "csv" else write_jsonl
    with opened(at) as ledger:
        run = find(ledger.store, name)
        settled = rows(history(ledger.store, run.id))
        if out is not None:
            with _writing(out) as file:
                write(settled, file)
            screen.say(f"wrote {out}")
            screen.answer({"run": run.name, "format": form, "out": str(out)})
        elif screen.json:
            screen.answer([asdict(row) for row in settled])
        else:
            write(settled, sys.stdout)


def plot(name: str, out: Path | None, screen: Screen) -> None:
    """Draws a run's pictures."""
    from app.reports.folder import draw

    at = place()
    require_runs(at)
    with opened(at) as ledger:
        run = find(ledger.store, name)
        folder = writable(out or Path(recall(at.home, run.name).out))
        summary = summarise(ledger.store, run.id, problem_of(ledger.store, run))
        drawn = [str(path) for path in draw(ledger.store, summary, folder)]
    for path in drawn:
        screen.say(path)
    screen.answer({"run": run.name, "files": drawn})


@contextmanager
def _writing(path: Path) -> Iterator[TextIO]:
    try:
        with path.open("w", encoding="utf-8", errors="replace", newline="") as file:
            yield file
    except OSError as error:
        raise Failed(
            f"{path}: cannot be written ({error.strerror}). Give another place with --out"
        ) from error
