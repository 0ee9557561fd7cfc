"""The ledger's own promises: compare-and-sets, bounded draws, constraints, schema versions."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from random import Random
from threading import Event

import psycopg
import pytest
from psycopg.errors import CheckViolation
from sqlalchemy import create_engine, text

from app.adapters.store import schema
from app.adapters.store.sql import SqlStore
from app.adapters.store.tables import metadata
from app.domain.program import Program
from app.domain.run import RunState
from app.domain.search.archive import Cell, Elite
from app.domain.search.budget import Budget
from app.ports.ledger import Exhausted
from app.ports.protocols import Misconfigured, Unavailable
from app.ports.records import Plan, StoredProblem
from tests.engine.conftest import new_run
from tests.engine.toy import problem
from tests.integration.worker_double import until


def a_run(store: SqlStore, **search: object) -> int:
    toy = problem()
    with store.begin() as tx:
        tx.problems.add(toy)
        tx.programs.put(toy.seeds)
        return tx.runs.add(new_run(toy, **search)).id


def test_a_problem_comes_back_as_it_was_stored(store: SqlStore) -> None:
    toy = problem()
    with store.begin() as tx:
        tx.problems.add(toy)
        tx.problems.add(toy)
        stored = tx.problems.get(toy.digest)
    assert stored == StoredProblem(toy.format, "toy", toy.files, {})


def test_an_unknown_run_is_named_in_the_error(store: SqlStore) -> None:
    with pytest.raises(LookupError, match="77"), store.begin() as tx:
        tx.runs.get(77)


def test_a_cohort_is_leased_to_one_worker_until_its_lease_runs_out(store: SqlStore) -> None:
    run = a_run(store)
    with store.begin() as tx:
        [cohort] = tx.cohorts.add(run, [Plan(0, "nudge", (0,))], redeliver_seconds=30)
    with store.begin() as tx:
        assert tx.cohorts.claim([cohort], 30, attempts=5)
    with store.begin() as tx:
        assert not tx.cohorts.claim([cohort], 30, attempts=5)
        tx.leases.renew([cohort], [], 0.0)
    with store.begin() as tx:
        assert tx.cohorts.claim([cohort], 0, attempts=5)


def test_attempts_are_capped_and_a_released_lease_is_no_attempt(store: SqlStore) -> None:
    run = a_run(store)
    with store.begin() as tx:
        [cohort] = tx.cohorts.add(run, [Plan(0, "nudge", (0,))], redeliver_seconds=30)
    for _ in range(5):
        with store.begin() as tx:
            assert tx.cohorts.claim([cohort], 0, attempts=1)
            tx.leases.release([cohort], [], 0.0)
    with store.begin() as tx:
        assert tx.cohorts.claim([cohort], 0, attempts=1)
    with pytest.raises(Exhausted), store.begin() as tx:
        tx.cohorts.claim([cohort], 0, attempts=1)


def test_overdue_bells_are_given_out_once(store: SqlStore) -> None:
    run = a_run(store)
    with store.begin() as tx:
        [cohort] = tx.cohorts.add(run, [Plan(0, "nudge", (0,))], redeliver_seconds=-1)
    with store.begin() as tx:
        assert tx.leases.overdue(run, 30) == ([cohort], [])
    with store.begin() as tx:
        assert tx.leases.overdue(run, 30) == ([], [])


def test_the_database_itself_refuses_to_plan_beyond_the_budget(store: SqlStore) -> None:
    run = a_run(store, budget=2)
    with pytest.raises(CheckViolation, match="runs_budget_is_a_cap"), store.begin() as tx:
        tx.cohorts.add(run, [Plan(0, "nudge", (0, 1, 2))], redeliver_seconds=30)


def test_a_budget_never_falls_below_what_is_planned(store: SqlStore) -> None:
    run = a_run(store, budget=10)
    with store.begin() as tx:
        tx.cohorts.add(run, [Plan(0, "nudge", (0, 1, 2))], redeliver_seconds=30)
        tx.runs.set_budget(run, Budget(1))
        assert tx.runs.get(run).budget.proposals == 3


def test_a_state_changes_for_the_first_who_asks(store: SqlStore) -> None:
    run = a_run(store)
    with store.begin() as tx:
        assert tx.runs.set_state(run, [RunState.RUNNING], RunState.PAUSED, "why")
        assert not tx.runs.set_state(run, [RunState.RUNNING], RunState.PAUSED)
        assert tx.runs.get(run).reason == "why"


def test_planning_is_exclusive(store: SqlStore) -> None:
    run = a_run(store)
    with store.begin() as first, store.begin() as second:
        assert first.runs.lock_planning(run)
        assert not second.runs.lock_planning(run)


def elite(number: int, fitness: float) -> Elite:
    return Elite(Program(f"x = {number}\n").id, fitness, 6, 1, (number,))


def test_an_island_draws_its_best_and_every_cell_alike(store: SqlStore) -> None:
    run = a_run(store)
    with store.begin() as tx:
        tx.programs.put([Program(f"x = {n}\n") for n in range(8)])
        for n in range(8):
            tx.archive.put_cell(run, 0, Cell((n,), (elite(n, n / 2),)))
    with store.begin() as tx:
        island = tx.archive.island(run, 0)
        assert (island.size, island.admitted) == (8, 8)
        assert [e.fitness for e in island.best(2)] == [3.5, 3.0]
        assert [e.fitness for e in island.best(1, skip=7)] == [0.0]
        drawn = [island.uniform(1, Random(n))[0].cell for n in range(60)]
        assert set(drawn) == {(n,) for n in range(8)}
        assert len({e.cell for e in island.uniform(8, Random(0))}) == 8


def test_an_island_names_whole_measurements_before_seeds_that_stopped(store: SqlStore) -> None:
    run = a_run(store)
    with store.begin() as tx:
        tx.programs.put([Program(f"x = {n}\n") for n in range(2)])
        tx.archive.put_cell(run, 0, Cell((0,), (replace(elite(0, 9.0), stages_left=1),)))
        tx.archive.put_cell(run, 0, Cell((1,), (elite(1, 1.0),)))
        island = tx.archive.island(run, 0)
        assert [(e.fitness, e.stages_left) for e in island.best(2)] == [(1.0, 0), (9.0, 1)]
        assert island.cell((0,)).best.stages_left == 1


def test_a_cell_keeps_its_number_when_its_occupants_change(store: SqlStore) -> None:
    run = a_run(store)
    with store.begin() as tx:
        tx.programs.put([Program(f"x = {n}\n") for n in range(3)])
        tx.archive.put_cell(run, 0, Cell((1,), (elite(0, 0.0), elite(1, -1.0))))
        tx.archive.put_cell(run, 0, Cell((1,), (replace(elite(2, 5.0), cell=(1,)),)))
        island = tx.archive.island(run, 0)
        assert (island.size, island.admitted) == (1, 2)
        assert [e.fitness for e in island.cell((1,)).occupants] == [5.0]


def test_an_elite_enters_only_an_island_nobody_entered_since_it_was_read(store: SqlStore) -> None:
    run = a_run(store)
    with store.begin() as tx:
        tx.programs.put([Program(f"x = {n}\n") for n in range(4)])
        assert tx.archive.put_cell(run, 0, Cell((0,), (elite(0, 0.0),)))
    with store.begin() as slow:
        seen = slow.archive.island(run, 0)
        assert seen.admitted == 1
        with store.begin() as quick:
            assert quick.archive.put_cell(
                run, 0, Cell((1,), (elite(1, 1.0),)), seen=quick.archive.island(run, 0)
            )
        assert not slow.archive.put_cell(run, 0, Cell((2,), (elite(2, 2.0),)), seen=seen)
        assert not slow.archive.put_cell(run, 0, Cell((1,), ()), seen=seen)
        again = slow.archive.island(run, 0, lock=True)
        assert (again.size, again.admitted, again.cell((2,)).occupants) == (2, 2, ())
        assert again.cell((1,)).occupants == (elite(1, 1.0),)
        assert slow.archive.put_cell(run, 0, Cell((2,), (elite(2, 2.0),)))


def test_who_waits_for_an_island_sees_that_it_changed_meanwhile(store: SqlStore) -> None:
    run = a_run(store)
    with store.begin() as tx:
        tx.programs.put([Program(f"x = {n}\n") for n in range(2)])

    def late() -> bool:
        with store.begin() as tx:
            seen = tx.archive.island(run, 0)
            assert seen.admitted == 0
            read.set()
            return tx.archive.put_cell(
                run, 0, Cell((5,), (replace(elite(0, 1.0), cell=(5,)),)), seen=seen
            )

    read = Event()
    with ThreadPoolExecutor(1) as pool:
        with store.begin() as first:
            first.archive.put_cell(run, 0, Cell((5,), (replace(elite(1, 9.0), cell=(5,)),)))
            answer = pool.submit(late)
            assert read.wait(60)
            time.sleep(0.3)
            assert not answer.done()
        assert answer.result(60) is False
    with store.begin() as tx:
        assert [e.fitness for e in tx.archive.island(run, 0).cell((5,)).occupants] == [9.0]


def test_a_reset_island_is_empty_and_an_epoch_older(store: SqlStore) -> None:
    run = a_run(store)
    with store.begin() as tx:
        tx.programs.put([Program("x = 0\n")])
        tx.archive.put_cell(run, 1, Cell((0,), (elite(0, 0.0),)))
        tx.archive.clear_island(run, 1, reset=True)
        island = tx.archive.island(run, 1)
        assert (island.size, island.epoch, island.admitted) == (0, 1, 0)


def test_a_program_with_a_nul_in_its_failure_is_stored(store: SqlStore) -> None:
    from app.adapters.store.codec import clean

    assert clean("a\x00b\ud800") == "a\ufffdb?"


def test_a_database_that_is_down_is_unavailable() -> None:
    nowhere = SqlStore("postgresql+psycopg://nobody:x@127.0.0.1:1/none")
    with pytest.raises(Unavailable, match="database"), nowhere.begin() as tx:
        tx.runs.running()
    nowhere.close()


def end_connections(database: str) -> None:
    everyone_else = (
        "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity"
        " WHERE pid <> pg_backend_pid() AND application_name = 'evoqueue'"
    )
    with psycopg.connect(database.replace("+psycopg", "")) as connection:
        connection.execute(everyone_else)


def test_a_connection_the_server_ended_is_unavailable_and_the_next_one_works(
    store: SqlStore, database: str
) -> None:
    def ended() -> None:
        with store.begin() as tx:
            tx.runs.running()
            end_connections(database)
            tx.runs.named("anything")

    with pytest.raises(Unavailable, match="database"):
        ended()
    with store.begin() as tx:
        tx.problems.add(problem())


def test_a_process_that_is_frozen_loses_its_locks(store: SqlStore, database: str) -> None:
    run = a_run(store)
    hasty = SqlStore(database, idle_seconds=0.3)

    def frozen() -> None:
        with hasty.begin() as tx:
            tx.archive.islands(run, lock=True)
            with store.begin() as other:
                other.archive.islands(run, lock=True)
            tx.runs.get(run)

    def looked() -> bool:
        """Fails unless it works, or this process did not get to its next statement in time."""
        began = time.monotonic()
        try:
            with hasty.begin() as tx:
                return tx.runs.get(run).id == run
        except Unavailable:
            if time.monotonic() - began < 0.3:
                raise
            return False

    with pytest.raises(Unavailable, match="idle-in-transaction timeout"):
        frozen()
    until(looked, what="a transaction that was not held up")
    hasty.close()


def test_connections_that_ended_while_they_were_idle_are_replaced(
    store: SqlStore, database: str
) -> None:
    with store.begin() as one, store.begin() as two:
        one.runs.running()
        two.runs.running()
    end_connections(database)
    with store.begin() as one, store.begin() as two:
        assert one.runs.running() == two.runs.running() == []


def test_the_schema_goes_up_and_down_again(empty_database: str) -> None:
    assert schema.version(empty_database).found is None
    schema.upgrade(empty_database)
    schema.upgrade(empty_database)
    assert schema.version(empty_database).current
    schema.downgrade(empty_database, "base")
    assert schema.version(empty_database).found is None
    schema.upgrade(empty_database)
    assert schema.version(empty_database).current


def test_a_schema_of_another_version_is_not_migrated_blindly(empty_database: str) -> None:
    schema.upgrade(empty_database)
    with psycopg.connect(empty_database.replace("+psycopg", "")) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0999'")
    found = schema.version(empty_database)
    assert (found.found, found.current) == ("0999", False)
    with pytest.raises(Misconfigured, match=r"another version of evoq.*0999"):
        schema.upgrade(empty_database)


def test_the_migrations_build_what_the_tables_say(database: str) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    engine = create_engine(database)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
        constraints = connection.execute(
            text("SELECT conname FROM pg_constraint WHERE conrelid = 'runs'::regclass")
        ).scalars()
        assert "runs_budget_is_a_cap" in set(constraints)
    engine.dispose()
