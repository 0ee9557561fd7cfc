"""The Python interface, which the package `evoqueue` offers: `evolve` and `evolve_function`.

A search runs where `evoq run` would run it.  No program and no evaluator is ever called in the
process of the caller.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from app.adapters.problems import callables, reload
from app.adapters.problems.openevolve import NAME as OPENEVOLVE
from app.client.measuring import evaluator_of
from app.client.notes import Silence
from app.client.plan import plan_run
from app.client.run_names import free_name
from app.client.session import RunSession, open_session
from app.client.setting_layers import SettingLayers, load_problem
from app.client.target import find_target
from app.config.layers import from_assignments, from_environment, problem_options
from app.domain.problem import Problem
from app.domain.run import Run
from app.engine import lifecycle
from app.reports.progress import Progress
from app.reports.summary import summarise

Settings: TypeAlias = Mapping[str, object]
"""Settings by dotted name, as `--set` takes them."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a search.

    Attributes:
      run: The name of the run, for the commands of `evoq`.
      state: "finished", or why it ended otherwise: "paused", "failed", "cancelled".
      reason: Why it did not finish, or why it finished early; "" where there is nothing to say.
      proposals: Settled proposals of the budget.
      fitness: Of the best program; None where no program was measured.  Higher is better.
      source: The best program; None where no program was measured.
      metrics: Of the best program.
      baselines: Fitness of each start program, by name; None for one that failed.
    """

    run: str
    state: str
    reason: str
    proposals: int
    fitness: float | None
    source: str | None
    metrics: Mapping[str, float]
    baselines: Mapping[str, float | None]


class Search:
    """A search that begins when it is iterated over, or when its result is asked for.

    Iterating yields `Progress` about twice a second.  Leaving the loop early pauses the run:
    `evoq resume` continues it.
    """

    def __init__(
        self, problem: Problem, layers: SettingLayers, name: str | None, inline: bool
    ) -> None:
        """Begins nothing yet."""
        self._problem, self._layers, self._name, self._inline = problem, layers, name, inline
        self._result: Result | None = None

    def __iter__(self) -> Iterator[Progress]:
        target = find_target(self._layers.choices)
        plan = plan_run(
            self._problem, self._layers, local=not target.deployed, reproducible=self._inline
        )
        with open_session(
            target,
            plan.settings,
            inline=self._inline,
            notes=Silence(),
            evaluator=evaluator_of(self._problem),
        ) as session:
            name = self._name or free_name(session.store, self._problem.name)
            with session.hold(name):
                run = lifecycle.start(session.ctx, self._problem, plan.new_run(name))
                try:
                    for status in session.follower(run).statuses():
                        yield status.progress
                finally:
                    with session.store.begin() as tx:
                        ended = tx.runs.get(run.id).state.final
                    if not ended:
                        lifecycle.pause(session.ctx, run.id, "its caller went on without it")
                    self._result = _result(session, run, self._problem)

    def result(self) -> Result:
        """Returns the result, of a search that has not begun after running it to its end."""
        if self._result is None:
            for _ in self:
                pass
        assert self._result is not None
        return self._result


def evolve(
    problem: str | Path | Sequence[str | Path],
    *,
    iterations: int | None = None,
    seed: int | None = None,
    settings: Settings | None = None,
    name: str | None = None,
    reproducible: bool = False,
) -> Search:
    """Returns a search on a problem on the disk, of any format.

    Args:
      problem: A folder or file, or an initial program and an evaluator.
      iterations: The budget of proposals.
      seed: Of the run's random choices.
      settings: Settings of the run and options of the problem.
      name: The name of the run; None makes one from the problem's.
      reproducible: Whether one proposal is in flight at a time, in this process.

    Raises:
      ProblemError: The problem cannot be loaded.
      UsageError: A setting is unknown or has a value that cannot be used.
    """
    layers = _layers(settings, iterations, seed)
    paths = [problem] if isinstance(problem, str | Path) else problem
    return Search(load_problem([Path(path) for path in paths], layers), layers, name, reproducible)


def evolve_function(
    function: Callable[..., object],
    evaluator: Callable[..., object],
    *,
    instructions: str = "",
    iterations: int | None = None,
    seed: int | None = None,
    settings: Settings | None = None,
    name: str | None = None,
    reproducible: bool = False,
) -> Search:
    """Returns a search for a better version of a function.

    The sources of both functions are sent to the sandbox, with the imports, constants, functions
    and classes of their file that they use.  Neither is called here.

    Args:
      function: What evolves.
      evaluator: Is called with the function and returns a score, or a dict of metrics with
        `combined_score`; higher is better.
      instructions: The task in prose, for the model; the docstring of `function` by default.
      iterations: The budget of proposals.
      seed: Of the run's random choices.
      settings: Settings of the run and options of the problem.
      name: The name of the run; None makes one from the function's.
      reproducible: Whether one proposal is in flight at a time, in this process.

    Raises:
      ProblemError: A function has no source text, or uses what cannot be shipped.
      UsageError: A setting is unknown or has a value that cannot be used.
    """
    layers = _layers(settings, iterations, seed)
    source = callables.source_of(function, evaluator)
    stated = instructions or (function.__doc__ or "").strip()
    files = {
        **source.files,
        "config.yaml": json.dumps(
            {"prompt": {"system_message": stated}} if stated else {}
        ).encode(),
    }
    options = {**problem_options(layers.choices), **source.options, "problem.config": "config.yaml"}
    problem = reload(OPENEVOLVE, source.name, files, options)
    return Search(problem, layers, name, reproducible)


def _layers(settings: Settings | None, iterations: int | None, seed: int | None) -> SettingLayers:
    given = {"budget.proposals": iterations, "search.seed": seed, **(settings or {})}
    assigned = from_assignments(
        f"{key}={json.dumps(value)}" for key, value in given.items() if value is not None
    )
    return SettingLayers((assigned, from_environment(os.environ)))


def _result(session: RunSession, run: Run, problem: Problem) -> Result:
    summary = summarise(session.store, run.id, problem)
    best = summary.best
    return Result(
        run=summary.run.name,
        state=summary.run.state.value,
        reason=summary.run.reason,
        proposals=summary.iterations,
        fitness=best.measured.fitness if best else None,
        source=best.source if best else None,
        metrics=best.measured.metrics if best else {},
        baselines={name: one.fitness for name, one in summary.baselines.items()},
    )
