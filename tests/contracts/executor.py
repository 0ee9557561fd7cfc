"""The contract of executors, however they transport their messages."""

from collections.abc import Callable, Sequence

import pytest

from app.ports.protocols import Executor, Step


class ExecutorContract:
    """Subclass it and provide the two fixtures.

    Fixtures:
      executor: The executor under test, with an empty queue.
      delivered: Returns the subjects of a step's messages in the order of delivery, after waiting
        for the expected number.
    """

    @pytest.fixture
    def executor(self) -> Executor:
        raise NotImplementedError

    @pytest.fixture
    def delivered(self) -> Callable[[Step, int], Sequence[int]]:
        raise NotImplementedError

    def test_each_subject_is_enqueued_once_and_in_order(
        self, executor: Executor, delivered: Callable[[Step, int], Sequence[int]]
    ) -> None:
        executor.submit("generate", [3, 1, 2])
        executor.submit("generate", [7])
        assert list(delivered("generate", 4)) == [3, 1, 2, 7]

    def test_a_step_does_not_receive_the_messages_of_another(
        self, executor: Executor, delivered: Callable[[Step, int], Sequence[int]]
    ) -> None:
        executor.submit("evaluate", [1])
        executor.submit("produce", [2])
        executor.submit("generate", [3])
        assert [list(delivered(step, 1)) for step in ("generate", "evaluate", "produce")] == [
            [3],
            [1],
            [2],
        ]

    def test_subjects_of_one_message_keep_their_order(
        self, executor: Executor, delivered: Callable[[Step, int], Sequence[int]]
    ) -> None:
        executor.submit("evaluate", [5, 4, 3, 2, 1], together=2)
        executor.submit("evaluate", [9, 8], together=4)
        assert list(delivered("evaluate", 7)) == [5, 4, 3, 2, 1, 9, 8]

    def test_the_messages_that_wait_are_counted(
        self, executor: Executor, delivered: Callable[[Step, int], Sequence[int]]
    ) -> None:
        executor.submit("generate", [1, 2, 3])
        assert (executor.queued("generate"), executor.queued("evaluate")) == (3, 0)
        executor.submit("evaluate", [4], fleet="big")
        assert executor.queued("evaluate", "big") == 1

    def test_submitting_no_subject_enqueues_nothing(
        self, executor: Executor, delivered: Callable[[Step, int], Sequence[int]]
    ) -> None:
        executor.submit("evaluate", [])
        executor.submit("evaluate", [5])
        assert list(delivered("evaluate", 1)) == [5]

    def test_a_second_message_for_a_subject_is_delivered(
        self, executor: Executor, delivered: Callable[[Step, int], Sequence[int]]
    ) -> None:
        executor.submit("evaluate", [5, 5])
        assert list(delivered("evaluate", 2)) == [5, 5]
