"""`evoq export-best`, `export-programs`, `metrics` and `plot`: files from the ledger."""

import io
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, BinaryIO, TextIO

import typer

from app.cli.options import Debug, Json, OutFile, RunName
from app.cli.output import DONE, FAILED, Screen
from app.client.local_state import read_local_state, require_own, require_writable
from app.client.notes import CommandError
from app.client.target import open_run, stored_problem
from app.config.layers import UsageError
from app.domain.problem import Problem
from app.domain.run import Run
from app.reports.checkpoint import write_checkpoint
from app.reports.documents import to_json
from app.reports.folder import draw
from app.reports.generations import GenerationRow
from app.reports.metrics import MetricsRow, generations_of, metrics_of, write_csv, write_jsonl
from app.reports.program_files import write_files
from app.reports.programs import INDEX, write_programs
from app.reports.summary import BestProgram, Summary, summarise


class MetricsUnit(StrEnum):
    """What a line of metrics is about."""

    PROPOSAL = "proposal"
    GENERATION = "generation"


class MetricsFormat(StrEnum):
    """File format of metrics."""

    JSONL = "jsonl"
    CSV = "csv"


def export_best(
    name: RunName,
    out: OutFile = None,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001  read by `status_of`
) -> None:
    """Writes the source of a run's best program; one of several files into a new or empty folder.

    Examples:
      evoq export-best online_bin_packing-1 --out best.py
      evoq export-best spelling-1 --out best
    """
    screen = Screen(json=as_json)
    with open_run(name) as (ledger, run):
        summary = summarise(ledger.store, run.id, stored_problem(ledger.store, run))
    best = best_of(summary)
    if out:
        _write_best(best, out)
        screen.say(f"{Path(out)}: fitness {summary.best_text}")
    elif not screen.json:
        sys.stdout.write(best.source)
    path = str(Path(out)) if out else None
    screen.answer({"run": run.name, **to_json(best), "out": path})


def best_of(summary: Summary) -> BestProgram:
    """Returns the best program of a run.

    Raises:
      CommandError: None was measured yet.
    """
    if summary.best is None:
        raise CommandError(f"{summary.run.name} has no measured program yet")
    return summary.best


def require_several(problem: Problem, run: Run, where: str) -> None:
    """Raises `UsageError` where the programs of a run have one file, and so no patch."""
    if problem.seeds[0].path:
        return
    raise UsageError(
        "its programs have one file, and a patch changes the files of a folder",
        where=where,
        value=run.name,
        remedy=f"Write the best one with `evoq export-best {run.name} --out FILE`.",
    )


def _write_best(best: BestProgram, out: str) -> None:
    if best.program.path:
        folder = _empty(out)
        with _explaining(folder):
            write_files(best.program, folder)
        return
    with writing(Path(out)) as file:
        file.write(best.source)


def export_programs(
    name: RunName,
    out: Annotated[str, typer.Option("--out", metavar="DIR", help="A new or empty folder.")],
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Writes every program of a run to a file, and an index of their metrics.

    A program of several files gets a folder.

    Examples:
      evoq export-programs online_bin_packing-1 --out programs
    """
    screen = Screen(json=as_json)
    folder = _empty(out)
    with open_run(name) as (ledger, run):
        problem = stored_problem(ledger.store, run)
        suffix = "" if problem.seeds[0].path else problem.suffix
        settled = metrics_of(ledger.store, run)
        with _explaining(folder):
            programs = write_programs(ledger.store, settled, suffix, folder)
    screen.say(f"{folder}: {programs} programs, and {INDEX} on each proposal")
    screen.answer({"run": run.name, "programs": programs, "index": INDEX, "out": str(folder)})


def export_checkpoint(
    name: RunName,
    out: Annotated[str, typer.Option("--out", metavar="DIR", help="A new or empty folder.")],
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Writes the admitted programs of a run as a checkpoint of OpenEvolve.

    OpenEvolve's visualiser opens the folder, and `--set problem.checkpoint=DIR` begins another run
    of an OpenEvolve folder with its programs.

    Examples:
      evoq export-checkpoint online_bin_packing-1 --out openevolve_output
    """
    screen = Screen(json=as_json)
    folder = _empty(out)
    with open_run(name) as (ledger, run):
        problem = stored_problem(ledger.store, run)
        if problem.seeds[0].path:
            raise CommandError(
                f"{run.name} has programs of several files, and those of OpenEvolve have one: "
                f"`evoq export-programs {run.name} --out DIR` writes them as folders"
            )
        summary = summarise(ledger.store, run.id, problem)
        with _explaining(folder):
            written = write_checkpoint(ledger.store, summary, problem, folder)
    screen.say(str(written))
    screen.answer({"run": run.name, "out": str(written)})


def metrics(
    name: RunName,
    form: Annotated[
        MetricsFormat, typer.Option("--format", help="One line for each row.")
    ] = MetricsFormat.JSONL,
    by: Annotated[
        MetricsUnit,
        typer.Option("--by", help="A row for each settled proposal, or for each generation."),
    ] = MetricsUnit.PROPOSAL,
    out: OutFile = None,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Writes the metrics of every settled proposal, or generation; with --json as one list.

    Examples:
      evoq metrics online_bin_packing-1 --format csv > metrics.csv
      evoq metrics 1 --format jsonl --out metrics.jsonl
      evoq metrics 1 --by generation
    """
    screen = Screen(json=as_json)
    kind = GenerationRow if by is MetricsUnit.GENERATION else MetricsRow
    columns = [field.name for field in fields(kind)]
    write = partial(write_csv, columns=columns) if form is MetricsFormat.CSV else write_jsonl
    with open_run(name) as (ledger, run):
        read = generations_of if by is MetricsUnit.GENERATION else metrics_of
        settled: Iterable[MetricsRow | GenerationRow] = read(ledger.store, run)
        if out:
            with writing(Path(out)) as file:
                write(settled, file)
            screen.say(f"wrote {Path(out)}")
            screen.answer({"run": run.name, "format": form.value, "out": str(Path(out))})
        elif screen.json:
            screen.answer([asdict(row) for row in settled])
        else:
            write(settled, sys.stdout)


def plot(
    name: RunName,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="DIR", help="Folder; the run's own folder by default."),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,  # noqa: ARG001
) -> int:
    """Draws evolution.png, failures.png, archive.png and, of generations, generations.png.

    Examples:
      evoq plot online_bin_packing-1
      evoq plot 1 --out pictures
    """
    screen = Screen(json=as_json)
    with open_run(name) as (ledger, run):
        folder = require_writable(Path(out or read_local_state(ledger.home, run.name).out))
        require_own(folder, "--out", run=run.name, problem=run.problem)
        summary = summarise(ledger.store, run.id, stored_problem(ledger.store, run))
        pictures = draw(ledger.store, summary, folder)
    files = [str(path) for path in pictures.files]
    for path in files:
        screen.say(path)
    answer = {"run": run.name, "files": files}
    if pictures.missing:
        answer["error"] = why = "; ".join(each.text for each in pictures.missing)
        screen.note(f"error: {why}")
    screen.answer(answer)
    return FAILED if pictures.missing else DONE


def _empty(out: str) -> Path:
    """Returns a folder that is made if there is none.

    Raises:
      UsageError: It cannot be written to, or files of it might be overwritten.
    """
    folder = require_writable(Path(out))
    if there := next(folder.iterdir(), None):
        raise UsageError(
            "the folder is not empty, and files of it might be overwritten",
            where="--out",
            value=f"{folder}, with {there.name}",
            remedy="Name a folder that is new or empty.",
        )
    return folder


@contextmanager
def writing(path: Path) -> Iterator[TextIO]:
    """Opens a new file for text; see `new_file`."""
    with (
        new_file(path) as file,
        io.TextIOWrapper(file, "utf-8", errors="replace", newline="") as text,
    ):
        yield text


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Opens a new file for writing.

    Raises:
      UsageError: It exists.
      CommandError: It cannot be written.
    """
    if path.is_file():
        raise UsageError(
            "the file is there and would be overwritten",
            where="--out",
            value=str(path),
            remedy="Name another file, or move this one away.",
        )
    with _explaining(path), path.open("wb") as file:
        yield file


@contextmanager
def _explaining(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CommandError(
            f"{path}: cannot be written ({error.strerror}). Give another path with --out"
        ) from error
