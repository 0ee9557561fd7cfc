"""The folder of a run's results: what `evoq run` leaves behind."""

import json
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TextIO

from app.domain.problem import Problem
from app.domain.program import Program
from app.domain.run import Run
from app.domain.secrets import redacted_values
from app.ports.protocols import Store
from app.ports.workers import Worker
from app.reports.course import read_course
from app.reports.decoration import NotMade, attempt
from app.reports.documents import Json, RunDocument, to_json
from app.reports.generations import has_generations
from app.reports.metrics import generations_of, metrics_of, write_csv, write_jsonl
from app.reports.patch import patch_of
from app.reports.program_files import write_files
from app.reports.summary import Summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOTS_PER_INCH = 110
_BEST = "best_program"
_PATCH = "best.patch"


@dataclass(frozen=True, slots=True)
class Drawn:
    """Pictures: the files that were written, and those that could not be."""

    files: list[Path]
    missing: list[NotMade]


def write(store: Store, summary: Summary, problem: Problem, folder: Path) -> list[NotMade]:
    """Writes every file of a run's folder; returns the pictures that could not be drawn.

    A reader never sees half a file.

    Raises:
      OSError: The folder cannot be written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_best(summary, problem, folder)
    write_metrics(store, summary.run, folder)
    with store.begin() as tx:
        workers = tx.workers.at_work_for(summary.run.id)
    _write_json(folder / "settings.json", snapshot(summary, problem, workers))
    return draw(store, summary, folder).missing


def write_best(summary: Summary, problem: Problem, folder: Path) -> None:
    """Writes the best program and its measurements; nothing while there is none.

    One of several files is a folder, with a patch against the first seed beside it.
    """
    if summary.best is None:
        return
    program, source = summary.best.program, summary.best.source
    several = bool(program.path)
    name = _BEST if several else f"{_BEST}{problem.suffix}"
    if several:
        patch = patch_of(problem.seeds[0], program)
        _write_folder(folder / name, program)
        _write_text(folder / _PATCH, lambda out: out.write(patch))
    else:
        _write_text(folder / name, lambda out: out.write(source))
    whole = to_json(RunDocument(summary))
    best = {**to_json(summary.best), "run": summary.run.name, "file": name}
    best |= {"patch": _PATCH} if several else {}
    best |= {name: whole[name] for name in ("baselines", "validated", "costs")}
    _write_json(folder / "best.json", best)


def write_metrics(store: Store, run: Run, folder: Path) -> None:
    """Writes `metrics.jsonl` and `metrics.csv`."""
    _write_text(folder / "metrics.jsonl", lambda out: write_jsonl(metrics_of(store, run), out))
    _write_text(folder / "metrics.csv", lambda out: write_csv(metrics_of(store, run), out))


def draw(store: Store, summary: Summary, folder: Path) -> Drawn:
    """Draws `evolution.png`, `failures.png`, `archive.png`, and `generations.png` if there are any.

    Each is drawn if it can be.  Shown is what the pages of the dashboard show: the course of the
    run, and its archive.
    """
    run = summary.run
    seeds = summary.baselines.items()
    baselines = {name: seed.fitness for name, seed in seeds if seed.fitness is not None}
    title = f"{run.name} ({run.problem_name})" if run.problem_name not in run.name else run.name
    course = cache(partial(read_course, store, run.id))
    with store.begin() as tx:
        elites = tx.archive.elites(run.id)
    figures: dict[Path, Callable[[], Figure]] = {
        folder / "evolution.png": lambda: plots().evolution(course(), baselines, title),
        folder / "failures.png": lambda: plots().failures(course(), title),
        folder / "archive.png": lambda: plots().archive(elites, run.axes, title),
    }
    if has_generations(run):
        figures[folder / "generations.png"] = lambda: plots().by_generation(
            generations_of(store, run), title
        )
    return draw_files(figures)


def plots() -> ModuleType:
    """Returns what draws; where matplotlib cannot be imported, only pictures are missing."""
    from app.reports import plots

    return plots


def draw_files(figures: Mapping[Path, Callable[[], "Figure"]]) -> Drawn:
    """Draws figures into files, each if it can be drawn."""
    made = {
        path: attempt(path.name, partial(_draw_file, make, path)) for path, make in figures.items()
    }
    missing = [found for found in made.values() if isinstance(found, NotMade)]
    return Drawn([path for path, found in made.items() if found is None], missing)


def _draw_file(make: Callable[[], "Figure"], path: Path) -> None:
    save(make(), path)


def snapshot(summary: Summary, problem: Problem, workers: Sequence[Worker]) -> Json:
    """Returns the settings that held in the run, without secrets.

    What the run leaves to its problem has the problem's value; what workers own has that of the
    workers, where all that worked for the run agree.  `workers` lists what each kind applied.
    """
    run = summary.run
    held = _held(run, problem)
    applied = [worker.settings for worker in workers]
    for key in {key for settings in applied for key in settings}:
        values = [settings[key] for settings in applied if key in settings]
        section, _, name = key.partition(".")
        held[section][name] = values[0] if all(v == values[0] for v in values) else values
    return {
        "run": run.name,
        "problem": {
            "name": problem.name,
            "digest": problem.digest,
            "format": problem.format,
            "options": redacted_values(problem.options),
        },
        "strategy": run.strategy,
        "seed": run.seed,
        "operators": dict(run.operators),
        "settings": redacted_values(held),
        "workers": [
            {
                "id": worker.id,
                "kind": worker.kind,
                "protections": None
                if worker.protections is None
                else [name for name, remedy in worker.protections if not remedy],
            }
            for worker in workers
        ],
    }


def _held(run: Run, problem: Problem) -> Json:
    """Returns the settings of a run with the values of its problem where the run has none."""
    held = {name: dict(section) for name, section in run.settings.items()}
    job = problem.first_job()
    held["sandbox"] |= {**asdict(job.limits), "mode": job.mode.value}
    if held["search"]["enforce_blocks"] is None:
        held["search"]["enforce_blocks"] = problem.edit.enforce_blocks
    held["search"]["operators"] = dict(run.operators)
    return held


def _write_json(path: Path, value: object) -> None:
    _write_text(path, lambda out: out.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n"))


def _write_folder(folder: Path, program: Program) -> None:
    """Writes a program of several files into a folder, in which no other file is left."""
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        write_files(program, part)
        if folder.is_dir():
            shutil.rmtree(folder)
        part.replace(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _write_text(path: Path, write_to: Callable[[TextIO], object]) -> None:
    with (
        _replacing(path) as part,
        part.open("w", encoding="utf-8", errors="replace", newline="") as out,
    ):
        write_to(out)


def save(figure: "Figure", path: Path) -> None:
    """Writes a figure as PNG."""
    with _replacing(path) as part, warnings.catch_warnings():
        # Matplotlib draws a glyph that the font lacks as a box.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(part, format="png", dpi=DOTS_PER_INCH, bbox_inches="tight")


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary file beside `path`, which replaces it unless writing fails."""
    part = path.with_name(f".{path.name}.part")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
