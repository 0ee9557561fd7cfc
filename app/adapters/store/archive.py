"""Islands and elites.  Every read is bounded: an island is never loaded whole to draw from it."""

from random import Random
from typing import Any

from sqlalchemy import Connection, text

from app.adapters.store.codec import elite_of
from app.adapters.store.runs import as_json
from app.domain.archive import Cell, CellKey, Elite

_ISLAND = 'SELECT * FROM islands WHERE run = :run AND "index" = :index'
_ONE = text(_ISLAND)
_ONE_LOCKED = text(f"{_ISLAND} FOR UPDATE")
_ALL = 'SELECT * FROM islands WHERE run = :run ORDER BY "index"'
_EVERY = text(_ALL)
_EVERY_LOCKED = text(f"{_ALL} FOR UPDATE")
_BEST = text("""
    SELECT * FROM elites WHERE run = :run AND island = :island
    ORDER BY fitness DESC, number LIMIT :n OFFSET :skip
""")
_NUMBERED = text("""
    SELECT * FROM elites WHERE run = :run AND island = :island AND rank = 0
        AND number = ANY(:numbers)
""")
_CELL = text("""
    SELECT * FROM elites WHERE run = :run AND island = :island AND cell = CAST(:cell AS jsonb)
    ORDER BY rank
""")
_PUT = text("""
    WITH old AS (
        SELECT number FROM elites
        WHERE run = :run AND island = :island AND cell = CAST(:cell AS jsonb) AND rank = 0
    ), here AS (
        UPDATE islands SET admitted = admitted + 1,
            cells = cells + CASE WHEN EXISTS (SELECT FROM old) THEN 0 ELSE 1 END
        WHERE run = :run AND "index" = :island RETURNING cells
    ), gone AS (
        DELETE FROM elites
        WHERE run = :run AND island = :island AND cell = CAST(:cell AS jsonb) AND rank >= :n
    )
    INSERT INTO elites (run, island, cell, rank, number, program, fitness, length, generation)
    SELECT :run, :island, CAST(:cell AS jsonb), place - 1,
        coalesce((SELECT number FROM old), (SELECT cells - 1 FROM here)),
        program, fitness, length, generation
    FROM unnest(CAST(:programs AS text[]), CAST(:fitnesses AS float8[]), CAST(:lengths AS int[]),
            CAST(:generations AS int[]))
        WITH ORDINALITY AS occupant(program, fitness, length, generation, place)
    ON CONFLICT (run, island, cell, rank) DO UPDATE SET program = excluded.program,
        fitness = excluded.fitness, length = excluded.length, generation = excluded.generation
""")
_CLEAR = text("DELETE FROM elites WHERE run = :run AND island = :island")
_EMPTIED = text("""
    UPDATE islands SET cells = 0, epoch = epoch + CASE WHEN :reset THEN 1 ELSE 0 END, admitted = 0
    WHERE run = :run AND "index" = :island
""")


class SqlIsland:
    """An island of the ledger; see `IslandView`.

    Reads when it is asked, so it lives no longer than its transaction.
    """

    def __init__(self, connection: Connection, run: int, index: int, row: Any = None) -> None:
        self._c = connection
        self._run = run
        self._index = index
        self._row = row

    @property
    def index(self) -> int:
        return self._index

    @property
    def epoch(self) -> int:
        return int(self._read().epoch)

    @property
    def admitted(self) -> int:
        return int(self._read().admitted)

    @property
    def size(self) -> int:
        return int(self._read().cells)

    def _read(self) -> Any:
        if self._row is None:
            self._row = self._c.execute(_ONE, {"run": self._run, "index": self._index}).one()
        return self._row

    def best(self, n: int, skip: int = 0) -> tuple[Elite, ...]:
        told = {"run": self._run, "island": self._index, "n": n, "skip": skip}
        return tuple(elite_of(row) for row in self._c.execute(_BEST, told))

    def uniform(self, n: int, rng: Random) -> tuple[Elite, ...]:
        numbers = rng.sample(range(self.size), min(n, self.size))
        told = {"run": self._run, "island": self._index, "numbers": numbers}
        drawn = {row.number: elite_of(row) for row in self._c.execute(_NUMBERED, told)}
        return tuple(drawn[number] for number in numbers if number in drawn)

    def cell(self, key: CellKey) -> Cell:
        told = {"run": self._run, "island": self._index, "cell": as_json(list(key))}
        return Cell(key, tuple(elite_of(row) for row in self._c.execute(_CELL, told)))


def island(c: Connection, run: int, index: int, *, lock: bool) -> SqlIsland:
    row = c.execute(_ONE_LOCKED, {"run": run, "index": index}).one() if lock else None
    return SqlIsland(c, run, index, row)


def islands(c: Connection, run: int, *, lock: bool) -> tuple[SqlIsland, ...]:
    rows = c.execute(_EVERY_LOCKED if lock else _EVERY, {"run": run}).all()
    return tuple(SqlIsland(c, run, row._mapping["index"], row) for row in rows)


def put_cell(c: Connection, run: int, island: int, cell: Cell) -> None:
    c.execute(
        _PUT,
        {
            "run": run,
            "island": island,
            "cell": as_json(list(cell.key)),
            "n": len(cell.occupants),
            "programs": [elite.program for elite in cell.occupants],
            "fitnesses": [elite.fitness for elite in cell.occupants],
            "lengths": [elite.length for elite in cell.occupants],
            "generations": [elite.generation for elite in cell.occupants],
        },
    )


def clear_island(c: Connection, run: int, island: int, *, reset: bool) -> None:
    c.execute(_CLEAR, {"run": run, "island": island})
    c.execute(_EMPTIED, {"run": run, "island": island, "reset": reset})
