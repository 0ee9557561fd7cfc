"""Programs by content, and what a run knows of them."""

from collections.abc import Collection, Sequence
from typing import Protocol

from app.domain.evaluation import FailureKind
from app.domain.operator import (
    Aim,
    Ancestry,
    FailedChild,
    MeasuredPoint,
    ProgramRecord,
    TriedDirection,
)
from app.domain.program import Program, ProgramId
from app.domain.search.cohort import ProposalId


class Programs(Protocol):
    """Programs by content, and what a run knows of them."""

    def put(self, programs: Sequence[Program]) -> None: ...
    def get(self, ids: Sequence[ProgramId]) -> dict[ProgramId, Program]: ...
    def lengths(self, ids: Sequence[ProgramId]) -> dict[ProgramId, int]: ...

    def named(self, run: int, prefix: str) -> list[ProgramId]:
        """Returns a run's programs whose ids begin with `prefix`; two at most."""
        ...

    def records(
        self, run: int, ids: Sequence[ProgramId], *, measured: bool
    ) -> dict[ProgramId, ProgramRecord]:
        """Returns programs with their fitness in this run.

        Args:
          run: The run.
          ids: The programs.
          measured: Whether metrics, features and artifacts are wanted too.
        """
        ...

    def children(self, run: int, parent: ProgramId, limit: int) -> tuple[ProgramRecord, ...]:
        """Returns the parent's evaluated children, newest first."""
        ...

    def ancestry(self, run: int, program: ProgramId, *, ancestors: int, failures: int) -> Ancestry:
        """Returns up to so many ancestors of a program, and failed children of it and of them."""
        ...

    def failed(
        self,
        run: int,
        island: int,
        *,
        epoch: int,
        kinds: Collection[FailureKind],
        limit: int,
    ) -> list[Aim]:
        """Returns aims at the newest failed programs of an island's epoch; see `Population`."""
        ...

    def failed_child(self, run: int, program: ProgramId) -> FailedChild | None:
        """Returns how a program failed last in a run; None where it did not."""
        ...

    def born_since(self, run: int, family: str, program: ProgramId, most: int) -> int:
        """Returns how many of a run's children of a family are newer than a program; <= `most`."""
        ...

    def points(self, run: int, family: str, limit: int) -> tuple[MeasuredPoint, ...]:
        """Returns the points of a run's admitted and failed programs of a family, newest first."""
        ...

    def directions(self, run: int, limit: int) -> tuple[TriedDirection, ...]:
        """Returns the newest directions of a run's proposals with their outcome, newest first."""
        ...

    def are_taken(self, run: int, claims: Sequence[tuple[ProposalId, int, str]]) -> list[bool]:
        """Returns for each claim whether an earlier program of the run made it.

        It is not taken where its proposal has its child already: another worker entered it, and
        the claim is its own.

        Args:
          run: The run.
          claims: A proposal, the epoch and the fingerprint of its child.
        """
        ...

    def claim_fingerprints(
        self, run: int, claims: Sequence[tuple[int, str]]
    ) -> set[tuple[int, str]]:
        """Returns which of the claims no earlier program of the run made: epoch, fingerprint."""
        ...
