"""Sharing: transactions that threads of one process want at the same time may be one."""

from collections.abc import Callable, Hashable, Sequence
from typing import Protocol, TypeVar

Subject = TypeVar("Subject")
Result = TypeVar("Result")


def nothing(results: Sequence[object]) -> None:
    """Does nothing with the results of a transaction."""


class Share(Protocol):
    """Runs a transaction, maybe once for several threads that want the same."""

    def __call__(
        self,
        kind: Hashable,
        subjects: Sequence[Subject],
        work: Callable[[Sequence[Subject]], Sequence[Result]],
        after: Callable[[Sequence[Result]], None] = nothing,
        /,
    ) -> list[Result]:
        """Runs `work` for these subjects, and maybe for more that other threads bring.

        Args:
          kind: What is done; all calls of a kind have the same `work` and `after`.
          subjects: What it is done for.
          work: Does it for any number of subjects, all or nothing, and returns a result for each,
            in order; run by one of the threads.
          after: Called with the results of all subjects of a transaction that has committed, by the
            thread that ran it, while the others go on.

        Returns:
          The results of these subjects, in order.

        Raises:
          BaseException: What `work` raised for these subjects.  A subject that fails does not fail
            the subjects of other threads.
        """
        ...


def alone(
    kind: Hashable,  # noqa: ARG001
    subjects: Sequence[Subject],
    work: Callable[[Sequence[Subject]], Sequence[Result]],
    after: Callable[[Sequence[Result]], None] = nothing,
    /,
) -> list[Result]:
    """Runs `work` for these subjects only."""
    results = list(work(subjects))
    after(results)
    return results
