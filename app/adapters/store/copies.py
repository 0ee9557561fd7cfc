"""All rows of one run, out of the ledger and into another one."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from sqlalchemy import Table

from app.adapters.store import tables as t
from app.adapters.store.driver import DriverConnection
from app.domain.events import EventKind, read_fact
from app.domain.program import Program, ProgramId, files_id, text_digest
from app.ports.copies import BadCopy, Row
from app.ports.workers import WORKER_KINDS

_OF_RUN = "run = %(run)s"
_OF_PROBLEM = "{} = (SELECT problem FROM runs WHERE id = %(run)s)"
_PROGRAMS = """
    id IN (
        SELECT program FROM proposals WHERE run = %(run)s
        UNION SELECT unnest(parents || inspirations) FROM proposals WHERE run = %(run)s
        UNION SELECT unnest(players) FROM trials WHERE run = %(run)s
        UNION SELECT program FROM elites WHERE run = %(run)s
    )
"""
COPIED: Mapping[Table, str] = {
    t.problems: _OF_PROBLEM.format("digest"),
    t.problem_files: _OF_PROBLEM.format("problem"),
    t.workers: "id IN (SELECT worker FROM worker_times WHERE run = %(run)s)",
    t.texts: f"digest IN (SELECT unnest(digests) FROM programs WHERE {_PROGRAMS})",
    t.programs: _PROGRAMS,
    t.runs: "id = %(run)s",
    t.islands: _OF_RUN,
    t.fingerprints: _OF_RUN,
    t.cohorts: _OF_RUN,
    t.proposals: _OF_RUN,
    t.trials: _OF_RUN,
    t.completions: "cohort IN (SELECT id FROM cohorts WHERE run = %(run)s)",
    t.elites: _OF_RUN,
    t.events: _OF_RUN,
    t.worker_times: _OF_RUN,
}
"""The tables of a copy, each after those that it refers to, and which of their rows."""
_TABLES = {table.name: table for table in COPIED}
_SHARED = {table.name for table in (t.problems, t.problem_files, t.texts, t.programs)}
"""Tables whose rows belong to every run that names them, and are equal where their keys are."""
_NUMBERED = {t.cohorts.name: "cohort", t.proposals.name: "proposal", t.trials.name: "trial"}
"""Tables whose rows get numbers of their own in each ledger, and the column that refers to them."""
_TAKEN = "SELECT true FROM runs WHERE name = %(name)s"
_NEW_NUMBERS = """
    SELECT nextval(pg_get_serial_sequence(%(table)s, 'id')) FROM generate_series(1, %(n)s)
"""
_BATCH = 500
_ADDED: Mapping[str, dict[str, Any]] = {
    "programs": {"paths": None, "digests": None},
    "runs": {
        **{"unplaced": 0, "held": False, "project": "", "priority": 0, "queues": ["gpu", "cpu"]},
        **{"kept": False, "deleted": False, "prompts_removed": False},
    },
    "proposals": {"fleet": ""},
    "trials": {"fleet": ""},
    "workers": {"queues": list(WORKER_KINDS)},
}
"""Columns that copies of earlier versions lack, with their values there."""
_LONG_AGO = "1970-01-01T00:00:00+00:00"
_STOPPED = "imported; `evoq resume` goes on with it"


class SqlCopies:
    """See `app.ports.copies.Copies`."""

    def __init__(self, connection: DriverConnection) -> None:
        self._c = connection

    def rows(self, run: int) -> Iterator[Row]:
        for table, which in COPIED.items():
            key = ", ".join(
                f'"{column.name}"' for column in list(table.primary_key) or [*table.columns][:1]
            )
            statement = (
                f"SELECT to_jsonb({table.name})::text FROM {table.name} WHERE {which} "
                f"ORDER BY {key}"
            )
            for text in self._c.stream(statement, {"run": run}):
                yield Row(table.name, json.loads(text))

    def add(self, rows: Iterable[Row], name: str) -> int:
        copy = _Incoming(self._c, name)
        for table, of_table in groupby(rows, key=lambda row: row.table):
            copy.enter(table)
            batch: list[dict[str, Any]] = []
            for row in of_table:
                batch.append(copy.adapted(table, row.values))
                if len(batch) == _BATCH:
                    copy.insert(table, batch)
                    batch = []
            copy.insert(table, batch)
        return copy.run


class _Incoming:
    """One copy on its way into the ledger."""

    def __init__(self, connection: DriverConnection, name: str) -> None:
        self._c = connection
        self._name = name
        self._entered: list[str] = []
        self._numbers: dict[str, dict[int, int]] = {column: {} for column in _NUMBERED.values()}
        self._run: int | None = None

    @property
    def run(self) -> int:
        """The number of the run in this ledger.

        Raises:
          BadCopy: No row of it has come.
        """
        if self._run is None:
            raise BadCopy("it has no run")
        return self._run

    def enter(self, table: str) -> None:
        """Begins with the rows of a table.

        Raises:
          BadCopy: There is no such table, or it is not its turn.
        """
        order = list(_TABLES)
        if table not in order:
            raise BadCopy(f"it has rows of a table {table!r}, which this version does not know")
        if self._entered and order.index(table) <= order.index(self._entered[-1]):
            raise BadCopy(f"rows of {table} come after rows of {self._entered[-1]}")
        self._entered.append(table)

    def adapted(self, table: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a row as this ledger is to hold it, but for the numbers that it refers to.

        Raises:
          BadCopy: It cannot be one of this version's.
        """
        values = _ADDED.get(table, {}) | dict(values)
        if set(values) != set(_TABLES[table].columns.keys()):
            odd = sorted(set(values) ^ set(_TABLES[table].columns.keys()))
            raise BadCopy(f"rows of {table} differ from this version's in {', '.join(odd)}")
        row = dict(values)
        match table:
            case "texts" if text_digest(row["text"]) != row["digest"]:
                raise BadCopy(f"text {str(row['digest'])[:12]} does not have its digest")
            case "programs" if _program_id(row) != row["id"]:
                raise BadCopy(f"program {str(row['id'])[:12]} does not have its digest as its id")
            # The worker that the copy names is not at work where the run is imported.
            case "workers":
                row |= {"id": self._worker(row["id"]), "model_places": None, "sandbox_places": None}
                row |= {"seen_at": _LONG_AGO}
            case "worker_times":
                row["worker"] = self._worker(row["worker"])
            case "runs":
                if self._run is not None:
                    raise BadCopy("it has more than one run")
                if self._c.value(_TAKEN, {"name": self._name}):
                    raise ValueError(f"a run named {self._name!r} exists; choose another --name")
                self._run = self._new_numbers("runs", 1)[0]
                row |= {"id": self._run, "name": self._name, "parent": None, "in_process": False}
                if row["state"] == "running":
                    row |= {"state": "paused", "reason": _STOPPED}
            case "events":
                try:
                    read_fact(EventKind(row["kind"]), row["data"])
                except (ValueError, TypeError, KeyError) as error:
                    raise BadCopy(f"event {row['seq']} is none of this version: {error}") from error
        if "leased_until" in row:
            row["leased_until"] = None
        return row

    def insert(self, table: str, batch: list[dict[str, Any]]) -> None:
        """Writes rows, with the numbers of this ledger."""
        if not batch:
            return
        if "run" in batch[0]:
            for row in batch:
                row["run"] = self.run
        for column, numbers in self._numbers.items():
            if column in batch[0]:
                for row in batch:
                    row[column] = _number(numbers, row[column], table)
        if table == "events":
            for row in batch:
                if "cohort" in row["data"]:
                    cohort = _number(self._numbers["cohort"], row["data"]["cohort"], table)
                    row["data"] = {**row["data"], "cohort": cohort}
        if table in _NUMBERED:
            fresh = self._new_numbers(table, len(batch))
            known = self._numbers[_NUMBERED[table]]
            for row, number in zip(batch, fresh, strict=True):
                known[row["id"]] = number
                row["id"] = number
        columns = ", ".join(f'"{column.name}"' for column in _TABLES[table].columns)
        self._c.write(
            f"INSERT INTO {table} ({columns}) SELECT {columns} "
            f"FROM jsonb_populate_recordset(NULL::{table}, CAST(%(rows)s AS jsonb)) "
            + ("ON CONFLICT DO NOTHING" if table in _SHARED else ""),
            {"rows": json.dumps(batch)},
        )

    def _worker(self, worker: str) -> str:
        return f"{self._name}/{worker}"

    def _new_numbers(self, table: str, n: int) -> Sequence[int]:
        return self._c.values(_NEW_NUMBERS, {"table": table, "n": n})


def _program_id(row: Mapping[str, Any]) -> ProgramId:
    if row["paths"] is None:
        return Program(row["source"]).id
    return files_id(zip(row["paths"], row["digests"] or (), strict=False))


def _number(numbers: Mapping[int, int], old: int, table: str) -> int:
    if old not in numbers:
        raise BadCopy(f"a row of {table} refers to number {old}, which is not in it")
    return numbers[old]
