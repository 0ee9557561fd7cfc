"""From the command line to what a run is created from."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from app import bootstrap
from app.adapters.model.providers.specs import model_spec
from app.adapters.problems import configures_problem
from app.adapters.tuning.cma import ask
from app.cli.templates import with_templates
from app.config.checks import (
    caps,
    operators,
    require_bounds,
    require_refining,
    without_judges,
    without_models,
)
from app.config.layers import (
    Choices,
    UsageError,
    from_assignments,
    from_environment,
    from_file,
    problem_options,
)
from app.config.models import Provider
from app.config.resolve import PROBLEMS_OWN, Resolved, resolved
from app.config.settings import RunSettings
from app.domain.operators import operators as every_operator
from app.domain.operators.complete import COMPLETE
from app.domain.problem import Problem
from app.domain.search.back_pressure import STARTING, Caps, sized
from app.domain.search.budget import Budget
from app.domain.source.functions import evolving
from app.engine.lifecycle import FOUNDING
from app.ports.records import NewRun

A_DAY_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Layers:
    """What was said, earlier layers winning.

    Attributes:
      config: An OpenEvolve config.yaml given with --config; None where there is none.
    """

    choices: tuple[Choices, ...]
    config: Path | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """A problem, and what was said about the run."""

    problem: Problem
    layers: tuple[Choices, ...]


@dataclass(frozen=True, slots=True)
class Order:
    """Everything a run is created from but its name.

    Attributes:
      notices: What the person should know, one sentence each.
    """

    problem: Problem
    settings: RunSettings
    operators: Mapping[str, float]
    notices: tuple[str, ...]

    def new_run(self, name: str) -> NewRun:
        """Returns the run of that name."""
        search, queue = self.settings.search, self.settings.queue
        return NewRun(
            name=name,
            problem=self.problem.digest,
            strategy=search.strategy,
            settings=self.settings.model_dump(mode="json"),
            operators=self.operators,
            axes=self.problem.axes,
            seed=search.seed,
            islands=search.islands,
            budget=Budget(**self.settings.budget.model_dump()),
            limits=sized(None, Caps(queue.generating, queue.evaluating), STARTING),
        )


def layers_of(
    assignments: Sequence[str],
    config: Path | None,
    *,
    iterations: int | None = None,
    seed: int | None = None,
) -> Layers:
    """Reads `--set`, the environment and `--config`.

    Raises:
      UsageError: One of them cannot be meant.
    """
    said = from_assignments(assignments)
    options = {"budget.proposals": iterations, "search.seed": seed}
    given = {name: value for name, value in options.items() if value is not None}
    line = Choices("the command line", {**said.values, **given})
    choices = [with_templates(one, Path()) for one in (line, from_environment(os.environ))]
    if config is None:
        return Layers(tuple(choices))
    file = from_file(_text(config), str(config), foreign=configures_problem)
    if file is None:
        return Layers(tuple(choices), config)
    return Layers((*choices, with_templates(file, config.parent)))


def load(paths: Sequence[Path], layers: Layers, *, strict: bool) -> Loaded:
    """Loads the problem that the paths and the layers describe.

    Raises:
      UsageError: A path does not exist, or a setting cannot be meant.
      ProblemError: It cannot be loaded.
    """
    for path in paths:
        if not path.exists():
            raise UsageError(
                "no such file or folder", where=str(path), remedy="Check the spelling of the path."
            )
    resolved(layers.choices, {})  # what was said here is wrong usage before it shapes a problem
    problem = bootstrap.load_problem(
        paths, config=layers.config, strict=strict, options=problem_options(layers.choices)
    )
    return Loaded(problem, layers.choices)


def ordered(loaded: Loaded, *, local: bool) -> Order:
    """Returns what a run of the problem is created from.

    Args:
      loaded: The problem and what was said.
      local: Whether the run's workers see this process's environment, keys included.

    Raises:
      UsageError: A setting cannot be meant, or the mix asks a model that is not there.
    """
    problem = loaded.problem
    found = resolved(loaded.layers, problem.suggestions, problem.suggested_by)
    notices = [*problem.notices, *found.notices]
    if local:
        found, told = _with_keys(found)
        notices += told
    found, told = without_judges(found)
    notices += told
    found, told = _with_people(found)
    notices += told
    known = every_operator(ask)
    asking = [name for name, operator in known.items() if operator.asks_model]
    suggested = found.sources.get("search.operators") == PROBLEMS_OWN
    settings = found.settings
    if suggested and not settings.llm.mix:
        settings = settings.model_copy(
            update={"search": settings.search.model_copy(update={"operators": None})}
        )
    mix = operators(settings, asking, known=[name for name in known if name != FOUNDING])
    if set(asking) & set(mix) or settings.llm.feedback:
        require_bounds(Budget(**settings.budget.model_dump()), settings.llm)
        require_refining(settings)
    if COMPLETE.name in mix:
        _require_function(problem, settings.prompts.function)
    fixed = caps(settings, local=local)
    queue = settings.queue.model_copy(
        update={"generating": fixed.generating, "evaluating": fixed.evaluating}
    )
    settings = settings.model_copy(update={"queue": queue})  # the snapshot says what holds
    return Order(problem, settings, mix, tuple(notices))


def _require_function(problem: Problem, named: str) -> None:
    """Raises unless every seed says which of its functions is to be completed.

    Raises:
      UsageError: One does not.
    """
    for seed in problem.seeds:
        if problem.language != "python" or evolving(seed, named) is None:
            raise UsageError(
                f"seed {seed.id[:8]} does not say which function `complete` evolves",
                where="search.operators",
                value=named,
                remedy="Name it, as --set prompts.function=NAME; it must be at top level, in "
                "Python, and inside the EVOLVE-BLOCK markers if there are any.",
            )


def _with_people(found: Resolved) -> tuple[Resolved, list[str]]:
    """Gives a run that asks a person one folder for all workers, and time."""
    settings = found.settings
    if not any(model.provider is Provider.HUMAN for model in settings.llm.every_model):
        return found, []
    folder = Path(settings.llm.answers).absolute()
    changed: dict[str, Any] = {"llm": settings.llm.model_copy(update={"answers": str(folder)})}
    if "queue.patience_seconds" not in found.sources:
        changed["queue"] = settings.queue.model_copy(update={"patience_seconds": A_DAY_SECONDS})
    return replace(found, settings=settings.model_copy(update=changed)), [
        f"this run asks a person: its prompts are in {folder}, `evoq answer RUN` shows and answers "
        f"them."
    ]


def _with_keys(found: Resolved) -> tuple[Resolved, list[str]]:
    """Drops models that only the problem's configuration names and no key is there for.

    Raises:
      UsageError: A model that somebody asked for here lacks its key.
    """
    lacking, variables = [], dict[str, None]()
    for model in found.settings.llm.every_model:
        spec = model_spec(model, os.environ.get)
        if not spec.api_key and urlsplit(spec.base_url).scheme == "https":
            lacking.append(spec)
            variables[spec.key_variable] = None
    if not lacking:
        return found, []
    names = ", ".join(dict.fromkeys(f"{spec.name} at {spec.base_url}" for spec in lacking))
    keys = ", ".join(variables)
    asking = [name for name in found.sources if name.rpartition(".")[2] in ("model", "models")]
    asking += [name for name in found.sources if name.startswith("llm.roles")]
    if {found.sources[name] for name in asking} == {PROBLEMS_OWN}:
        return without_models(found), [
            f"no key is set ({keys}) for {names}, which the problem's configuration names: this "
            f"run asks no model and uses tune and mutate instead."
        ]
    if any(spec.preset.needs_key for spec in lacking):
        raise UsageError(
            f"no key is set for {names}",
            where=keys,
            remedy="Set the variable, or llm.base_url for an endpoint that needs none.",
        )
    return found, []


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            "cannot be read",
            where=f"--config {path}",
            value=str(error),
            remedy="Check the path; it must be text in UTF-8.",
        ) from error
