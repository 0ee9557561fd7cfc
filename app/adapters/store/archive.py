"""Islands and elites.  Every read is bounded: an island is never loaded whole to draw from it."""

from collections.abc import Callable, Collection, Sequence
from random import Random

from app.adapters.store.codec import as_json, elite_of, floats
from app.adapters.store.driver import DriverConnection, Record
from app.adapters.store.programs import OF_RUN
from app.domain.evaluation import CaseId
from app.domain.finite import mean
from app.domain.program import ProgramId
from app.domain.search.archive import Bred, Cell, CellKey, Elite, IslandView

_ONE = 'SELECT * FROM islands WHERE run = %(run)s AND "index" = %(island)s'
_ONE_LOCKED = f"{_ONE} FOR UPDATE"
_EVERY = 'SELECT * FROM islands WHERE run = %(run)s ORDER BY "index"'
_EVERY_LOCKED = f"{_EVERY} FOR UPDATE"
_BEST = """
    SELECT * FROM elites WHERE run = %(run)s AND island = %(island)s
    ORDER BY stages_left, fitness DESC, number LIMIT %(n)s OFFSET %(skip)s
"""
_HEADS = """
    SELECT * FROM elites WHERE run = %(run)s AND island = %(island)s AND rank = 0
    ORDER BY stages_left, fitness DESC, number LIMIT %(n)s OFFSET %(skip)s
"""
_BRED = f"""
    SELECT fittest.*, litter.children, litter.duplicates FROM (
        SELECT * FROM elites WHERE run = %(run)s AND island = %(island)s
        ORDER BY stages_left, fitness DESC, number LIMIT %(n)s
    ) AS fittest CROSS JOIN LATERAL (
        SELECT count(*) AS children,
            count(*) FILTER (WHERE cut_reason = 'duplicate') AS duplicates
        FROM (
            SELECT cut_reason FROM proposals
            WHERE {OF_RUN} AND proposals.parents[1] = fittest.program
            LIMIT %(most)s
        ) AS counted
    ) AS litter
    ORDER BY stages_left, fitness DESC, number
"""
_NUMBERED = """
    SELECT * FROM elites WHERE run = %(run)s AND island = %(island)s AND rank = 0
        AND number = ANY(%(numbers)s)
"""
_CELL = """
    SELECT islands.epoch, islands.admitted, islands.cells, elites.*
    FROM islands LEFT JOIN elites ON elites.run = islands.run AND elites.island = islands."index"
        AND elites.cell = CAST(%(cell)s AS jsonb)
    WHERE islands.run = %(run)s AND islands."index" = %(island)s ORDER BY elites.rank
"""
"""With the island as it was at the same moment; one row without an elite where there is none."""
_CELLS = """
    SELECT * FROM elites
    WHERE run = %(run)s AND island = %(island)s AND cell = ANY(CAST(%(cells)s AS jsonb[]))
    ORDER BY rank
"""
_PUT = """
    WITH old AS (
        SELECT number FROM elites
        WHERE run = %(run)s AND island = %(island)s AND cell = CAST(%(cell)s AS jsonb) AND rank = 0
    ), here AS (
        UPDATE islands SET admitted = admitted + 1,
            cells = cells + CASE WHEN EXISTS (SELECT FROM old) THEN 0 ELSE 1 END
        WHERE run = %(run)s AND "index" = %(island)s
            AND epoch = coalesce(%(epoch)s, epoch) AND admitted = coalesce(%(admitted)s, admitted)
        RETURNING cells
    ), gone AS (
        DELETE FROM elites
        WHERE run = %(run)s AND island = %(island)s AND cell = CAST(%(cell)s AS jsonb)
            AND rank >= %(n)s AND EXISTS (SELECT FROM here)
    )
    INSERT INTO elites (
        run, island, cell, rank, number, program, fitness, length, generation, stages_left,
        behaviour
    )
    SELECT %(run)s, %(island)s, CAST(%(cell)s AS jsonb), place - 1,
        coalesce((SELECT number FROM old), cells - 1), program, fitness, length, generation,
        stages_left, behaviour
    FROM here, unnest(
            CAST(%(programs)s AS text[]), CAST(%(fitnesses)s AS float8[]),
            CAST(%(lengths)s AS int[]), CAST(%(generations)s AS int[]),
            CAST(%(stages_left)s AS int[]), CAST(%(behaviours)s AS text[])
        )
        WITH ORDINALITY
        AS occupant(program, fitness, length, generation, stages_left, behaviour, place)
    ON CONFLICT (run, island, cell, rank) DO UPDATE SET program = excluded.program,
        fitness = excluded.fitness, length = excluded.length, generation = excluded.generation,
        stages_left = excluded.stages_left, behaviour = excluded.behaviour
"""
"""A transaction that waited for the island's row decides by the row as it is then; `old` was read
before, but cannot have changed while no program has entered."""
_ELITES = "SELECT * FROM elites WHERE run = %(run)s ORDER BY island, number, rank"
_BARREN = """
    WITH newest AS (
        SELECT cohort, island, seed, state FROM proposals
        WHERE run = %(run)s AND settled_at IS NOT NULL
        ORDER BY settled_at DESC, id DESC LIMIT %(most)s
    )
    SELECT count(DISTINCT cohort) AS cohorts FROM newest
    WHERE island = %(island)s AND NOT seed
        AND cohort > (
            SELECT coalesce(max(cohort), 0) FROM newest
            WHERE island = %(island)s AND state = 'admitted'
        )
        AND NOT EXISTS (
            SELECT FROM proposals WHERE proposals.cohort = newest.cohort AND settled_at IS NULL
        )
"""
"""Cohorts are compared by id, which is the order of planning."""
BARREN_AMONG = 1000
_CHAMPION = """
    SELECT * FROM elites WHERE run = %(run)s AND rank = 0
    ORDER BY stages_left, fitness DESC, island, number LIMIT 1
"""
_RECENT = """
    SELECT array_agg(score) AS scores FROM (
        SELECT id, players[1] AS program, score FROM trials
        WHERE run = %(run)s AND island = %(island)s AND stage = %(stage)s AND score IS NOT NULL
        ORDER BY id DESC LIMIT %(trials)s
    ) AS newest GROUP BY program ORDER BY max(id) DESC LIMIT %(n)s
"""
"""Without `avg`, which raises where a sum or a square of scores is beyond the doubles."""
_SCORES = """
    SELECT trials.evaluation -> 'scores' AS scores
    FROM proposals JOIN trials ON trials.cohort = proposals.cohort
        AND proposals.program = ANY(trials.players)
    WHERE proposals.program = ANY(%(programs)s) AND proposals.state = 'admitted'
        AND proposals.run = %(run)s AND trials.score IS NOT NULL
    ORDER BY trials.id
"""
TRIALS_A_STAGE = 8
"""Most trials of a program at a stage, as `Cases` divides them."""
_CLEAR = "DELETE FROM elites WHERE run = %(run)s AND island = %(island)s"
_EMPTIED = """
    UPDATE islands SET cells = 0, epoch = epoch + CASE WHEN %(reset)s THEN 1 ELSE 0 END,
        admitted = 0
    WHERE run = %(run)s AND "index" = %(island)s
"""


_ELITE = """
    SELECT * FROM elites WHERE run = %(run)s AND island = %(island)s AND program = %(program)s
    ORDER BY number, rank LIMIT 1
"""
_TWIN = """
    SELECT * FROM elites
    WHERE run = %(run)s AND island = %(island)s AND behaviour = %(behaviour)s
        AND program <> %(program)s
    ORDER BY number, rank LIMIT 1
"""


class SqlIsland:
    """An island of the ledger; see `IslandView`.

    Reads when it is asked, so it lives no longer than its transaction.  `best` does not read again
    what `bred` has read.
    """

    def __init__(
        self,
        connection: DriverConnection,
        run: int,
        index: int,
        row: Record = None,
        making: Callable[[ProgramId], int] = lambda _: 0,
    ) -> None:
        self._c = connection
        self._run = run
        self._index = index
        self._row = row
        self._making = making
        self._fittest: tuple[Elite, ...] = ()

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

    def _read(self) -> Record:
        if self._row is None:
            [self._row] = self._rows(_ONE)
        return self._row

    def _rows(self, statement: str, **params: object) -> list[Record]:
        of_island = {"run": self._run, "island": self._index}
        return self._c.rows(statement, {**of_island, **params})

    def _elites(self, statement: str, **params: object) -> tuple[Elite, ...]:
        return tuple(map(elite_of, self._rows(statement, **params)))

    @property
    def barren(self) -> int:
        [found] = self._rows(_BARREN, most=BARREN_AMONG)
        return int(found.cohorts)

    def scores(self, programs: Sequence[ProgramId]) -> dict[ProgramId, dict[CaseId, float]]:
        merged: dict[ProgramId, dict[CaseId, float]] = {program: {} for program in programs}
        for record in self._rows(_SCORES, programs=list(programs)):
            for program in merged.keys() & record.scores.keys():
                merged[program].update(floats(record.scores[program]))
        return merged

    def recent(self, stage: str, n: int) -> tuple[float, ...]:
        result = self._rows(_RECENT, stage=stage, n=n, trials=n * TRIALS_A_STAGE)
        return tuple(mean(record.scores) for record in result)

    def best(self, n: int, skip: int = 0) -> tuple[Elite, ...]:
        if skip + n <= len(self._fittest):
            return self._fittest[skip : skip + n]
        return self._elites(_BEST, n=n, skip=skip)

    def heads(self, n: int, skip: int = 0) -> tuple[Elite, ...]:
        return self._elites(_HEADS, n=n, skip=skip)

    def bred(self, n: int, most: int) -> tuple[Bred, ...]:
        result = self._rows(_BRED, n=n, most=most)
        self._fittest = tuple(map(elite_of, result))
        return tuple(
            Bred(elite, min(most, each.children + self._making(each.program)), each.duplicates)
            for elite, each in zip(self._fittest, result, strict=True)
        )

    def elite(self, program: ProgramId) -> Elite | None:
        return next(iter(self._elites(_ELITE, program=program)), None)

    def twin(self, elite: Elite) -> Elite | None:
        found = self._elites(_TWIN, behaviour=elite.behaviour, program=elite.program)
        return next(iter(found), None)

    def uniform(self, n: int, rng: Random) -> tuple[Elite, ...]:
        numbers = rng.sample(range(self.size), min(n, self.size))
        drawn = {row.number: elite_of(row) for row in self._rows(_NUMBERED, numbers=numbers)}
        return tuple(drawn[number] for number in numbers if number in drawn)

    def cell(self, key: CellKey) -> Cell:
        result = self._rows(_CELL, cell=as_json(list(key)))
        if self._row is None:
            self._row = result[0]
        return Cell(key, tuple(elite_of(record) for record in result if record.program is not None))


class SqlArchive:
    """See `app.ports.archive.Archive`."""

    def __init__(self, connection: DriverConnection) -> None:
        self._c = connection

    def islands(self, run: int, *, lock: bool = False) -> tuple[SqlIsland, ...]:
        result = self._c.rows(_EVERY_LOCKED if lock else _EVERY, {"run": run})
        return tuple(SqlIsland(self._c, run, record.index, record) for record in result)

    def island(
        self,
        run: int,
        index: int,
        *,
        lock: bool = False,
        making: Callable[[ProgramId], int] = lambda _: 0,
    ) -> SqlIsland:
        held = self._c.row(_ONE_LOCKED, {"run": run, "island": index}) if lock else None
        return SqlIsland(self._c, run, index, held, making)

    def cells(self, run: int, island: int, keys: Collection[CellKey]) -> dict[CellKey, Cell]:
        params = {"run": run, "island": island, "cells": [as_json(list(key)) for key in keys]}
        occupants: dict[CellKey, list[Elite]] = {key: [] for key in keys}
        for record in self._c.rows(_CELLS, params):
            elite = elite_of(record)
            occupants[elite.cell].append(elite)
        return {key: Cell(key, tuple(elites)) for key, elites in occupants.items()}

    def put_cell(
        self, run: int, island: int, cell: Cell, *, seen: IslandView | None = None
    ) -> bool:
        put = self._c.write(
            _PUT,
            {
                "run": run,
                "island": island,
                "cell": as_json(list(cell.key)),
                "epoch": seen.epoch if seen else None,
                "admitted": seen.admitted if seen else None,
                "n": len(cell.occupants),
                "programs": [elite.program for elite in cell.occupants],
                "fitnesses": [elite.fitness for elite in cell.occupants],
                "lengths": [elite.length for elite in cell.occupants],
                "generations": [elite.generation for elite in cell.occupants],
                "stages_left": [elite.stages_left for elite in cell.occupants],
                "behaviours": [elite.behaviour for elite in cell.occupants],
            },
        )
        return put > 0

    def clear_island(self, run: int, island: int, *, reset: bool) -> None:
        self._c.write(_CLEAR, {"run": run, "island": island})
        self._c.write(_EMPTIED, {"run": run, "island": island, "reset": reset})

    def champion(self, run: int) -> Elite | None:
        result = self._c.row(_CHAMPION, {"run": run})
        return elite_of(result) if result else None

    def elites(self, run: int) -> list[tuple[int, Elite]]:
        return [(row.island, elite_of(row)) for row in self._c.rows(_ELITES, {"run": run})]
