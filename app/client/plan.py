"""From a problem and its settings to everything a run is created from."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from app.adapters.tuning.cma import ask
from app.client.adjustments import (
    models_elsewhere,
    operator_mix,
    with_function,
    with_human_models,
    with_operators_inside,
    with_servers_of_this_machine,
    without_keyless_models,
    without_operators_of_models,
)
from app.client.requirements import require_possible
from app.client.setting_layers import COMMAND_LINE, SettingLayers
from app.config.checks import (
    axes_of,
    require_owned_by_run,
    with_asked_roles,
    without_judges,
    without_models,
)
from app.config.fleet_checks import without_fleets
from app.config.layers import ENVIRONMENT
from app.config.resolve import PROBLEMS_OWN, Resolved, resolved
from app.config.rules import islands_of
from app.config.settings import RunSettings
from app.domain.operators import operators as every_operator
from app.domain.operators.agent import AGENT
from app.domain.operators.complete import COMPLETE
from app.domain.problem import Axis, Problem
from app.domain.search.back_pressure import SMALL, InFlightLimits
from app.domain.search.budget import Budget
from app.ports.runs import NewRun


@dataclass(frozen=True, slots=True)
class RunPlan:
    """Everything a run is created from but its name.

    Attributes:
      notices: Texts for the user, one sentence each.
      in_process: Whether one process alone works on the run.
    """

    problem: Problem
    settings: RunSettings
    operators: Mapping[str, float]
    notices: tuple[str, ...]
    in_process: bool = False

    @property
    def islands(self) -> int:
        # `plan_run` derives the number of islands.
        assert self.settings.search.islands is not None
        return self.settings.search.islands

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes of the run's grid."""
        return axes_of(self.problem, self.settings)

    def new_run(self, name: str) -> NewRun:
        """Returns the run with that name."""
        search, queue = self.settings.search, self.settings.queue
        return NewRun(
            name=name,
            problem=self.problem.digest,
            strategy=search.strategy,
            settings=self.settings.model_dump(mode="json"),
            operators=self.operators,
            axes=self.axes,
            seed=search.seed,
            islands=self.islands,
            budget=Budget(**asdict(self.settings.budget)),
            limits=InFlightLimits(queue.generating or SMALL, queue.evaluating or SMALL),
            in_process=self.in_process,
        )


def plan_run(
    problem: Problem,
    layers: SettingLayers,
    *,
    local: bool,
    reproducible: bool = False,
    no_model: bool = False,
) -> RunPlan:
    """Returns what a run of the problem is created from.

    Args:
      problem: The problem.
      layers: Settings beside those of the problem.
      local: Whether the run's workers share this process's environment, keys included.
      no_model: Whether no model is asked, whatever the settings name.
      reproducible: Whether one proposal is in flight at a time, and requests have seeds.

    Raises:
      UsageError: A setting is wrong, or an operator needs a model and none is named.
    """
    if not no_model:
        problem, layers = with_servers_of_this_machine(problem, layers)
    resolution = resolved(layers.choices, problem.suggestions, problem.suggested_by)
    notices = _notices(problem, layers, resolution)
    if no_model:
        resolution = without_models(resolution)
    if not local:
        notices += require_owned_by_run(layers.choices)
    both = (without_judges, with_human_models)
    for adjust in (without_keyless_models, without_fleets, *both) if local else both:
        resolution, added = adjust(resolution)
        notices += added
    resolution = replace(resolution, settings=without_operators_of_models(resolution))
    mix = operator_mix(resolution.settings, problem)
    resolution, inside = with_operators_inside(resolution, problem)
    known, used = every_operator(ask), {**mix, **inside}
    asks = any(known[name].asks_model for name in used)
    resolution, added = with_asked_roles(resolution, [known[name] for name in used])
    notices += added
    settings = resolution.settings
    named = asks or AGENT.name in used or settings.llm.feedback
    notices += models_elsewhere(settings.llm) if named else []
    if COMPLETE.name in used:
        settings = with_function(problem, settings)
    require_possible(problem, settings, resolution.sources, used, asks=asks)
    if reproducible:
        queue = replace(settings.queue, generating=1, evaluating=1)
        settings = settings.model_copy(update={"queue": queue})
    if settings.llm.seeded is None:
        llm = replace(settings.llm, seeded=reproducible)
        settings = settings.model_copy(update={"llm": llm})
    source = resolution.sources.get("search.operators")
    learnt = settings.search.learn_forms
    if learnt is None:
        # Earlier runs of the ledger would make two reproducible runs differ.
        learnt = source in (None, PROBLEMS_OWN) and not reproducible
    if learnt and source == PROBLEMS_OWN and asks:
        notices.append(_overruled_wish(mix))
    # The settings are stored as they take effect.
    search = replace(settings.search, islands=islands_of(settings), learn_forms=learnt)
    settings = settings.model_copy(update={"search": search})
    return RunPlan(problem, settings, mix, tuple(notices), reproducible)


def _notices(problem: Problem, layers: SettingLayers, resolution: Resolved) -> list[str]:
    """Returns the notices of the problem, of the settings and of where they were given."""
    notices = [*problem.notices, *resolution.notices]
    notices += [text for layer in layers.choices for text in layer.notices]
    notices += _replaced_by_config(problem, layers, resolution)
    if layers.experiment.task not in ("", problem.name):
        notices.append(
            f"`task_name: {layers.experiment.task}`: without effect, because the task is the "
            f"PROBLEM of the command."
        )
    return notices


def _replaced_by_config(problem: Problem, layers: SettingLayers, resolution: Resolved) -> list[str]:
    """Returns a sentence on what --config replaces of what the problem's configuration asks for."""
    file = layers.choices[-1]
    if file.source in (COMMAND_LINE, ENVIRONMENT):
        return []
    models = {"llm.model", "llm.models"}
    replaced = [
        name
        for name, value in problem.suggestions.items()
        if (name in file.values and file.values[name] != value)
        or (models & file.values.keys() and (name in models or name.startswith("llm.roles.")))
        if resolution.sources.get(name) != PROBLEMS_OWN or name in models
    ]
    if not replaced:
        return []
    keys = ", ".join(f"`{problem.suggested_by.get(name, name)}`" for name in sorted(replaced))
    return [f"--config {file.source} replaces {keys} of the problem's configuration."]


def _overruled_wish(mix: Mapping[str, float]) -> str:
    wished = max(mix, key=lambda name: mix[name])
    return (
        f"the problem asks for `{wished}`: the run begins with it, and asks in other forms where "
        f"these yield more children that run; --set 'search.operators={{{wished}: 1}}' keeps it"
    )
