"""What every step is handed."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

from app.domain.operator import Operator
from app.domain.problem import Problem, ProblemDigest
from app.domain.prompting.judging import STAGE
from app.domain.run import Run
from app.domain.search.strategy import RecipeInputs, Strategy
from app.engine.sharing import Share, alone
from app.ports.protocols import Executor, LanguageModel, Misconfigured, Sandbox, Store


@dataclass(frozen=True, slots=True)
class Pace:
    """How long things are waited for.

    Attributes:
      lease_seconds: How long a step is left alone before it counts as lost; renewed while it runs.
      redeliver_seconds: How long a bell may go unanswered before it is rung again.
      retry_seconds: How long work rests after a port was unavailable.
      attempts: How often a step may be started before the run's machinery counts as broken.
    """

    lease_seconds: float = 30.0
    redeliver_seconds: float = 30.0
    retry_seconds: float = 2.0
    attempts: int = 5


def _not_kept(kind: Literal["cohort", "trial"], subject: int) -> AbstractContextManager[None]:  # noqa: ARG001
    return nullcontext()


def _not_counted(run: int) -> AbstractContextManager[None]:  # noqa: ARG001
    return nullcontext()


@dataclass(frozen=True, slots=True)
class Context:
    """The world as one process sees it; built once by `app.bootstrap`.

    Attributes:
      model: Returns the language model a run asks, built from its settings; called only for
        operators that ask one.
      problem: Returns a problem by digest; cached by whoever provides it.
      keep: Renews a lease for as long as the context manager is open.
      work: Counts a step for a run for as long as the context manager is open.
      share: Lets threads of this process that want the same transaction share one.
    """

    store: Store
    model: Callable[[Run], LanguageModel]
    sandbox: Sandbox
    executor: Executor
    problem: Callable[[ProblemDigest], Problem]
    operators: Mapping[str, Operator]
    pace: Pace = Pace()
    keep: Callable[[Literal["cohort", "trial"], int], AbstractContextManager[None]] = _not_kept
    work: Callable[[int], AbstractContextManager[None]] = _not_counted
    share: Share = alone

    def strategy(self, run: Run) -> Strategy:
        """Builds the run's strategy from its recipe, its problem and its grid as it stands.

        Raises:
          Misconfigured: The recipe is not installed here.
        """
        recipe = run.rules.search.recipe
        if recipe is None:
            raise Misconfigured(
                f"the recipe {run.strategy!r} of run {run.name!r} is not installed here: install "
                f"the package that provides it, wherever workers run"
            )
        thresholds = self.problem(run.problem).thresholds
        return recipe.strategy(RecipeInputs(run.axes, self.stages(run), thresholds, run.islands))

    def stages(self, run: Run) -> tuple[str, ...]:
        """Returns the stages of the run's trials: its problem's, and its judges' if it has any."""
        measured = self.problem(run.problem).stages
        return (*measured, STAGE) if run.rules.asking.judges else measured


def produce_stride(run: Run) -> int:
    """Returns after how many settlements it is worth planning again: an eighth of the buffer."""
    return max(1, run.limits.generating // 8)


def due_to_produce(run: Run, ordinals: Sequence[int]) -> bool:
    """Returns whether one of these just-settled proposals is one that asks for planning."""
    stride = produce_stride(run)
    left = run.budget.proposals - run.proposals
    return left <= 0 or any(ordinal % stride == 0 or ordinal < 0 for ordinal in ordinals)
