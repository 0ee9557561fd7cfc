"""The ledger's side of a transaction for fleets and projects: who serves, who waits, who shares."""

from typing import Protocol

from app.domain.search.fleets import FleetRules
from app.domain.search.quotas import ProjectUse, Quota


class Fleets(Protocol):
    """Which queues are served, and the labels of steps that wait."""

    def places(self) -> dict[str, int]:
        """Returns the places of the live workers of each queue of models or sandboxes.

        A queue is absent where no worker that serves it has reported.
        """
        ...

    def move(self, run: int, rules: FleetRules) -> None:
        """Gives the waiting steps of a run that no worker holds the labels of other rules.

        A step whose label the rules have keeps it.  It locks proposals, then trials, in order.
        """
        ...


class Projects(Protocol):
    """Projects: their weights and quotas, and what their runs use."""

    def quota(self, project: str) -> Quota | None:
        """Returns the quotas of a project; None where it has none and its weight is 1."""
        ...

    def quotas(self) -> list[Quota]:
        """Returns those of all projects that have some, by name."""
        ...

    def named(self) -> list[str]:
        """Returns the projects that runs name, by name."""
        ...

    def put(self, quota: Quota) -> None:
        """Stores a project's weight and quotas in place of those before."""
        ...

    def remove(self, project: str) -> bool:
        """Removes a project's weight and quotas; False where it had none."""
        ...

    def lock(self, project: str) -> None:
        """Lets no other run of a project plan until the transaction ends."""
        ...

    def begin_day(self, run: int) -> None:
        """Notes, once a day (UTC), what a run had spent before it."""
        ...

    def use(self, project: str, run: int | None = None) -> ProjectUse:
        """Returns what the runs of a project use now.

        Args:
          project: Its name.
          run: The run that those `ahead` are counted for; None counts none.
        """
        ...
