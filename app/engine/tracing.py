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


class Tracing(Protocol):
    """Takes in what steps do; nothing of it shapes what they do, and no method raises."""

    def span(
        self,
        name: str,
        run: Run,
        *,
        proposals: Sequence[ProposalId] = (),
        trials: Sequence[TrialId] = (),
        **attributes: Attribute | None,
    ) -> AbstractContextManager[Note]:
        """Counts the block as work for these proposals, or for those that are tried in trials.

        A block inside another one of the same thread is part of that work.
        """
        ...

    def planning(self) -> AbstractContextManager[Callable[[Run, Sequence[ProposalId]], None]]:
        """Counts the block as the planning of the proposals that it names at its end."""
        ...

    def settled(self, run: Run, proposals: Sequence[ProposalId]) -> None:
        """Takes in that proposals have settled: nothing more is done for them."""
        ...

    def close(self) -> None:
        """Sends what is left, for some seconds at most.  Idempotent."""
        ...


def _unnoted(**attributes: Attribute | None) -> None:  # noqa: ARG001
    return None


class Untraced:
    """Takes in nothing."""

    def span(
        self,
        name: str,  # noqa: ARG002
        run: Run,  # noqa: ARG002
        *,
        proposals: Sequence[ProposalId] = (),  # noqa: ARG002
        trials: Sequence[TrialId] = (),  # noqa: ARG002
        **attributes: Attribute | None,  # noqa: ARG002
    ) -> AbstractContextManager[Note]:
        """See `Tracing.span`."""
        return nullcontext(_unnoted)

    def planning(self) -> AbstractContextManager[Callable[[Run, Sequence[ProposalId]], None]]:
        """See `Tracing.planning`."""
        return nullcontext(lambda run, proposals: None)  # noqa: ARG005

    def settled(self, run: Run, proposals: Sequence[ProposalId]) -> None:
        """See `Tracing.settled`."""

    def close(self) -> None:
        """See `Tracing.close`."""


UNTRACED = Untraced()
