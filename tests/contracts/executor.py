"""What every executor promises, whatever carries its bells."""

from collections.abc import Callable, Sequence

import pytest

from app.ports.protocols import Executor, Step


class ExecutorContract:
    """Subclass it and provide the two fixtures.

    Fixtures:
      executor: The executor under test, with nothing rung.
      rung: Returns the subjects a step was rung for, in the order they are answered in, waiting for
        as many as it is told to expect.
    """

    @pytest.fixture
    def executor(self) -> Executor:
        raise NotImplementedError

    @pytest.fixture
    def rung(self) -> Callable[[Step, int], Sequence[int]]:
        raise NotImplementedError

    def test_each_subject_is_rung_once_and_in_order(
        self, executor: Executor, rung: Callable[[Step, int], Sequence[int]]
    ) -> None:
        executor.submit("generate", [3, 1, 2])
        executor.submit("generate", [7])
        assert list(rung("generate", 4)) == [3, 1, 2, 7]

    def test_a_step_does_not_hear_the_bells_of_another(
        self, executor: Executor, rung: Callable[[Step, int], Sequence[int]]
    ) -> None:
        executor.submit("evaluate", [1])
        executor.submit("produce", [2])
        executor.submit("generate", [3])
        assert [list(rung(step, 1)) for step in ("generate", "evaluate", "produce")] == [
            [3],
            [1],
            [2],
        ]

    def test_neighbours_may_share_a_bell_and_keep_their_order(
        self, executor: Executor, rung: Callable[[Step, int], Sequence[int]]
    ) -> None:
        executor.submit("evaluate", [5, 4, 3, 2, 1], together=2)
        executor.submit("evaluate", [9, 8], together=4)
        assert list(rung("evaluate", 7)) == [5, 4, 3, 2, 1, 9, 8]

    def test_ringing_for_nobody_rings_nothing(
        self, executor: Executor, rung: Callable[[Step, int], Sequence[int]]
    ) -> None:
        executor.submit("evaluate", [])
        executor.submit("evaluate", [5])
        assert list(rung("evaluate", 1)) == [5]

    def test_a_second_bell_for_a_subject_is_not_swallowed(
        self, executor: Executor, rung: Callable[[Step, int], Sequence[int]]
    ) -> None:
        executor.submit("evaluate", [5, 5])
        assert list(rung("evaluate", 2)) == [5, 5]
