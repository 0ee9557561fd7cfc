"""What every adapter of the Store port keeps to."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from random import Random
from threading import Barrier, Event

import pytest

from app.domain.events import Noticed
from app.domain.program import Program
from app.domain.run import RunState
from app.domain.search.archive import Cell, Elite
from app.domain.search.budget import Budget
from app.ports.cohorts import Plan
from app.ports.leases import Exhausted
from app.ports.problems import StoredProblem
from app.ports.protocols import Store, Unavailable
from tests.engine.conftest import new_run
from tests.engine.toy import problem


def a_run(store: Store, **search: object) -> int:
    toy = problem()
    with store.begin() as tx:
        tx.problems.add(toy)
        tx.programs.put(toy.seeds)
        return tx.runs.add(new_run(toy, **search)).id


def elite(number: int, fitness: float) -> Elite:
    return Elite(Program(f"x = {number}\n").id, fitness, 6, 1, (number,))


class StoreContract:
    """Inherit and define the fixtures `store`, an empty ledger, and `unreachable`."""

    @pytest.fixture
    def store(self) -> Store:
        raise NotImplementedError

    @pytest.fixture
    def unreachable(self) -> Store:
        """Returns a store whose database cannot be reached."""
        raise NotImplementedError

    def test_an_exception_undoes_all_of_a_transaction(self, store: Store) -> None:
        run = a_run(store)

        def fail() -> None:
            with store.begin() as tx:
                tx.runs.set_state(run, [RunState.RUNNING], RunState.PAUSED)
                tx.programs.put([Program("x = 1\n")])
                tx.events.emit(run, Noticed(text="undone"))
                raise KeyError

        with pytest.raises(KeyError):
            fail()
        with store.begin() as tx:
            assert tx.runs.get(run).state is RunState.RUNNING
            assert tx.programs.get([Program("x = 1\n").id]) == {}
            assert tx.events.read(run) == []

    def test_what_is_not_committed_is_seen_by_nobody_else(self, store: Store) -> None:
        run = a_run(store)
        with store.begin() as writer, store.begin() as reader:
            writer.runs.set_state(run, [RunState.RUNNING], RunState.PAUSED)
            assert writer.runs.get(run).state is RunState.PAUSED
            assert reader.runs.get(run).state is RunState.RUNNING

    def test_each_read_sees_what_was_committed_before_it(self, store: Store) -> None:
        run = a_run(store)
        with store.begin() as reader:
            assert reader.runs.get(run).state is RunState.RUNNING
            with store.begin() as writer:
                writer.runs.set_state(run, [RunState.RUNNING], RunState.PAUSED)
            assert reader.runs.get(run).state is RunState.PAUSED

    def test_a_snapshot_is_read_as_at_one_moment(self, store: Store) -> None:
        run = a_run(store)
        with store.begin(snapshot=True) as reader:
            assert reader.runs.get(run).state is RunState.RUNNING
            with store.begin() as writer:
                writer.runs.set_state(run, [RunState.RUNNING], RunState.PAUSED)
                writer.events.emit(run, Noticed(text="later"))
            assert reader.runs.get(run).state is RunState.RUNNING
            assert reader.events.read(run) == []

    def test_threads_have_a_transaction_each(self, store: Store) -> None:
        run = a_run(store)
        together = Barrier(8, timeout=60)

        def pause(_: int) -> bool:
            together.wait()
            with store.begin() as tx:
                return tx.runs.set_state(run, [RunState.RUNNING], RunState.PAUSED)

        with ThreadPoolExecutor(8) as pool:
            assert sorted(pool.map(pause, range(8))) == [False] * 7 + [True]

    def test_events_of_concurrent_transactions_are_numbered_without_gaps_in_commit_order(
        self, store: Store
    ) -> None:
        run = a_run(store)

        def emit(n: int) -> None:
            with store.begin() as tx:
                tx.events.emit(run, Noticed(text=f"{n} a"))
                tx.events.emit(run, Noticed(text=f"{n} b"))

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(emit, range(40)))
        with store.begin() as tx:
            events = tx.events.read(run)
        assert [event.seq for event in events] == list(range(1, 81))
        texts = [event.fact.text for event in events if isinstance(event.fact, Noticed)]
        assert all(
            a.split()[0] == b.split()[0] for a, b in zip(texts[::2], texts[1::2], strict=True)
        )

    def test_a_database_that_cannot_be_reached_is_unavailable(self, unreachable: Store) -> None:
        with pytest.raises(Unavailable), unreachable.begin():
            raise AssertionError

    def test_a_problem_comes_back_as_it_was_stored(self, store: Store) -> None:
        toy = problem()
        with store.begin() as tx:
            tx.problems.add(toy)
            tx.problems.add(toy)
            stored = tx.problems.get(toy.digest)
        assert stored == StoredProblem(toy.format, "toy", toy.files, {})

    def test_an_unknown_run_is_named_in_the_error(self, store: Store) -> None:
        with pytest.raises(LookupError, match="77"), store.begin() as tx:
            tx.runs.get(77)

    def test_a_cohort_is_leased_to_one_worker_until_its_lease_runs_out(self, store: Store) -> None:
        run = a_run(store)
        with store.begin() as tx:
            [cohort] = tx.cohorts.add(run, [Plan(0, "nudge", (0,))], redeliver_seconds=30)
        with store.begin() as tx:
            assert tx.proposals.claim([cohort], 30, attempts=5)
        with store.begin() as tx:
            assert not tx.proposals.claim([cohort], 30, attempts=5)
            tx.leases.renew([cohort], [], 0.0)
        with store.begin() as tx:
            assert tx.proposals.claim([cohort], 0, attempts=5)

    def test_attempts_are_capped_and_a_released_lease_is_no_attempt(self, store: Store) -> None:
        run = a_run(store)
        with store.begin() as tx:
            [cohort] = tx.cohorts.add(run, [Plan(0, "nudge", (0,))], redeliver_seconds=30)
        for _ in range(5):
            with store.begin() as tx:
                assert tx.proposals.claim([cohort], 0, attempts=1)
                tx.leases.release([cohort], [], 0.0)
        with store.begin() as tx:
            assert tx.proposals.claim([cohort], 0, attempts=1)
        with pytest.raises(Exhausted), store.begin() as tx:
            tx.proposals.claim([cohort], 0, attempts=1)

    def test_a_lease_may_be_given_back_as_an_attempt(self, store: Store) -> None:
        run = a_run(store)
        with store.begin() as tx:
            [cohort] = tx.cohorts.add(run, [Plan(0, "nudge", (0,))], redeliver_seconds=30)
            assert tx.proposals.claim([cohort], 0, attempts=1)
            tx.leases.release([cohort], [], 0.0, counted=True)
        with pytest.raises(Exhausted), store.begin() as tx:
            tx.proposals.claim([cohort], 0, attempts=1)

    def test_overdue_messages_are_returned_once(self, store: Store) -> None:
        run = a_run(store)
        with store.begin() as tx:
            [cohort] = tx.cohorts.add(run, [Plan(0, "nudge", (0,))], redeliver_seconds=-1)
        with store.begin() as tx:
            assert tx.leases.overdue(run, 30) == ({cohort: ""}, [])
        with store.begin() as tx:
            assert tx.leases.overdue(run, 30) == ({}, [])

    def test_a_budget_never_falls_below_what_is_planned(self, store: Store) -> None:
        run = a_run(store, budget=10)
        with store.begin() as tx:
            tx.cohorts.add(run, [Plan(0, "nudge", (0, 1, 2))], redeliver_seconds=30)
            tx.runs.set_budget(run, Budget(1))
            assert tx.runs.get(run).budget.proposals == 3

    def test_a_state_changes_for_the_first_caller(self, store: Store) -> None:
        run = a_run(store)
        with store.begin() as tx:
            assert tx.runs.set_state(run, [RunState.RUNNING], RunState.PAUSED, "why")
            assert not tx.runs.set_state(run, [RunState.RUNNING], RunState.PAUSED)
            assert tx.runs.get(run).reason == "why"

    def test_planning_is_exclusive(self, store: Store) -> None:
        run = a_run(store)
        with store.begin() as first, store.begin() as second:
            assert first.runs.lock_planning(run)
            assert not second.runs.lock_planning(run)

    def test_an_island_draws_its_best_and_every_cell_alike(self, store: Store) -> None:
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

    def test_an_island_names_the_best_of_each_cell(self, store: Store) -> None:
        run = a_run(store)
        with store.begin() as tx:
            tx.programs.put([Program(f"x = {n}\n") for n in range(6)])
            for key, members in enumerate([(5, 4, 3), (1, 0), (2,)]):
                occupants = tuple(replace(elite(n, float(n)), cell=(key,)) for n in members)
                tx.archive.put_cell(run, 0, Cell((key,), occupants))
            stopped = replace(elite(0, 99.0), cell=(7,), stages_left=1)
            tx.archive.put_cell(run, 0, Cell((7,), (stopped,)))
            island = tx.archive.island(run, 0)
            assert [e.fitness for e in island.heads(9)] == [5.0, 2.0, 1.0, 99.0]
            assert [e.fitness for e in island.heads(2, skip=1)] == [2.0, 1.0]
            assert island.heads(9, skip=4) == ()
            keys = [(0,), (1,), (7,), (8,)]
            assert tx.archive.cells(run, 0, keys) == {key: island.cell(key) for key in keys}
            assert tx.archive.cells(run, 0, keys)[8,].occupants == ()
            assert tx.archive.island(run, 1).heads(9) == ()

    def test_an_island_names_whole_measurements_before_seeds_that_stopped(
        self, store: Store
    ) -> None:
        run = a_run(store)
        with store.begin() as tx:
            tx.programs.put([Program(f"x = {n}\n") for n in range(2)])
            tx.archive.put_cell(run, 0, Cell((0,), (replace(elite(0, 9.0), stages_left=1),)))
            tx.archive.put_cell(run, 0, Cell((1,), (elite(1, 1.0),)))
            island = tx.archive.island(run, 0)
            assert [(e.fitness, e.stages_left) for e in island.best(2)] == [(1.0, 0), (9.0, 1)]
            assert island.cell((0,)).best.stages_left == 1

    def test_an_island_finds_the_twin_of_a_program(self, store: Store) -> None:
        run = a_run(store)
        with store.begin() as tx:
            tx.programs.put([Program(f"x = {n}\n") for n in range(3)])
            first = replace(elite(0, 1.0), behaviour="alike")
            tx.archive.put_cell(run, 0, Cell((0,), (first,)))
            tx.archive.put_cell(run, 0, Cell((1,), (replace(elite(1, 1.0), behaviour="other"),)))
            island = tx.archive.island(run, 0)
            assert island.twin(replace(elite(2, 1.0), behaviour="alike")) == first
            assert island.twin(replace(elite(2, 1.0), behaviour="alone")) is None
            assert island.twin(first) is None
            assert tx.archive.island(run, 1).twin(replace(first, program="0" * 64)) is None

    def test_a_cell_keeps_its_number_when_its_occupants_change(self, store: Store) -> None:
        run = a_run(store)
        with store.begin() as tx:
            tx.programs.put([Program(f"x = {n}\n") for n in range(3)])
            tx.archive.put_cell(run, 0, Cell((1,), (elite(0, 0.0), elite(1, -1.0))))
            tx.archive.put_cell(run, 0, Cell((1,), (replace(elite(2, 5.0), cell=(1,)),)))
            island = tx.archive.island(run, 0)
            assert (island.size, island.admitted) == (1, 2)
            assert [e.fitness for e in island.cell((1,)).occupants] == [5.0]

    def test_an_elite_enters_only_an_island_that_is_as_it_was_read(self, store: Store) -> None:
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

    def test_a_transaction_that_waits_for_an_island_sees_that_it_changed(
        self, store: Store
    ) -> None:
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

    def test_a_reset_island_is_empty_and_an_epoch_older(self, store: Store) -> None:
        run = a_run(store)
        with store.begin() as tx:
            tx.programs.put([Program("x = 0\n")])
            tx.archive.put_cell(run, 1, Cell((0,), (elite(0, 0.0),)))
            tx.archive.clear_island(run, 1, reset=True)
            island = tx.archive.island(run, 1)
            assert (island.size, island.epoch, island.admitted) == (0, 1, 0)
