"""Group commit: work that arrives during a transaction shares the next one."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from app.adapters.store.group_commit import GroupCommit


class Gate:
    """Work that records its subjects, and does not end while it is held."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.began = threading.Event()
        self.held = threading.Event()
        self.poison = -1
        self.error: type[BaseException] = ValueError

    def __call__(self, subjects: Sequence[int]) -> list[str]:
        self.calls.append(list(subjects))
        self.began.set()
        assert self.held.wait(60)
        if self.poison in subjects:
            raise self.error(f"{self.poison} in {sorted(subjects)}")
        return [f"<{subject}>" for subject in subjects]


@pytest.fixture
def gate() -> Gate:
    return Gate()


def gathered(group: GroupCommit, gate: Gate, *subjects: Sequence[int]) -> list[Future[list[str]]]:
    """Has the first go to work, and the others wait for it, in their order."""
    pool = ThreadPoolExecutor(len(subjects))
    futures = []
    for n, subject in enumerate(subjects):
        futures.append(pool.submit(group.share, "kind", subject, gate))
        assert gate.began.wait(60)
        until(lambda n=n: len(group._waiting["kind"]) == n)
    gate.held.set()
    pool.shutdown()
    return futures


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_work_without_company_begins_at_once(gate: Gate) -> None:
    gate.held.set()
    group = GroupCommit()
    assert [group.share("kind", [n], gate) for n in range(3)] == [[f"<{n}>"] for n in range(3)]
    assert gate.calls == [[0], [1], [2]]
    assert not group._waiting


def test_work_that_arrives_meanwhile_shares_the_next_transaction(gate: Gate) -> None:
    first, second, third = gathered(GroupCommit(), gate, [1], [2, 3], [4])
    assert gate.calls == [[1], [2, 3, 4]]
    assert first.result() == ["<1>"]
    assert second.result() == ["<2>", "<3>"]
    assert third.result() == ["<4>"]


def test_a_group_is_bounded_and_what_is_left_is_the_next(gate: Gate) -> None:
    group = GroupCommit(most=3)
    gathered(group, gate, [0], [1, 2, 3, 4, 5], [6, 7], [8], [9])
    assert gate.calls == [[0], [1, 2, 3, 4, 5], [6, 7, 8], [9]]
    assert not group._waiting


def test_kinds_do_not_wait_for_each_other(gate: Gate) -> None:
    group = GroupCommit()
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(group.share, "one", [1], gate)
        assert gate.began.wait(60)
        assert group.share("two", [2], list) == [2]
        gate.held.set()
        assert held.result() == ["<1>"]


def test_an_error_of_a_group_is_raised_to_the_thread_that_caused_it(
    gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    gate.poison = 3
    group = GroupCommit()
    first, leader, culprit, other = gathered(group, gate, [1], [2], [3], [4])
    assert first.result() == ["<1>"]
    assert leader.result() == ["<2>"]
    with pytest.raises(ValueError, match=r"3 in \[3\]"):
        culprit.result()
    assert other.result() == ["<4>"]
    assert gate.calls[:2] == [[1], [2, 3, 4]]
    assert sorted(gate.calls[2:]) == [[2], [3], [4]]
    assert "for 3 threads failed, each tries alone: 3 in [2, 3, 4]" in caplog.text
    assert not group._waiting


def test_a_leader_whose_thread_ends_leaves_no_thread_waiting(gate: Gate) -> None:
    gate.error, gate.poison = SystemExit, 2
    group = GroupCommit()
    first, leader, other = gathered(group, gate, [1], [2], [3])
    assert first.result() == ["<1>"]
    with pytest.raises(SystemExit):
        leader.result()
    assert other.result() == ["<3>"]
    assert not group._waiting


def test_work_goes_on_after_the_first_one_failed(gate: Gate) -> None:
    gate.poison = 1
    first, second, third = gathered(GroupCommit(), gate, [1], [2], [3])
    with pytest.raises(ValueError, match=r"1 in \[1\]"):
        first.result()
    assert second.result() == ["<2>"]
    assert third.result() == ["<3>"]


def test_what_follows_a_transaction_is_done_once_with_every_result_while_others_go_on(
    gate: Gate,
) -> None:
    group, followed, held = GroupCommit(), list[list[str]](), threading.Event()

    def after(results: Sequence[str]) -> None:
        followed.append(list(results))
        assert len(results) == 1 or held.wait(60)

    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(group.share, "kind", [1], gate, after)
        assert gate.began.wait(60)
        second = pool.submit(group.share, "kind", [2], gate, after)
        until(lambda: len(group._waiting["kind"]) == 1)
        third = pool.submit(group.share, "kind", [3], gate, after)
        until(lambda: len(group._waiting["kind"]) == 2)
        gate.held.set()
        assert third.result(60) == ["<3>"]
        assert not second.done()
        held.set()
        assert (first.result(60), second.result(60)) == (["<1>"], ["<2>"])
    assert followed == [["<1>"], ["<2>", "<3>"]]


def test_many_threads_are_each_served_once() -> None:
    group, counted, lock = GroupCommit(most=8), [], threading.Lock()

    def work(subjects: Sequence[int]) -> list[int]:
        with lock:
            counted.extend(subjects)
        time.sleep(0.001)
        return [-subject for subject in subjects]

    with ThreadPoolExecutor(64) as pool:
        answers = list(pool.map(lambda n: group.share(n % 2, [n], work)[0], range(2000)))
    assert answers == [-n for n in range(2000)]
    assert sorted(counted) == list(range(2000))
