"""All programs of a run as files, with an index of how each was made and measured."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path

from app.domain.program import Program
from app.ports.protocols import Store
from app.reports.metrics import MetricsRow
from app.reports.program_files import write_files

INDEX = "programs.jsonl"
TOGETHER = 500
"""Sources read at once: a long run is never held in memory as a whole."""


def write_programs(store: Store, rows: Iterable[MetricsRow], suffix: str, folder: Path) -> int:
    """Writes each program of a run once, and a line of the index for each proposal with a program.

    A program of several files is a folder.  A file or folder is named after the first proposal that
    made the program, `seed` for a seed, and after the program's id.  A line of the index is that of
    `evoq metrics`, with the name of the `file`.

    Args:
      store: The ledger.
      rows: The run's metrics.
      suffix: Of the names, with its dot; "" for folders.
      folder: Where nothing is overwritten.

    Returns:
      The number of programs.

    Raises:
      OSError: The folder cannot be written to.
      ValueError: A path leads out of the folder of a program.
    """
    names: dict[str, str] = {}
    with (folder / INDEX).open("w", encoding="utf-8") as index:
        for page in _pages(row for row in rows if row.program):
            fresh = {}
            for row in page:
                if row.program and row.program not in names:
                    origin = "seed" if row.ordinal < 0 else f"{row.ordinal:05}"
                    fresh[row.program] = names[row.program] = f"{origin}-{row.program[:12]}{suffix}"
                line = {**asdict(row), "file": names[str(row.program)]}
                index.write(json.dumps(line, ensure_ascii=False) + "\n")
            with store.begin() as tx:
                sources = tx.programs.get(list(fresh))
            for program, name in fresh.items():
                _write(sources[program], folder / name)
    return len(names)


def _write(program: Program, path: Path) -> None:
    if program.path:
        write_files(program, path)
        return
    with path.open("w", encoding="utf-8", errors="replace", newline="") as file:
        file.write(program.source)


def _pages(rows: Iterator[MetricsRow]) -> Iterator[list[MetricsRow]]:
    while page := list(islice(rows, TOGETHER)):
        yield page
