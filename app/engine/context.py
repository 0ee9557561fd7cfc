"""The context of steps: the ports, the pace and the operators of a process."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from app.domain.operator import Operator
from app.domain.problem import Problem, ProblemDigest
from app.domain.prompting.judging import STAGE
from app.domain.run import Run
from app.domain.search.promotion import Gates
from app.domain.search.strategy import Recipe, RecipeInputs, Strategy
from app.engine.process import ALONE, Drawn, Process
from app.engine.tracing import UNTRACED, Tracing
from app.ports.protocols import (
    Embedder,
    Executor,
    LanguageModel,
    Misconfigured,
    Sandbox,
    Step,
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


@dataclass(frozen=True, slots=True)
class Context:
    """What every step of a process works with; built once by `app.bootstrap`.

    Attributes:
      model: Returns the language model a run asks, built from its settings; called only for
        operators that ask a model.
      problem: Returns a problem by digest; cached by its provider.
      process: The process that runs the steps.
      embedder: Returns the model that makes embeddings for a run; None where tokens are compared.
      limited: Returns a run's problem with the limits of trials that the run has now; None where
        the limits that the problem was loaded with hold for all runs.
      drawn: The parents of the children that are being made.
      tracing: Takes in what steps do for which proposals.
    """

    store: Store
    model: Callable[[Run], LanguageModel]
    sandbox: Sandbox
    executor: Executor
    problem: Callable[[ProblemDigest], Problem]
    operators: Mapping[str, Operator]
    pace: Pace = Pace()
    process: Process = ALONE
    embedder: Callable[[Run], Embedder | None] | None = None
    limited: Callable[[Run], Problem] | None = None
    drawn: Drawn = field(default_factory=Drawn)
    tracing: Tracing = UNTRACED

    def enqueue(self, step: Step, fleets: Mapping[int, str], *, together: int = 1) -> None:
        """Enqueues a step for each subject, in order, for the workers of its fleet.

        Args:
          step: What to run.
          fleets: Subject to the label of its fleet.
          together: The largest number of subjects in a message, which are of one fleet.
        """
        of_fleet: dict[str, list[int]] = {}
        for subject, fleet in fleets.items():
            of_fleet.setdefault(fleet, []).append(subject)
        for fleet, subjects in of_fleet.items():
            self.executor.submit(step, subjects, together=together, fleet=fleet)

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
