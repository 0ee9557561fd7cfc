"""A worker's time is shared among runs, and its writes are cheap and repeatable."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.adapters.store import workers
from app.adapters.store.sql import SqlStore
from app.adapters.store.workers import WorkerTimeRecorder
from app.ports.protocols import Protection, Unavailable
from app.ports.workers import LIVE_SECONDS, PRESENT_SECONDS, Capacity, Presence, Worker, WorkerTime
from tests.engine.conftest import new_run
from tests.engine.toy import problem
from tests.integration.worker_double import until

WORKER = Worker("host-1", "cpu", 3.6)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class RecordedWrites:
    """A ledger that records writes, and is unavailable while `down` is set."""

    def __init__(self) -> None:
        self.down = False
        self.writes: list[dict[int | None, float]] = []
        self.places: list[Capacity] = []

    @contextmanager
    def begin(self) -> Iterator[Any]:
        if self.down:
            raise Unavailable("it is down")
        yield self

    @property
    def workers(self) -> Any:
        return self

    def record(self, worker: Worker, seconds: dict[int | None, float], places: Capacity) -> None:
        self.writes.append(dict(seconds))
        self.places.append(places)


def test_time_goes_to_the_runs_with_steps_in_progress_and_else_to_no_run() -> None:
    clock, ledger = Clock(), RecordedWrites()
    recorder = WorkerTimeRecorder(ledger, WORKER, clock=clock)
    clock.now += 4.0  # no run's
    with recorder.work(1):
        clock.now += 2.0  # all of 1's
        with recorder.work(1), recorder.work(2):
            clock.now += 3.0  # two steps of 1, one of 2
    clock.now += 1.0

    recorder.write()

    assert ledger.writes == [{None: 5.0, 1: 4.0, 2: 1.0}]


def test_only_changed_totals_are_written_and_no_differences() -> None:
    clock, ledger = Clock(), RecordedWrites()
    recorder = WorkerTimeRecorder(ledger, WORKER, clock=clock)
    with recorder.work(1):
        clock.now += 2.0
        recorder.write()
        ledger.down = True
        clock.now += 2.0
        recorder.write()
        ledger.down = False
        clock.now += 2.0
        recorder.write()
    recorder.close()
    recorder.close()

    assert ledger.writes == [{1: 2.0}, {1: 6.0}, {}]


@given(st.lists(st.tuples(st.floats(0.0, 10.0), st.integers(1, 4), st.booleans()), max_size=40))
def test_the_shares_add_up_to_the_time_that_passed(
    turns: list[tuple[float, int, bool]],
) -> None:
    clock, ledger = Clock(), RecordedWrites()
    recorder = WorkerTimeRecorder(ledger, WORKER, clock=clock)
    open_steps: list[Any] = []
    for seconds, run, begins in turns:
        clock.now += seconds
        if begins or not open_steps:
            step = recorder.work(run)
            step.__enter__()
            open_steps.append(step)
        else:
            open_steps.pop(0).__exit__(None, None, None)
    recorder.write()

    written = sum(sum(totals.values()) for totals in ledger.writes)
    assert written == pytest.approx(sum(seconds for seconds, _, _ in turns))


def test_seconds_have_the_price_of_their_worker_and_are_written_twice_as_once(
    store: SqlStore,
) -> None:
    toy = problem()
    with store.begin() as tx:
        tx.problems.add(toy)
        first, second = (tx.runs.add(replace(new_run(toy), name=name)).id for name in "ab")
    other, unpriced = Worker("host-2", "cpu", 7.2), Worker("host-3", "gpu")
    for _ in range(2):
        with store.begin() as tx:
            tx.workers.record(WORKER, {None: 50.0, first: 100.0}, Capacity())
            tx.workers.record(WORKER, {first: 90.0, second: 5.0}, Capacity())
            tx.workers.record(other, {first: 10.0}, Capacity())
            tx.workers.record(unpriced, {first: 20.0, None: 1.0}, Capacity())

    with store.begin() as tx:
        assert tx.workers.of_run(first) == [
            WorkerTime("cpu", 2, 110.0, pytest.approx(0.1 + 0.02)),
            WorkerTime("gpu", 1, 20.0, None, 20.0),
        ]
        assert tx.workers.of_run(second) == [WorkerTime("cpu", 1, 5.0, pytest.approx(0.005))]
        assert tx.workers.busy()[0] == WorkerTime("cpu", 2, 115.0, pytest.approx(0.125))
        assert tx.workers.idle() == [
            WorkerTime("cpu", 1, 50.0, pytest.approx(0.05)),
            WorkerTime("gpu", 1, 1.0, None, 1.0),
        ]


def test_the_capacity_is_that_of_the_live_workers_together(store: SqlStore) -> None:
    other, generator = Worker("host-2", "cpu"), Worker("host-3", "gpu")
    with store.begin() as tx:
        assert tx.workers.capacity() == Capacity(None, None)
        tx.workers.record(WORKER, {}, Capacity(None, 4))
        assert tx.workers.capacity() == Capacity(None, 4)
        tx.workers.record(other, {}, Capacity(None, 12))
        tx.workers.record(generator, {}, Capacity(32, None))
        tx.workers.record(generator, {}, Capacity(48, None))
        assert tx.workers.capacity() == Capacity(48, 16)

    with store.begin() as tx:
        tx.workers.record(other, {}, Capacity())  # it has ended
        assert tx.workers.capacity() == Capacity(48, 4)

    with store.begin() as tx:
        since = {"seconds": LIVE_SECONDS + 1.0}
        statement = "UPDATE workers SET seen_at = seen_at - %(seconds)s * interval '1 second'"
        # The others were killed.
        tx.workers._c.write(statement, since)
        assert tx.workers.capacity() == Capacity(None, None)


def test_a_worker_reports_its_places_at_its_start_and_has_none_at_its_end() -> None:
    clock, ledger, places = Clock(), RecordedWrites(), [Capacity(32, 4), Capacity(40, 4)]
    recorder = WorkerTimeRecorder(
        ledger, WORKER, lambda: places.pop(0), interval_seconds=3600.0, clock=clock
    )
    recorder.start()
    until(lambda: len(ledger.places) == 1, what="the first report")
    recorder.write()

    recorder.close()

    assert ledger.places == [Capacity(32, 4), Capacity(40, 4), Capacity()]


def test_the_end_of_a_worker_does_not_wait_for_a_sandbox_that_boots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers, "ENDING_SECONDS", 0.01)
    asked, booted = threading.Event(), threading.Event()

    def boot() -> list[Protection]:
        asked.set()
        booted.wait()
        return []

    ledger = RecordedWrites()
    recorder = WorkerTimeRecorder(
        ledger,  # type: ignore[arg-type]
        WORKER,
        lambda: Capacity(sandbox=4),
        protections=boot,
        interval_seconds=0.01,
    )
    recorder.start()
    assert asked.wait(60.0)
    closing = threading.Thread(target=recorder.close, daemon=True)
    closing.start()
    closing.join(60.0)
    assert not closing.is_alive()
    assert ledger.places[-1] == Capacity()
    booted.set()


def test_a_worker_reports_what_it_applies_and_what_its_sandboxes_protect_from(
    store: SqlStore,
) -> None:
    applied = {"sandbox.backend": "process", "queue.lease_seconds": 5.0}
    missing = Protection("no network", on=False, remedy="do it")
    boots = False

    def probe() -> list[Protection]:
        if not boots:
            raise Unavailable("no engine")
        return [missing]

    def reported() -> list[Worker]:
        with store.begin() as tx:
            found: list[Worker] = tx.workers.evaluating()
            return found

    def presence() -> Presence:
        with store.begin() as tx:
            found: Presence = tx.workers.presence()
            return found

    worker, lacking = Worker("host-9", "cpu", settings=applied), list[Mapping[str, str]]()
    recorder = WorkerTimeRecorder(
        *(store, worker, lambda: Capacity(None, 4)),
        protections=probe,
        report=lacking.append,
        interval_seconds=0.05,
    )
    recorder.start()
    fault = "no sandbox can be booted: no engine"
    until(lambda: presence() == Presence(False, False, (fault,)), what="the fault of its sandbox")
    until(lambda: lacking[-1:] == [{"sandbox": fault}], what="the report of that fault")
    assert reported() == []

    boots = True
    until(lambda: any(w.protections for w in reported()), what="the report of protections")
    assert presence() == Presence(False, True)
    until(lambda: lacking[-1] == {}, what="the report that nothing lacks")
    with store.begin() as tx:
        tx.workers.record(Worker("host-8", "gpu"), {}, Capacity(8, None))

    assert reported() == [Worker("host-9", "cpu", None, applied, (("no network", "do it"),))]
    recorder.close()
    assert reported() == []


def test_a_worker_that_was_not_seen_for_seconds_is_absent_and_keeps_its_places(
    store: SqlStore,
) -> None:
    with store.begin() as tx:
        tx.workers.record(WORKER, {}, Capacity(None, 4))
        tx.workers.record(Worker("host-2", "gpu"), {}, Capacity(8, None))
        assert tx.workers.presence() == Presence(True, True)
        _seen_before(tx, PRESENT_SECONDS + 1)
    with store.begin() as tx:
        assert tx.workers.presence() == Presence(False, False)
        assert tx.workers.capacity() == Capacity(8, 4)


def _seen_before(tx: Any, seconds: float) -> None:
    sql = "UPDATE workers SET seen_at = now() - %(ago)s * interval '1 second'"
    tx.workers._c.write(sql, {"ago": seconds})


def test_a_ledger_that_does_not_answer_is_reported_until_it_does() -> None:
    ledger, lacking = RecordedWrites(), list[Mapping[str, str]]()
    recorder = WorkerTimeRecorder(ledger, WORKER, report=lacking.append)
    ledger.down = True
    recorder.write()
    ledger.down = False
    recorder.write()

    assert lacking == [{"ledger": "it is down"}, {}]


def test_a_worker_that_is_killed_loses_no_more_than_one_interval() -> None:
    ledger = RecordedWrites()
    recorder = WorkerTimeRecorder(ledger, WORKER, interval_seconds=0.02)
    recorder.start()
    with recorder.work(1):
        until(lambda: len(ledger.writes) >= 3, what="three writes of an open step")
    written = _most(ledger)  # what a ledger has when the recorder is not closed

    recorder.close()

    assert 0.0 < written <= _most(ledger)


def _most(ledger: RecordedWrites) -> float:
    return max(totals.get(1, 0.0) for totals in ledger.writes)
