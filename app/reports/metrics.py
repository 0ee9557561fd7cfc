"""Metrics of a run: one row a settled proposal, as a fold over the ledger's history."""

import csv
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from typing import TextIO

from app.domain.search.archive import Quality
from app.ports.protocols import Store
from app.ports.records import Settled

PAGE = 2000
"""Proposals read at once, so that a long run is never in memory as a whole."""


@dataclass(frozen=True, slots=True)
class Row:
    """One settled proposal.

    Attributes:
      ordinal: From 0; negative for seeds.
      seconds: After the run's creation.
      failure: The failure's kind; None unless the proposal failed.
      detail: What the failure says of itself, or how the child differs from its parent.
      fitness: None where the proposal never reached the final stage.
      best_so_far: The fittest settled up to here, seeds included; None before the first.
      tokens, cost_usd: Of the completions paid for in its name; None where no price is known.
      role: Who wrote the child, where a model was asked.
      parent: The first parent; None where the operator had none.
    """

    ordinal: int
    seconds: float
    island: int
    operator: str
    role: str
    generation: int
    state: str
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


COLUMNS = tuple(field.name for field in fields(Row))


def rows(settled: Iterable[Settled]) -> Iterator[Row]:
    """Yields a row for each proposal, in the order given, which is the order of settling."""
    best: Quality | None = None
    for one in settled:
        if one.quality is not None and (best is None or one.quality > best):
            best = one.quality
        yield Row(
            ordinal=one.ordinal,
            seconds=round(one.seconds, 6),
            island=one.island,
            operator=one.operator,
            role=one.role.value,
            generation=one.generation,
            state=one.state.value,
            failure=one.failure.kind.value if one.failure else None,
            fitness=one.fitness,
            best_so_far=best.fitness if best else None,
            verified=one.verified,
            wall_seconds=round(one.wall_seconds, 6),
            cpu_seconds=round(one.cpu_seconds, 6),
            peak_memory_mib=one.peak_memory_mib,
            boot_seconds=round(one.boot_seconds, 6),
            tokens=one.tokens,
            cost_usd=one.cost_usd,
            program=one.program,
            parent=one.parents[0] if one.parents else None,
            detail=one.failure.detail if one.failure else one.changes,
        )


def history(store: Store, run: int) -> Iterator[Settled]:
    """Yields a run's settled proposals in the order of settling, a page at a time."""
    after = 0
    while True:
        with store.begin() as tx:
            page = tx.settled(run, after=after, limit=PAGE)
        yield from page
        after += len(page)
        if len(page) < PAGE:
            return


def write_jsonl(written: Iterable[Row], out: TextIO) -> None:
    """Writes one JSON object a line."""
    for row in written:
        out.write(json.dumps(asdict(row), ensure_ascii=False) + "\n")


def write_csv(written: Iterable[Row], out: TextIO) -> None:
    """Writes a header and one line a row; absent values are empty."""
    table = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    table.writeheader()
    for row in written:
        table.writerow(asdict(row))
