"""What a person or a program may do to a run: pause it, let it go on, change it, end it."""

from collections.abc import Mapping
from dataclasses import dataclass

from app.config.changes import revision_of
from app.config.checks import require_owned_by_run
from app.config.layers import UsageError, from_values
from app.domain.events import Changed
from app.domain.run import Run
from app.engine import lifecycle
from app.engine.context import Context
from app.engine.inside import refusal


class ChangeRefused(Exception):
    """The run's state does not allow the change; the message says why, and what does."""


@dataclass(frozen=True, slots=True)
class Control:
    """Changes runs.

    Attributes:
      ctx: The ledger, and the queue that steps are sent to.
    """

    ctx: Context

    def pause(self, run: Run) -> None:
        """Pauses a run.

        Raises:
          ChangeRefused: It does not run, or is inside another.
        """
        self._require_outside(run)
        if not lifecycle.pause(self.ctx, run.id, "paused on the dashboard"):
            raise ChangeRefused(f"{run.name} is {self._state(run)}: there is nothing to pause")

    def resume(self, run: Run) -> None:
        """Lets a run go on to its budget.

        Raises:
          ChangeRefused: Nothing is left of its budget, it runs already, no worker is there,
            or it is inside another.
        """
        self._require_outside(run)
        if run.in_process:
            raise ChangeRefused(
                f"{run.name} is --reproducible, so that no worker works on it: `evoq resume "
                f"{run.name}` continues it in a process of its own"
            )
        with self.ctx.store.begin() as tx:
            present = tx.workers.presence()
        if self._state(run) == "running":
            raise ChangeRefused(f"{run.name} is running already")
        if not (present.generating and present.evaluating):
            raise ChangeRefused(
                f"no worker would work on {run.name}: start the workers, or `evoq up`, first; "
                f"`evoq resume {run.name}` brings its own"
            )
        if not lifecycle.resume(self.ctx, run.id, keep_leases=True):
            raise ChangeRefused(
                f"{run.name} has spent its budget: `evoq resume {run.name} --iterations N` "
                f"gives it a larger one"
            )

    def change(self, run: Run, values: Mapping[str, object]) -> tuple[Changed, ...]:
        """Gives a run other settings, which hold for steps that begin afterwards.

        Args:
          run: The run.
          values: By dotted key.

        Returns:
          What differs.

        Raises:
          ChangeRefused: A setting is unknown or cannot change, a value is of the wrong kind, the
            run was changed at the same moment, or it is inside another.
        """
        self._require_outside(run)
        try:
            given = from_values(values, "the request")
            require_owned_by_run([given])
            if given.values.get("llm.model") == "auto":
                raise ChangeRefused(
                    f"a command asks the servers of its machine: give the model's name, or use "
                    f"`evoq change {run.name} --set llm.model=auto`"
                )
            problem = self.ctx.problem(run.problem)
            revision = revision_of(run, given.values, problem, self.ctx.operators)
        except UsageError as error:
            raise ChangeRefused(str(error)) from error
        if not lifecycle.change(self.ctx, run, revision):
            raise ChangeRefused(f"{run.name} was changed at the same moment: send it again")
        return revision.changes

    def cancel(self, run: Run) -> None:
        """Ends a run; `resume` may continue it.

        Raises:
          ChangeRefused: It has ended before, or is inside another.
        """
        self._require_outside(run)
        if not lifecycle.cancel(self.ctx, run.id, "cancelled on the dashboard"):
            raise ChangeRefused(f"{run.name} is {self._state(run)}: there is nothing to cancel")

    def _require_outside(self, run: Run) -> None:
        if why := refusal(self.ctx.store, run):
            raise ChangeRefused(why)

    def _state(self, run: Run) -> str:
        with self.ctx.store.begin() as tx:
            return tx.runs.get(run.id).state.value
