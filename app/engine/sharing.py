"""Sharing: transactions that threads of one process want at the same time may be one."""

from collections.abc import Callable, Hashable, Sequence
from typing import Protocol, TypeVar

Key = TypeVar("Key")
Subject = TypeVar("Subject")
Result = TypeVar("Result")


class Share(Protocol):
    """Runs a transaction, maybe once for several threads that want the same."""

    def __call__(
        self,
        kind: Hashable,
        subjects: Sequence[Subject],
        work: Callable[[Sequence[Subject]], Result],
        /,
    ) -> Result:
        """Runs `work` for these subjects, and maybe for more that others bring.

        Args:
          kind: What is done; whoever shares has the same `work`.
          subjects: What it is done for.
          work: Does it for any number of subjects, all or nothing; run by one of the threads.

        Returns:
          What `work` returned for everybody's subjects; all have the same object.

        Raises:
          BaseException: What `work` raised in this thread.  One subject's fault never fails others
            for good: a step that failed is rung for again.
        """
        ...


def alone(
    kind: Hashable,  # noqa: ARG001
    subjects: Sequence[Subject],
    work: Callable[[Sequence[Subject]], Result],
    /,
) -> Result:
    """Runs `work` for these subjects only."""
    return work(subjects)


def taken(found: dict[Key, Result], wanted: Sequence[Key]) -> list[Result]:
    """Takes what is wanted out of what was found for many, so that no other thread has it too."""
    return [one for key in wanted if (one := found.pop(key, None)) is not None]
