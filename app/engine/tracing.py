"""Tracing: where steps say what they do for which proposals, for those who follow one of them."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, TypeAlias

from app.domain.run import Run
from app.domain.search.cohort import ProposalId, TrialId

Attribute: TypeAlias = str | int | float | bool


class Note(Protocol):
    """Adds attributes to a span; None is left out."""

    def __call__(self, **attributes: Attribute | None) -> None: ...


def _unnoted(**attributes: Attribute | None) -> None:  # noqa: ARG001
    return


class Tracing(Protocol):
    """Takes in what steps do; nothing of it shapes what they do, and no method raises.

    The methods have the bodies of a process that nobody traces.
    """

    def span(
        self,
        name: str,  # noqa: ARG002
        run: Run,  # noqa: ARG002
        *,
        proposals: Sequence[ProposalId] = (),  # noqa: ARG002
        trials: Sequence[TrialId] = (),  # noqa: ARG002
        **attributes: Attribute | None,  # noqa: ARG002
    ) -> AbstractContextManager[Note]:
        """Counts the block as work for these proposals, or for those that are tried in trials.

        A block inside another one of the same thread is part of that work.
        """
        return nullcontext(_unnoted)

    def planning(self) -> AbstractContextManager[Callable[[Run, Sequence[ProposalId]], None]]:
        """Counts the block as the planning of the proposals that it names at its end."""
        return nullcontext(lambda run, proposals: None)  # noqa: ARG005

    def settled(self, run: Run, proposals: Sequence[ProposalId]) -> None:  # noqa: ARG002
        """Takes in that proposals have settled: nothing more is done for them."""
        return

    def close(self) -> None:
        """Sends what is left, for some seconds at most.  Idempotent."""
        return


class Untraced(Tracing):
    """Takes in nothing."""


UNTRACED = Untraced()
