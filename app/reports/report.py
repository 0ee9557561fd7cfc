"""The report on runs: one HTML file with curves, archive, lineage, failures, savings and settings.

What programs, evaluators and models wrote is shown as text, never as markup.
"""

import difflib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from app.domain.digits import number_text, number_texts
from app.domain.problem import Problem
from app.domain.program import Program
from app.domain.run import Run
from app.domain.secrets import redacted
from app.ports.completions import Account
from app.ports.history import Settled
from app.ports.protocols import Store
from app.ports.workers import WorkerTime
from app.reports.decoration import NotMade, attempt
from app.reports.folder import Drawn, draw, snapshot
from app.reports.funnel import HEADINGS
from app.reports.measured import MeasuredProgram, read_lineage
from app.reports.page import code, fenced, page, row, rule
from app.reports.patch import changes_of, patch_of
from app.reports.program_files import file_tree
from app.reports.summary import BestProgram, Summary, ValidatedProgram
from app.reports.text import usd

MOST_ANCESTORS = 100


@dataclass(frozen=True, slots=True)
class Step:
    """A program of the lineage of the best.

    Attributes:
      settled: Its admission.
      diff: The lines that it changed of its first parent; the whole text of a seed, or its files'
        names where it has several.
    """

    settled: Settled
    diff: str


def report(
    store: Store,
    runs: Sequence[tuple[Summary, Problem]],
    note: Callable[[NotMade], None],
) -> str:
    """Returns the report as one HTML file.

    Args:
      store: The ledger.
      runs: Summaries with their problems.
      note: Receives each picture or section that could not be made; the reason stands in its place.
    """
    names = ", ".join(summary.run.name for summary, _ in runs)
    with TemporaryDirectory() as scratch:
        lines, pictures = [f"# {code(names)}", ""], []
        for number, (summary, problem) in enumerate(runs):
            folder = Path(scratch, str(number))
            folder.mkdir()
            drawn = draw(store, summary, folder)
            named = [path.rename(path.with_name(f"{number}-{path.name}")) for path in drawn.files]
            pictures += named
            for missing in drawn.missing:
                note(missing)
            lines += [*_run(store, summary, problem, Drawn(named, drawn.missing), note), ""]
        return page(f"Report on {names}", "\n".join(lines), pictures)


def lineage(store: Store, run: Run, best: BestProgram) -> list[Step]:
    """Returns the best program and its ancestors by first parents, oldest first."""
    with store.begin() as tx:
        line = read_lineage(tx, run, best.measured.program, MOST_ANCESTORS)
        programs = [settled.program for settled in line if settled.program]
        known = tx.programs.get(programs)
    steps: list[Step] = []
    before: Program | None = None
    for settled in reversed(line):
        program = known[settled.program or ""]
        steps.append(Step(settled, _diff(before, program) if before else _whole(program)))
        before = program
    return steps


def _whole(program: Program) -> str:
    if program.path:
        return "\n".join(file_tree([file.path for file in program.files], {}))
    return program.source


def _diff(before: Program, after: Program) -> str:
    if after.path:
        return patch_of(before, after)
    old, new = before.source.splitlines(), after.source.splitlines()
    return "\n".join(list(difflib.unified_diff(old, new, lineterm="", n=2))[2:])


def _run(
    store: Store,
    summary: Summary,
    problem: Problem,
    pictures: Drawn,
    note: Callable[[NotMade], None],
) -> Iterator[str]:
    """Yields the lines on a run: of each section, or why it could not be made."""

    def section(heading: str, lines: Callable[[], Iterable[str]]) -> Iterator[str]:
        yield from (f"### {heading}", "")
        made = attempt(f"section {heading!r} of {summary.run.name}", lambda: list(lines()))
        if isinstance(made, NotMade):
            note(made)
            made = [code(made.text), ""]
        yield from made

    run, best = summary.run, summary.best
    yield from (f"## {code(run.name)}", "")
    yield from _table(
        ("", ""),
        [
            ("problem", f"{code(problem.name)} ({run.problem[:12]}, {problem.format})"),
            ("state", f"{run.state.value} {code(redacted(run.reason))}"),
            ("settled", f"{summary.iterations} of {run.budget.proposals} proposals"),
            ("measured", str(summary.measured)),
            ("entered the archive", str(summary.entered)),
            ("took", f"{summary.seconds:.0f} s"),
            ("best fitness", summary.best_text),
            *(
                [("by validation", _by_validation(summary, best.validation))]
                if best and best.validation
                else []
            ),
            ("not evaluated", summary.savings.text),
        ],
    )
    for path in pictures.files:
        yield from (f"![{path.stem}]({path.name})", "")
    for missing in pictures.missing:
        yield from (code(missing.text), "")
    yield from section("Results", lambda: _results(summary))
    if summary.validated:
        yield from section("Validation", lambda: _validation(summary))
    if best is not None:
        yield from section("The best program", lambda: _best(best.program, problem))
        yield from section(
            "Lineage of the best", lambda: _lineage(store, summary, best, problem.language)
        )
    yield from section("Failures and cuts", lambda: _counts(summary))
    yield from section("Funnel", lambda: _table(HEADINGS, _funnel(summary)))
    yield from section("Cost", lambda: _costs(summary))
    if summary.notices:
        notices = "\n".join(map(redacted, summary.notices))
        yield from section("Notices", lambda: fenced(notices))
    yield from section("Settings", lambda: _settings(store, summary, problem))


def _best(program: Program, problem: Problem) -> Iterator[str]:
    """Yields the text of a program; of several files, how they differ from the first seed."""
    if not program.path:
        yield from fenced(program.source, problem.language)
        return
    changes = changes_of(problem.seeds[0], program)
    marks = {change.path: change.kind for change in changes}
    yield from fenced("\n".join(file_tree([file.path for file in program.files], marks)))
    if changes:
        yield from fenced("".join(change.patch for change in changes), "diff")
    else:
        yield from ("No file differs from the first start program.", "")


def _lineage(store: Store, summary: Summary, best: BestProgram, language: str) -> Iterator[str]:
    steps = lineage(store, summary.run, best)
    fitness = number_texts([step.settled.fitness for step in steps], summary.told_apart)
    for step, text in zip(steps, fitness, strict=True):
        yield from _step(step, text, language)


def _counts(summary: Summary) -> list[str]:
    counts = [*summary.failures.items(), *((f"cut: {name}", n) for name, n in summary.cuts.items())]
    return _table(("kind", "proposals"), [(code(name), str(n)) for name, n in counts])


def _settings(store: Store, summary: Summary, problem: Problem) -> list[str]:
    with store.begin() as tx:
        workers = tx.workers.at_work_for(summary.run.id)
    return fenced(json.dumps(snapshot(summary, problem, workers), indent=2), "json")


def _results(summary: Summary) -> list[str]:
    columns: dict[str, MeasuredProgram] = dict(summary.baselines)
    if summary.best is not None:
        columns = {"best": summary.best.measured, **columns}
    metrics = sorted({name for column in columns.values() for name in column.metrics})
    fitness = [column.fitness for column in columns.values()]
    lines = [("fitness", *number_texts(fitness, summary.told_apart))]
    for name in metrics:
        values = number_texts([column.metrics.get(name) for column in columns.values()])
        lines.append((code(name), *values))
    return _table(("", *map(code, columns)), lines)


def _validation(summary: Summary) -> list[str]:
    head = ("program", "", "by search", "by validation")
    searched = [one.admitted.fitness if one.admitted else None for one in summary.validated]
    measured = [one.measured.fitness for one in summary.validated]
    texts = number_texts(searched, summary.told_apart), number_texts(measured)
    lines = [_validated(*each) for each in zip(summary.validated, *texts, strict=True)]
    return _table(head, lines)


def _validated(validated: ValidatedProgram, by_search: str, by_validation: str) -> tuple[str, ...]:
    outcome = by_validation
    if validated.failure is not None:
        detail = redacted(validated.failure.detail).strip().splitlines()[:1]
        outcome = code(": ".join([validated.failure.kind.value, *detail]))
    names = code(", ".join(validated.names)) if validated.names else ""
    return code(validated.measured.program[:8]), names, by_search, outcome


def _step(step: Step, fitness: str, language: str) -> Iterator[str]:
    settled = step.settled
    what = "seed" if settled.seed else f"proposal {settled.ordinal}, {settled.operator}"
    yield f"**Fitness {fitness}** – {what}, island {settled.island}"
    yield ""
    if settled.changes:
        yield from fenced(redacted(settled.changes))
    yield from fenced(step.diff, language if settled.seed else "diff")


def _funnel(summary: Summary) -> list[tuple[str, ...]]:
    return [(code(who), code(model), *rest) for who, model, *rest in summary.funnel.rows()]


def _costs(summary: Summary) -> list[str]:
    costs = summary.costs
    lines = [*map(_of_model, costs.models), *map(_of_workers, costs.workers)]
    return _table(("", "spent", "cost"), lines)


def _of_model(account: Account) -> tuple[str, str, str]:
    tokens = account.prompt_tokens + account.completion_tokens
    name = code(f"{account.role} {account.model}")
    return name, f"{account.completions} completions, {tokens} tokens", usd(account.cost_usd)


def _of_workers(worker: WorkerTime) -> tuple[str, str, str]:
    return f"workers: {worker.kind}", f"{worker.seconds:.0f} s", usd(worker.cost_usd)


def _table(head: Sequence[str], lines: Sequence[Sequence[object]]) -> list[str]:
    if not lines:
        return ["None.", ""]
    return [row(head), rule(len(head)), *(row(list(map(str, line))) for line in lines), ""]


def _by_validation(summary: Summary, measured: MeasuredProgram) -> str:
    """Returns the fitness of the best by validation, told apart from those of the others."""
    return number_text(measured.fitness, *(one.measured.fitness for one in summary.validated))
