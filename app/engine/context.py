"""The context of steps: the ports, the pace and the operators of a process."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from app.domain.operator import Operator
from app.domain.problem import Problem, ProblemDigest
from app.domain.prompting.judging import STAGE
from app.domain.run import Run
from app.domain.search.promotion import Gates
from app.domain.search.strategy import Recipe, RecipeInputs, Strategy
from app.engine.drawn import Drawn
from app.engine.sharing import Share, alone
from app.engine.tracing import UNTRACED, Tracing
from app.ports.protocols import (
    NEVER,
    Embedder,
    Executor,
    LanguageModel,
    Misconfigured,
    Sandbox,
    Stop,
    Store,
)


@dataclass(frozen=True, slots=True)
class Pace:
    """How long steps wait.

    Attributes:
      lease_seconds: How long a step is left alone before it counts as lost; renewed while it runs.
      redeliver_seconds: How long after a message its step is enqueued again, unless it is leased.
      retry_seconds: How long work rests after a port was unavailable.
      attempts: How often a step may be started before the run's machinery counts as broken.
      place_seconds: Between two looks for a trial that may begin, while places are kept for others.
    """

    lease_seconds: float = 30.0
    redeliver_seconds: float = 30.0
    retry_seconds: float = 2.0
    attempts: int = 5
    place_seconds: float = 0.2


LeaseKind: TypeAlias = Literal["proposal", "trial"]


def _not_kept(kind: LeaseKind, subject: int) -> AbstractContextManager[Stop]:  # noqa: ARG001
    return nullcontext(NEVER)


def _no_place(run: Run) -> AbstractContextManager[Callable[[], None]]:  # noqa: ARG001
    return nullcontext(lambda: None)


def _not_counted(run: int) -> AbstractContextManager[None]:  # noqa: ARG001
    return nullcontext()


def _no_embedder(run: Run) -> None:  # noqa: ARG001
    return None


def _not_waited(seconds: float) -> None:  # noqa: ARG001
    return None


def _not_shown(trial: int, moves: Sequence[str]) -> None:  # noqa: ARG001
    return None


@dataclass(frozen=True, slots=True)
class Context:
    """What every step of a process works with; built once by `app.bootstrap`.

    Attributes:
      model: Returns the language model a run asks, built from its settings; called only for
        operators that ask a model.
      problem: Returns a problem by digest; cached by its provider.
      limited: Returns a run's problem with the limits of trials that the run has now; None where
        those that the problem was loaded with hold for all runs.
      keep: Renews a lease for as long as the context manager is open, and yields what asks the
        step to stop once it was withdrawn.
      work: Counts a step for a run for as long as the context manager is open.
      place: Waits until the model of a run takes one more conversation, and yields what gives the
        place back before the context manager ends.
      embedder: Returns what compares the texts of a run; None where tokens do.
      share: Lets threads of this process that want the same transaction run it together.
      wait: Waits for so many seconds.
      drawn: The parents of the children that are being made.
      tracing: Takes in what steps do for which proposals.
      show_moves: Shows people the moves so far of the game that a trial is.
    """

    store: Store
    model: Callable[[Run], LanguageModel]
    sandbox: Sandbox
    executor: Executor
    problem: Callable[[ProblemDigest], Problem]
    operators: Mapping[str, Operator]
    pace: Pace = Pace()
    keep: Callable[[LeaseKind, int], AbstractContextManager[Stop]] = _not_kept
    work: Callable[[int], AbstractContextManager[None]] = _not_counted
    place: Callable[[Run], AbstractContextManager[Callable[[], None]]] = _no_place
    embedder: Callable[[Run], Embedder | None] = _no_embedder
    share: Share = alone
    wait: Callable[[float], None] = _not_waited
    drawn: Drawn = field(default_factory=Drawn)
    tracing: Tracing = UNTRACED
    show_moves: Callable[[int, Sequence[str]], None] = _not_shown
    limited: Callable[[Run], Problem] | None = None

    def measured(self, run: Run) -> Problem:
        """Returns the run's problem, by whose limits its trials are run."""
        return self.problem(run.problem) if self.limited is None else self.limited(run)

    def strategy(self, run: Run) -> Strategy:
        """Builds the run's strategy from its recipe, its problem and its present grid.

        Raises:
          Misconfigured: The recipe is not installed here.
        """
        problem, budget = self.problem(run.problem), run.budget.proposals
        measurements = run.rules.search.measurements
        repeated = problem.final_stage if measurements > 1 else ""
        cases = replace(problem.cases, repeated=repeated, measurements=measurements)
        inputs = RecipeInputs(
            run.axes, self.stages(run), self.gates(run), run.islands, budget, cases
        )
        return self.recipe(run).strategy(inputs)

    def recipe(self, run: Run) -> Recipe:
        """Returns the run's recipe.

        Raises:
          Misconfigured: The recipe is not installed here.
        """
        recipe = run.rules.recipe
        if recipe is None:
            raise Misconfigured(
                f"the recipe {run.strategy!r} of run {run.name!r} is not installed here: install "
                f"the package that provides it, wherever workers run"
            )
        return recipe

    def gates(self, run: Run) -> Gates:
        """Returns what leads from stage to stage: the run's own gates, else its problem's."""
        own = run.rules.gates
        return self.problem(run.problem).thresholds if own is None else own

    def stages(self, run: Run) -> tuple[str, ...]:
        """Returns the stages of the run's trials: its problem's, and its judges' if it has any."""
        measured = self.problem(run.problem).stages
        return (*measured, STAGE) if run.rules.asking.judges else measured
