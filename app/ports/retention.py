"""What leaves a ledger: runs that were deleted, and prompts that are no longer kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from app.domain.run import RunState

DeletionReason: TypeAlias = Literal["asked", "age", "size"]
"""Who wanted a run deleted: a person, `ledger.keep_days` or `ledger.keep_gib`."""

Removed: TypeAlias = Mapping[str, int]
"""Numbers of rows by table."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run that is in no other run, as a deletion looks at it.

    Attributes:
      best: The highest fitness; None without one.
      age_seconds: Since its last event.
      kept: Whether `evoq keep` protects it.
      leases: Steps of it, and of runs inside, that workers have in progress.
      inside: The names of the runs inside it, and inside those.
    """

    id: int
    name: str
    problem: str
    state: RunState
    proposals: int
    best: float | None
    age_seconds: float
    kept: bool
    leases: int
    inside: tuple[str, ...]

    @property
    def obstacle(self) -> str:
        """Why it is not deleted now; "" where nothing forbids it."""
        if self.state is RunState.RUNNING:
            return f"{self.name} is running: `evoq cancel {self.name}` ends it first"
        if self.kept:
            return f"{self.name} is kept: `evoq keep {self.name} --release` makes it deletable"
        if self.leases:
            return (
                f"{self.leases} steps of {self.name} are still in progress: wait until they end, "
                f"or until their leases lapse"
            )
        return ""


class Retention(Protocol):
    """Deletes runs: they disappear at once, and their rows follow in bounded transactions."""

    def stored(
        self, runs: Sequence[int] = (), *, ended: bool = False, older_seconds: float = 0.0
    ) -> list[StoredRun]:
        """Returns runs that are in no other run, oldest last event first.

        Args:
          runs: Which; () means all.
          ended: Whether only those are wanted that have ended and are not kept.
          older_seconds: Least time since the last event.
        """
        ...

    def keep(self, run: int, *, kept: bool) -> None:
        """Protects a run from every deletion, or protects it no longer."""
        ...

    def delete(self, run: int, reason: DeletionReason) -> bool:
        """Makes a run and the runs inside it disappear; False where something forbids it now.

        Their names are free then, and their rows are left to `sweep`.
        """
        ...

    def unswept(self) -> list[int]:
        """Returns the deleted runs that have rows left, in the order in which they are swept."""
        ...

    def sweep(self, run: int, most: int) -> Removed:
        """Removes some rows of a deleted run, about so many proposals or events.

        With the last of them go the run and its problem, if no other run has it.  Programs and
        texts go with the last proposal of all runs that has them.

        Returns:
          What was removed; nothing once nothing is left.

        Raises:
          Unavailable: Others write programs for too long at this moment; trying again is safe.
        """
        ...

    def forget(self, most: int) -> Removed:
        """Removes up to so many kept outcomes, and workers, that are older than each stored run.

        Those of the last day stay, and so do workers that a stored run has times of.
        """
        ...

    def strip_prompts(self, older_seconds: float, most: int) -> int:
        """Removes logged prompts of a run that ended so long ago and is not kept.

        Returns:
          How many completions lost them; 0 once there is nothing more to do.
        """
        ...

    def grown_bytes(self) -> int:
        """Returns the size of the database; 0 while it has room that a deletion for size made."""
        ...
