"""Metrics of a run: one row for each settled proposal, folded from the ledger's history."""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import reduce
from io import StringIO
from pathlib import Path
from tempfile import TemporaryFile
from typing import TextIO

from app.domain.run import Run
from app.domain.search.archive import Quality
from app.domain.search.cohort import State
from app.ports.history import Settled
from app.ports.protocols import Store
from app.reports.champions import Champions, read_champions
from app.reports.generations import GenerationRow, generations

PAGE = 2000
"""Proposals read at once: a long run is never held in memory as a whole."""

REREAD = 500
"""Far more proposals than settle while a transaction is open."""


@dataclass(frozen=True, slots=True)
class MetricsRow:
    """One settled proposal.

    Attributes:
      ordinal: From 0; negative for seeds.
      seconds: After the run's creation.
      cut: Why the proposal was cut, of `CutReason`; None unless it was.
      failure: The failure's kind; None unless the proposal failed.
      detail: The failure's description, or how the child differs from its parent.
      fitness: None where nothing was measured; of a proposal that was cut, of what was.
      best_so_far: Highest fitness settled up to this row, seeds included; None before the first.
        Where programs play each other: that of the champion after the row's generation.
      tokens, cost_usd: Sums over the proposal's completions; None where no price is known.
      role: Role of the model that wrote the child, where the operator asks a model.
      parent: The first parent; None for an operator without parents.
      metrics: The numbers that the evaluator reported of the program, by the names that it gave
        them.
    """

    ordinal: int
    seconds: float
    island: int
    operator: str
    role: str
    generation: int
    state: str
    cut: str | None
    failure: str | None
    fitness: float | None
    best_so_far: float | None
    verified: bool
    wall_seconds: float
    cpu_seconds: float
    peak_memory_mib: float | None
    boot_seconds: float
    tokens: int
    cost_usd: float | None
    program: str | None
    parent: str | None
    detail: str
    metrics: Mapping[str, float] = field(default_factory=dict)


COLUMNS = tuple(column.name for column in fields(MetricsRow))
OF_THE_EVALUATOR = ("metrics", "avg_metrics")
"""Columns with numbers by name, which a table spreads over one column for each name."""


def rows(
    settled: Iterable[Settled], best: Quality | None = None, champions: Champions | None = None
) -> Iterator[MetricsRow]:
    """Yields a row for each proposal, in the order given, which is the order of settling.

    Args:
      settled: The proposals.
      best: Highest quality of those before; None where none was admitted.
      champions: Of a run whose programs play each other; None for any other run.
    """
    for proposal in settled:
        best = better(best, proposal)
        highest = best.fitness if best else None
        yield MetricsRow(
            ordinal=proposal.ordinal,
            seconds=round(proposal.seconds, 6),
            island=proposal.island,
            operator=proposal.operator,
            role=proposal.role.value,
            generation=proposal.generation,
            state=proposal.state.value,
            cut=proposal.cut.value if proposal.cut else None,
            failure=proposal.failure.kind.value if proposal.failure else None,
            fitness=proposal.fitness,
            best_so_far=champions.of(proposal.cohort) if champions else highest,
            verified=proposal.verified,
            wall_seconds=round(proposal.wall_seconds, 6),
            cpu_seconds=round(proposal.cpu_seconds, 6),
            peak_memory_mib=proposal.peak_memory_mib,
            boot_seconds=round(proposal.boot_seconds, 6),
            tokens=proposal.tokens,
            cost_usd=proposal.cost_usd,
            program=proposal.program,
            parent=proposal.parents[0] if proposal.parents else None,
            detail=proposal.failure.shown if proposal.failure else proposal.changes,
            metrics=dict(sorted(proposal.metrics.items())),
        )


def better(best: Quality | None, proposal: Settled) -> Quality | None:
    """Returns the higher of a quality and that of a proposal, if it was admitted."""
    admitted = proposal.quality if proposal.state is State.ADMITTED else None
    return admitted if admitted is not None and (best is None or admitted > best) else best


def history(store: Store, run: int, after: int = 0) -> Iterator[Settled]:
    """Yields a run's settled proposals in the order of settling, without the first `after`.

    They are read a page at a time.
    """
    while True:
        with store.begin() as tx:
            page = tx.history.settled(run, after=after, limit=PAGE)
        yield from page
        after += len(page)
        if len(page) < PAGE:
            return


def metrics_of(store: Store, run: Run) -> Iterator[MetricsRow]:
    """Yields the row of each settled proposal of a run, in the order of settling."""
    with store.begin() as tx:
        champions = read_champions(tx, run)
    yield from rows(history(store, run.id), champions=champions)


def generations_of(store: Store, run: Run) -> list[GenerationRow]:
    """Returns a row for each generation of a run."""
    with store.begin() as tx:
        champions = read_champions(tx, run)
    return generations(history(store, run.id), champions)


class GrowingMetrics:
    """Appends lines to a file while a run goes on, which its results replace at the end.

    Proposals are stored by transactions that overlap, so one may appear before others that are
    already written: the last `REREAD` are read again, and each is written once.
    """

    def __init__(self, store: Store, run: Run, path: Path) -> None:
        """Writes nothing yet."""
        self._store = store
        self._run = run
        self._path = path
        self._written: set[int] = set()
        self._best: Quality | None = None

    def append(self) -> None:
        """Appends a line for each proposal that settled since the last call.

        The first call replaces what an earlier command left.

        Raises:
          Unavailable: The ledger does not answer.
          OSError: The file cannot be written to.
        """
        with self._store.begin() as tx:
            champions = read_champions(tx, self._run)
        read = history(self._store, self._run.id, max(0, len(self._written) - REREAD))
        new = [proposal for proposal in read if proposal.ordinal not in self._written]
        text = StringIO()
        write_jsonl(rows(new, self._best, champions), text)
        with self._path.open("ab" if self._written else "wb") as out:
            out.write(text.getvalue().encode("utf-8", "replace"))
        self._best = reduce(better, new, self._best)
        self._written.update(proposal.ordinal for proposal in new)


def write_jsonl(table: Iterable[MetricsRow | GenerationRow], out: TextIO) -> None:
    """Writes each row as one line of JSON."""
    for row in table:
        out.write(json.dumps(asdict(row), ensure_ascii=False) + "\n")


def write_csv(
    table: Iterable[MetricsRow | GenerationRow],
    out: TextIO,
    columns: Sequence[str] = COLUMNS,
) -> None:
    """Writes a header and one line for each row; absent values are empty, counts are JSON.

    Each metric of the evaluator has a column after all others, as `metrics.accuracy`, so that none
    has the name of another column.  The rows wait in a temporary file until all names are known.
    """
    own = [column for column in columns if column not in OF_THE_EVALUATOR]
    spread: set[str] = set()
    with TemporaryFile("w+", encoding="ascii") as rows_so_far:
        for row in table:
            values = asdict(row)
            for column in OF_THE_EVALUATOR:
                metrics = {f"{column}.{name}": n for name, n in values.pop(column, {}).items()}
                spread |= metrics.keys()
                values |= metrics
            rows_so_far.write(json.dumps(values) + "\n")
        rows_so_far.seek(0)
        writer = csv.DictWriter(out, [*own, *sorted(spread)], lineterminator="\n")
        writer.writeheader()
        for line in rows_so_far:
            values = json.loads(line)
            writer.writerow(
                {k: json.dumps(v) if isinstance(v, dict) else v for k, v in values.items()}
            )
