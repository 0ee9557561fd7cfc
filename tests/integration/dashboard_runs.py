"""Runs that the tests of the dashboard's pages show, written to the ledger as workers would."""

import json
from dataclasses import replace
from pathlib import Path

import psycopg

from app.adapters.problems.loading import load
from app.adapters.queue.inline import InlineExecutor
from app.adapters.sandbox.lazy import LazySandbox
from app.adapters.store.sql import SqlStore
from app.bootstrap.ledger import context
from app.config.settings import RunSettings, SandboxSettings, SearchSettings
from app.domain.events import Admitted, Closed, Directed, Entered, Fact, Improved, Played
from app.domain.operators.seed import SEED
from app.domain.problem import Axis, Problem
from app.domain.program import Program
from app.domain.run import Run
from app.domain.search.archive import Cell, Elite
from app.domain.search.back_pressure import InFlightLimits
from app.domain.search.budget import Budget
from app.engine import lifecycle
from app.ports.runs import NewRun
from tests.engine.conftest import run_to_the_end
from tests.engine.toy import NUDGE, ToySandbox

LONG = 5_000
"""Proposals of the long run; a twentieth of them failed."""

AXES = (Axis("length", 10, 0.0, 100.0), Axis("speed", 10, 0.0, 1.0))

WORDS = "<img src=x onerror='window.harmed = 5'>\u202e{{ 7*7 }}"
"""What a hostile strategist, referee or player writes."""

BOARD = "\n".join([". . . . . . ."] * 5 + [". . x o . . .", "1 2 3 4 5 6 7"])


def started(store: SqlStore, repository: Path, name: str, islands: int = 2) -> Run:
    problem = load([repository / "examples" / "online_bin_packing"], config=None)
    ctx = context(store, InlineExecutor(), LazySandbox(SandboxSettings()), keep_leases=False)
    new = NewRun(
        name=name,
        problem=problem.digest,
        strategy="map_elites",
        settings=RunSettings(search=SearchSettings(islands=islands)).model_dump(mode="json"),
        operators={"tune": 1.0},
        axes=AXES,
        seed=1,
        islands=islands,
        budget=Budget(2 * LONG),
        limits=InFlightLimits(4, 4),
    )
    return lifecycle.start(ctx, problem, new)


def finished(store: SqlStore, toy: Problem, new: NewRun) -> Run:
    """Runs a toy problem to its end in this process."""
    ctx = context(store, InlineExecutor(), LazySandbox(SandboxSettings()), keep_leases=False)
    operators = {one.name: one for one in (SEED, NUDGE)}
    ctx = replace(ctx, sandbox=ToySandbox(), operators=operators, limited=None)
    run = run_to_the_end(ctx, toy, new)
    with store.begin() as tx:
        return tx.runs.get(run)


def address_of(store: SqlStore) -> str:
    return store._engine.url.set(drivername="postgresql").render_as_string(False)


def events_of(store: SqlStore, run: Run) -> int:
    with store.begin() as tx:
        return tx.runs.get(run.id).events


def offer(store: SqlStore, run: Run, source: str, fitness: float, ordinal: int) -> str:
    """Puts a program into the archive of a run, with the events of that; returns its id."""
    program = Program(source)
    elite = Elite(program.id, fitness, len(source), 1, (3, 4))
    offered = Admitted(
        proposal=ordinal,
        program=program.id,
        island=0,
        operator="tune",
        fitness=fitness,
        cell=elite.cell,
    )
    with store.begin() as tx:
        tx.programs.put([program])
        tx.archive.put_cell(run.id, 0, Cell(elite.cell, (elite,)))
        tx.events.emit(run.id, offered)
        best = Improved(program=program.id, fitness=fitness, settled=ordinal)
        tx.events.emit(run.id, best)
    settle(store, run, ordinal, ordinal, program.id)
    return program.id


def settle(store: SqlStore, run: Run, first: int, last: int, program: str | None = None) -> None:
    """Writes settled proposals; every twentieth failed unless they have a program."""
    with psycopg.connect(
        store._engine.url.set(drivername="postgresql").render_as_string(False)
    ) as c:
        c.execute(
            """
            WITH planned AS (
                INSERT INTO cohorts (run, island, operator, size)
                SELECT %(run)s::bigint, 0, 'tune', 1
                FROM generate_series(%(first)s::int, %(last)s::int)
                RETURNING id
            ), numbered AS (
                SELECT id, n, n %% 20 = 7 AND %(program)s::text IS NULL AS failed FROM (
                    SELECT id, %(first)s::int - 1 + row_number() OVER (ORDER BY id) AS n
                    FROM planned
                ) AS counted
            )
            INSERT INTO proposals (run, cohort, island, ordinal, seed, state, fitness, program,
                failure_kind, failure_detail, settled_at, parents, generation)
            SELECT %(run)s::bigint, id, 0, n, false,
                CASE WHEN failed THEN 'failed' ELSE 'admitted' END,
                CASE WHEN failed THEN NULL ELSE -100 + n / 1000.0 END,
                %(program)s::text,
                CASE WHEN failed THEN 'runtime' END,
                'ValueError: <b>bad</b>', now(), '{}', 1
            FROM numbered
            """,
            {"run": run.id, "first": first, "last": last, "program": program},
        )
        c.execute("UPDATE runs SET proposals = %s WHERE id = %s", (last + 1, run.id))


def log(store: SqlStore, run: Run, first: int, last: int) -> None:
    """Writes the events of settled proposals; see `settle`."""
    with psycopg.connect(
        store._engine.url.set(drivername="postgresql").render_as_string(False)
    ) as c:
        c.execute(
            """
            INSERT INTO events (run, seq, kind, data)
            SELECT %(run)s::bigint, %(before)s::bigint + n - %(first)s::int + 1,
                CASE WHEN n %% 20 = 7 THEN 'failed' ELSE 'refused' END,
                jsonb_build_object('proposal', n, 'program', repeat('ab', 32), 'island', 0,
                    'operator', 'tune') || CASE WHEN n %% 20 = 7
                    THEN '{"failure": "runtime"}'
                    ELSE jsonb_build_object('fitness', -100 + n / 1000.0, 'cell', NULL) END
            FROM generate_series(%(first)s::int, %(last)s::int) AS n
            """,
            {"run": run.id, "before": events_of(store, run), "first": first, "last": last},
        )
        c.execute("UPDATE runs SET events = events + %s WHERE id = %s", (last - first + 1, run.id))


def compare(store: SqlStore, repository: Path) -> None:
    """Writes a comparison of two arms with three finished runs each, and one that goes on."""
    for arm, islands, gain in (("wide", 4, 2.0), ("small", 1, 1.0)):
        for seed in (1, 2, 3):
            one = started(store, repository, f"arms.bins.{arm}.{seed}", islands)
            with store.begin() as tx:
                for n in range(20):
                    fitness = -50 + n * gain + seed
                    best = Improved(program="ab" * 32, fitness=fitness, settled=n * 400 * seed)
                    tx.events.emit(one.id, best)
            with psycopg.connect(address_of(store)) as c:
                c.execute("UPDATE runs SET state = 'finished' WHERE id = %s", (one.id,))
    started(store, repository, "arms.bins.wide.4", 4)


def hold_tournament(store: SqlStore, run: Run) -> list[str]:
    """Writes two generations of games, one of which goes on; returns their players."""
    programs = [Program(f"def move(): return {n}\n") for n in range(3)]
    a, b, c = (program.id for program in programs)
    games = [(a, b, 0, True), (b, a, 1, True), (a, c, 0, True), (c, a, 1, False), (b, c, 0, False)]
    with psycopg.connect(address_of(store)) as connection:
        cohorts = [
            int(row[0])
            for row in connection.execute(
                "INSERT INTO cohorts (run, island, operator, size) "
                "SELECT %s, 0, 'directed', 1 FROM generate_series(1, 2) RETURNING id",
                [run.id],
            )
        ]
        for first, second, number, ended in games:
            evaluation = json.dumps({"artifacts": {"position": BOARD if number else WORDS}})
            connection.execute(
                "INSERT INTO trials (run, cohort, island, stage, players, cases, visible_at, "
                "evaluation, leased_until) VALUES (%s, %s, 0, 'match', %s, %s, now(), %s, %s)",
                (
                    *(run.id, cohorts[1], [first, second], [str(number)]),
                    *((evaluation, None) if ended else (None, "infinity" if number else None)),
                ),
            )
    with store.begin() as tx:
        tx.programs.put(programs)
        facts: list[Fact] = [
            Entered(cohort=cohorts[0], island=0, proposal=-1, program=a, parents=()),
            play(cohorts[0], a, b, 0),
            Closed(cohort=cohorts[0], island=0, podium=(a, b)),
            Directed(proposal=1, island=0, category="search", text=WORDS, by=WORDS),
            Entered(cohort=cohorts[1], island=0, proposal=1, program=c, parents=(a,)),
            *(play(cohorts[1], x, y, number) for x, y, number, ended in games if ended),
        ]
        for fact in facts:
            tx.events.emit(run.id, fact)
    return [a, b, c]


def play(cohort: int, first: str, second: str, number: int) -> Played:
    return Played(
        cohort=cohort,
        first=first,
        second=second,
        game=number,
        score=0.5 if number else 1.0,
        moves=("3", "4", WORDS),
        termination=WORDS,
        failure=None,
        culprit=None,
    )


def breed(store: SqlStore, run: Run, count: int) -> str:
    """Writes a long run: each program has one of the 40 before it as parent, and every hundredth
    was the best of the run; returns the last of these."""
    with psycopg.connect(address_of(store)) as c:
        c.execute(
            """
            CREATE TEMP TABLE bred ON COMMIT DROP AS
            SELECT n, encode(sha256(n::text::bytea), 'hex') AS program,
                encode(sha256((n - 1 - least(n - 1, n * 7919 %% 40))::text::bytea), 'hex') AS parent
            FROM generate_series(0, %(count)s) AS n;
            """,
            {"count": count},
        )
        c.execute("INSERT INTO programs SELECT program, 'x = ' || n, 'python', 5 FROM bred")
        c.execute(
            """
            WITH planned AS (
                INSERT INTO cohorts (run, island, operator, size)
                SELECT %(run)s::bigint, n %% 2, 'tune', 1 FROM bred ORDER BY n RETURNING id
            ), numbered AS (SELECT id, row_number() OVER (ORDER BY id) - 1 AS n FROM planned)
            INSERT INTO proposals (run, cohort, island, ordinal, seed, state, fitness, program,
                settled_at, parents, generation)
            SELECT %(run)s::bigint, id, n %% 2, CASE WHEN n = 0 THEN -99 ELSE n END, n = 0,
                'admitted', n / 100.0, program, now() + n * interval '1 ms',
                CASE WHEN n = 0 THEN '{}' ELSE ARRAY[parent] END, 1
            FROM numbered JOIN bred USING (n)
            """,
            {"run": run.id},
        )
        c.execute(
            """
            INSERT INTO events (run, seq, kind, data)
            SELECT %(run)s::bigint, %(before)s + 1 + n / 100, 'improved',
                jsonb_build_object('program', program, 'fitness', n / 100.0, 'settled', n)
            FROM bred WHERE n %% 100 = 0
            """,
            {"run": run.id, "before": events_of(store, run)},
        )
        c.execute(
            "UPDATE runs SET proposals = %s, events = events + 1 + %s / 100 WHERE id = %s",
            (count, count, run.id),
        )
        [best] = c.execute("SELECT program FROM bred WHERE n = %s", (count,)).fetchone() or [""]
        # A ledger that grows is analysed as it grows; one written at once is planned by what was
        # known of the tables before, which can be the rows of another test.
        c.execute("ANALYZE proposals, cohorts, events, programs")
    return str(best)
