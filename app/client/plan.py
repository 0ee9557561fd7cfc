"""From the options of a command to a problem and to everything a run is created from."""

import itertools
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from app import bootstrap
from app.adapters.model.providers.spec import model_spec
from app.adapters.problems import configures_problem, replaced_keys
from app.adapters.tuning.cma import ask
from app.client.local_model import with_local_model
from app.config.checks import (
    axes_of,
    require_bounds,
    require_gates,
    require_mix,
    require_nesting,
    require_owned_by_run,
    require_players,
    require_refining,
    with_asked_roles,
    without_judges,
    without_models,
)
from app.config.layers import (
    ENVIRONMENT,
    Choices,
    UsageError,
    from_assignments,
    from_environment,
    from_file,
    is_experiment,
    problem_options,
)
from app.config.lite import Experiment
from app.config.mix import one_function, operators, require_function
from app.config.models import ModelSettings, Provider
from app.config.resolve import PROBLEMS_OWN, Resolved, resolved
from app.config.rules import inside_settings, islands_of, rules_of
from app.config.settings import RunSettings
from app.domain.operator import Offspring
from app.domain.operators import operators as every_operator
from app.domain.operators.complete import COMPLETE
from app.domain.operators.diff import DIFF
from app.domain.operators.mend import MEND
from app.domain.operators.search import SEARCH
from app.domain.problem import Axis, Problem
from app.domain.prompting.templates import TEMPLATES
from app.domain.prompting.tokens import estimated
from app.domain.search.back_pressure import SMALL, InFlightLimits
from app.domain.search.budget import Budget
from app.domain.source.regions import bodies
from app.engine.briefing import own_children, unmeasured_brief
from app.ports.records import NewRun

COMMAND_LINE = "the command line"
_YAML = (".yaml", ".yml")
_EXAMPLES = Path(__file__).parents[2] / "examples"
A_DAY_SECONDS = 86_400.0
_MODEL_REMEDY = (
    "Name a model, as --set llm.model=NAME; without one only Python programs change: their "
    "numbers, expressions, texts and lists inside the EVOLVE-BLOCK markers."
)
_OPERATOR_REMEDY = (
    "Leave search.operators out, or give one that asks the model a weight, as "
    "--set 'search.operators={rewrite: 1}'."
)
_TRIED = 3
"""Proposals tried on each seed; one proposal of `mutate` makes 30 attempts."""
TEMPLATE_DIR = "prompts.template_dir"
_TEMPLATE_SUFFIX = ".txt"


@dataclass(frozen=True, slots=True)
class SettingLayers:
    """Settings of the command line, the environment and --config; earlier layers win.

    Attributes:
      config: An OpenEvolve config.yaml given with --config; None where there is none.
    """

    choices: tuple[Choices, ...]
    config: Path | None = None

    @property
    def experiment(self) -> Experiment:
        """What --config says beside settings; nothing where it is no file of FunSearch-Lite's."""
        return self.choices[-1].experiment or Experiment()


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


def named_problem(problem: Sequence[str], config: str | None) -> tuple[list[Path], str | None]:
    """Returns the paths of the problem and --config, from the arguments of a command.

    A configuration of FunSearch-Lite in the place of the problem is --config, and its `task_name`
    is the folder of the problem: beside the file, under the present folder, or a shipped example.

    Raises:
      UsageError: There is no such folder.
    """
    paths = [Path(path) for path in problem]
    if config is not None or len(paths) != 1 or paths[0].suffix not in _YAML:
        return paths, config
    file = paths[0]
    if not file.is_file():
        return paths, config
    text = _text(file, "cannot be read", str(file), "Check the path; it must be text in UTF-8.")
    if not is_experiment(text):
        return paths, config
    read = from_file(text, str(file), foreign=configures_problem)
    task = read.experiment.task if read is not None and read.experiment is not None else ""
    around = file.absolute().parent
    places = [around / task, Path(task), Path("examples", task), _EXAMPLES / task]
    if around.name == task:
        places.insert(0, around)
    found = next((place for place in places if task and place.is_dir()), None)
    if found is None:
        raise UsageError(
            "there is no folder of that name beside the file, here, in examples/ or among the "
            "shipped examples",
            where=f"{file}: task_name",
            value=task or "none",
            remedy=f"Name the problem: evoq run PROBLEM --config {file}.",
        )
    return [found], str(file)


def read_layers(
    assignments: Sequence[str] | None,
    config: str | None,
    options: Mapping[str, Any] = {},
) -> SettingLayers:
    """Reads `--set`, the environment and `--config`.

    Args:
      assignments: The values of `--set`.
      config: The value of `--config`.
      options: Settings that have options of their own; None where an option was not given.

    Raises:
      UsageError: A setting is unknown, a file cannot be read, or the model is `auto` and no server
        of this machine offers one.
    """
    given = {name: value for name, value in options.items() if value is not None}
    line = Choices(COMMAND_LINE, {**from_assignments(assignments or ()).values, **given})
    choices = [with_templates(layer, Path()) for layer in (line, from_environment(os.environ))]
    if not config:
        return SettingLayers(tuple(with_local_model(choices)))
    path = Path(config)
    remedy = "Check the path; it must be text in UTF-8."
    text = _text(path, "cannot be read", f"--config {path}", remedy)
    file = from_file(text, str(path), foreign=configures_problem)
    if file is None:
        return SettingLayers(tuple(with_local_model(choices)), path)
    return SettingLayers(tuple(with_local_model([*choices, with_templates(file, path.parent)])))


def with_templates(layer: Choices, around: Path) -> Choices:
    """Returns a layer with the templates of the folder that its `prompts.template_dir` names.

    A template that the same layer sets by name wins over the folder's file.

    Args:
      layer: Settings of one source.
      around: The folder that a relative path starts from.

    Raises:
      UsageError: There is no such folder, it holds no template, or a file is not text.
    """
    if TEMPLATE_DIR not in layer.values:
        return layer
    others = {name: value for name, value in layer.values.items() if name != TEMPLATE_DIR}
    named = str(layer.values[TEMPLATE_DIR])
    folder, where = around / named, f"{TEMPLATE_DIR} ({layer.source})"
    if not folder.is_dir():
        raise UsageError(
            "not a folder",
            where=where,
            value=named,
            remedy="Name a folder that holds templates such as diff_user.txt.",
        )
    what, remedy = "a template cannot be read", "It must be text in UTF-8."
    templates = {
        path.stem: _text(path, what, str(path), remedy)
        for path in sorted(folder.glob(f"*{_TEMPLATE_SUFFIX}"))
    }
    if not set(templates) & set(TEMPLATES):
        known = ", ".join(sorted(TEMPLATES))
        raise UsageError(
            "the folder holds no template",
            where=where,
            value=named,
            remedy=f"Name files {known}, each with the ending {_TEMPLATE_SUFFIX}.",
        )
    by_name = {f"prompts.templates.{name}": text for name, text in templates.items()}
    return Choices(layer.source, {**by_name, **others})


def load_problem(paths: Sequence[Path], layers: SettingLayers, *, strict: bool = False) -> Problem:
    """Loads the problem that the paths and the settings describe.

    Raises:
      UsageError: A path does not exist, or a setting is wrong.
      ProblemError: The problem cannot be loaded.
    """
    for path in paths:
        if not path.exists():
            raise UsageError(
                "no such file or folder", where=str(path), remedy="Check the spelling of the path."
            )
    # Wrong settings are refused here, before they shape the problem.
    resolved(layers.choices, {}, complete=False)
    problem = bootstrap.load_problem(
        paths, config=layers.config, strict=strict, options=problem_options(layers.choices)
    )
    if layers.config is None or not (keys := replaced_keys(paths, layers.config)):
        return problem
    notice = (
        f"--config {layers.config} takes the place of the folder's own configuration, of which "
    )
    notice += f"these keys have no effect: {', '.join(keys)}."
    return replace(problem, notices=(*problem.notices, notice))


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
        problem, layers = _with_servers_of_this_machine(problem, layers)
    resolution = resolved(layers.choices, problem.suggestions, problem.suggested_by)
    notices = _notices(problem, layers, resolution)
    if no_model:
        resolution = without_models(resolution)
    if not local:
        notices += require_owned_by_run(layers.choices)
    adjustments = (_without_keyless_models, without_judges, _with_human_models)
    for adjust in adjustments if local else adjustments[1:]:
        resolution, added = adjust(resolution)
        notices += added
    resolution = replace(resolution, settings=_without_operators_of_models(resolution))
    mix = _mix(resolution.settings, problem)
    resolution, inside = _with_operators_inside(resolution, problem)
    known, used = every_operator(ask), {**mix, **inside}
    asks = any(known[name].asks_model for name in used)
    resolution, added = with_asked_roles(resolution, [known[name] for name in used])
    notices += added
    settings = resolution.settings
    notices += _elsewhere(settings.llm) if asks or settings.llm.feedback else []
    if COMPLETE.name in used:
        settings = _with_function(problem, settings)
    _require_possible(problem, settings, resolution.sources, used, asks=asks)
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


def _with_servers_of_this_machine(
    problem: Problem, layers: SettingLayers
) -> tuple[Problem, SettingLayers]:
    """Returns both with the model of a server of this machine in the place of `auto`."""
    own = Choices(PROBLEMS_OWN, problem.suggestions, problem.notices)
    *given, own = with_local_model([*layers.choices, own])
    problem = replace(problem, suggestions=own.values, notices=own.notices)
    return problem, replace(layers, choices=tuple(given))


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


def _require_possible(
    problem: Problem,
    settings: RunSettings,
    sources: Mapping[str, str],
    used: Collection[str],
    *,
    asks: bool,
) -> None:
    """Raises `UsageError` where a run of these settings and operators makes no sense."""
    require_mix(settings, asks=asks)
    if asks or settings.llm.feedback:
        shortest = min(estimated(seed.source) for seed in problem.seeds)
        require_bounds(settings.budget, settings.llm, shortest if asks else 0)
        require_refining(settings)
    require_gates(settings, problem)
    require_players(settings, problem)
    require_nesting(settings, sources)
    if nested := inside_settings(settings):
        require_players(nested, problem)
    if COMPLETE.name in used:
        require_function(problem, settings.prompts.function)
    _require_lines(problem, settings, used)
    if reason := _unchangeable(problem, settings):
        raise UsageError(
            f"no proposal could change the program: {reason}",
            where="search.operators",
            value=", ".join(sorted(used)),
            remedy=_remedy_of_unchangeable(settings),
        )


def _with_function(problem: Problem, settings: RunSettings) -> RunSettings:
    """Returns settings that name the function that evolves.

    A child that adds a function beside it no longer says which one evolves.
    """
    if name := one_function(problem, settings.prompts.function):
        prompts = replace(settings.prompts, function=name)
        return settings.model_copy(update={"prompts": prompts})
    return settings


def _overruled_wish(mix: Mapping[str, float]) -> str:
    wished = max(mix, key=lambda name: mix[name])
    return (
        f"the problem asks for `{wished}`: the run begins with it, and asks in other forms where "
        f"these yield more children that run; --set 'search.operators={{{wished}: 1}}' keeps it"
    )


@dataclass(frozen=True, slots=True)
class Unchangeable:
    """Why no proposal of a run could change its program, and what lets one."""

    reason: str
    remedy: str


def unchangeable(problem: Problem, layers: SettingLayers) -> Unchangeable | None:
    """Returns why no proposal of a run could change its program; None if one could.

    Raises:
      UsageError: As `plan_run`.
    """
    resolution = resolved(layers.choices, problem.suggestions, problem.suggested_by)
    resolution, _ = _without_keyless_models(resolution)
    settings = _without_operators_of_models(resolution)
    reason = _unchangeable(problem, settings)
    return Unchangeable(reason, _remedy_of_unchangeable(settings)) if reason else None


def _remedy_of_unchangeable(settings: RunSettings) -> str:
    return _OPERATOR_REMEDY if settings.llm.mix else _MODEL_REMEDY


def _without_operators_of_models(resolution: Resolved) -> RunSettings:
    """Returns the settings without operators that only the problem names, where no model is."""
    settings = resolution.settings
    if resolution.sources.get("search.operators") != PROBLEMS_OWN or settings.llm.mix:
        return settings
    search = replace(settings.search, operators=None)
    return settings.model_copy(update={"search": search})


def _mix(settings: RunSettings, problem: Problem) -> dict[str, float]:
    return operators(settings, problem, every_operator(ask))


def _with_operators_inside(
    resolution: Resolved, problem: Problem
) -> tuple[Resolved, Mapping[str, float]]:
    """Returns the settings with the operators of the runs inside, stored as they take effect."""
    inside = inside_settings(resolution.settings)
    if inside is None:
        return resolution, {}
    mix = _mix(inside, problem)
    nested = replace(resolution.settings.nested, operators=mix)
    settings = resolution.settings.model_copy(update={"nested": nested})
    return replace(resolution, settings=settings), mix


def _unchangeable(problem: Problem, settings: RunSettings) -> str:
    """Tries each operator on each seed until a child is made, as in a run's first proposals."""
    known = every_operator(ask)
    inside = inside_settings(settings)
    mix = {**_mix(settings, problem), **(_mix(inside, problem) if inside else {})}
    mix.pop(SEARCH.name, None)
    # This order tries `mutate` before `tune`.
    mixed = [known[name] for name in sorted(mix)]
    if any(operator.asks_model for operator in mixed):
        return ""
    rules = rules_of(settings.search.strategy, settings.model_dump(mode="json"))
    reasons: dict[str, None] = {}
    for operator, seed in itertools.product(mixed, problem.seeds):
        for attempt in range(_TRIED):
            [child] = own_children(operator, unmeasured_brief(problem, rules, attempt, seed, ()))
            if isinstance(child, Offspring):
                return ""
            reasons[child.detail] = None
    return " ".join(reasons)


def _require_lines(problem: Problem, settings: RunSettings, used: Collection[str]) -> None:
    """Raises unless edits find a line that may change, where nothing but edits is asked for.

    Raises:
      UsageError: Every EVOLVE-BLOCK region is blank, and only `diff` and `mend` ask a model.
    """
    enforced = settings.search.enforce_blocks
    enforced = problem.edit.enforce_blocks if enforced is None else enforced
    if not enforced or not {*used} <= {DIFF.name, MEND.name}:
        return
    if any(body.strip() for seed in problem.seeds for body in bodies(seed.source)):
        return
    raise UsageError(
        "every EVOLVE-BLOCK region is empty, and an edit has no line to search for",
        where="search.operators",
        value=", ".join(sorted(used)),
        remedy="Put lines between the markers, or use an operator that writes the program, as "
        "--set 'search.operators={rewrite: 1}'.",
    )


def _with_human_models(resolution: Resolved) -> tuple[Resolved, list[str]]:
    """Gives a run that asks a person an absolute folder for its prompts, and a day's patience."""
    settings = resolution.settings
    if not any(model.provider is Provider.HUMAN for model in settings.llm.every_model):
        return resolution, []
    folder = Path(settings.llm.answers).absolute()
    changes: dict[str, Any] = {"llm": replace(settings.llm, answers=str(folder))}
    if "queue.patience_seconds" not in resolution.sources:
        changes["queue"] = replace(settings.queue, patience_seconds=A_DAY_SECONDS)
    return replace(resolution, settings=settings.model_copy(update=changes)), [
        f"this run asks a person: its prompts are in {folder}, `evoq answer RUN` shows and answers "
        f"them."
    ]


def _without_keyless_models(resolution: Resolved) -> tuple[Resolved, list[str]]:
    """Drops models that only the problem's configuration names and that lack their key.

    Raises:
      UsageError: A model that the command line, the environment or --config names lacks its key.
    """
    specs = [model_spec(model, os.environ.get) for model in resolution.settings.llm.every_model]
    keyless = [s for s in specs if not s.api_key and urlsplit(s.base_url).scheme == "https"]
    if not keyless:
        return resolution, []
    names = ", ".join(dict.fromkeys(f"{spec.name} at {spec.base_url}" for spec in keyless))
    keys = ", ".join(dict.fromkeys(spec.key_variable for spec in keyless))
    naming = [name for name in resolution.sources if name.rpartition(".")[2] in ("model", "models")]
    naming += [name for name in resolution.sources if name.startswith("llm.roles")]
    if {resolution.sources[name] for name in naming} == {PROBLEMS_OWN}:
        return without_models(resolution), [
            f"no key is set ({keys}) for {names}, which the problem's configuration names: this "
            f"run asks no model and uses tune and mutate instead."
        ]
    if any(spec.preset.needs_key for spec in keyless):
        raise UsageError(
            f"no key is set for {names}",
            where=keys,
            remedy=f"Set the variable, {another_endpoint(resolution.settings.llm)}.",
        )
    return resolution, []


def another_endpoint(llm: ModelSettings) -> str:
    """Returns the words on how to ask an endpoint without a key, by what is set already."""
    for model, address in llm.with_another_endpoint:
        return (
            f"or leave out the provider {model.provider} of {model.name}, which then is asked at "
            f"{address}, or give it a base_url of its own"
        )
    if llm.base_url is None:
        return "or llm.base_url for an endpoint that needs none"
    return "or another address in llm.base_url, of an endpoint that needs none"


def _elsewhere(llm: ModelSettings) -> list[str]:
    """Returns a sentence for each model that does not inherit the address that is set for all."""
    without_endpoint = (Provider.HUMAN, Provider.REPLAY)
    return [
        f"{model.name} names the provider {model.provider}, and is asked at "
        f"{model_spec(model, os.environ.get).base_url}, not at {address}: a model with a provider "
        f"inherits no address and no key"
        for model, address in llm.with_another_endpoint
        if model.provider not in without_endpoint
    ]


def _text(path: Path, what: str, where: str, remedy: str) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(what, where=where, value=str(error), remedy=remedy) from error
