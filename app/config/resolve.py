"""From what was said in several places to the settings of one run.

Precedence: the command line, the environment, the configuration file, the problem's own
suggestions, the defaults.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from app.adapters.problems.openevolve.keys import KEYS
from app.config.layers import ADDRESSES, Choices, UsageError, known_setting
from app.config.models import ModelChoice
from app.config.recipes import parameter_names, recipe, with_parameters
from app.config.settings import RunSettings, SearchSettings
from app.domain.operator import Role
from app.domain.prompting.rules import PromptRules
from app.domain.prompting.templates import TEMPLATES
from app.domain.search.back_pressure import Caps
from app.domain.secrets import redacted_values

WITH_A_MODEL = {"diff": 0.5, "rewrite": 0.5}
WITHOUT_A_MODEL = {"tune": 0.75, "mutate": 0.25}

FEW = 8
"""In flight in either stage on one machine without a model, where the settings do not say."""

PROBLEMS_OWN = "the problem's configuration"

_MODELS, _ROLES = ("llm.model", "llm.models"), "llm.roles."
"""Who names models here means none that the problem names for a role."""

_REPLACES = {
    "model": ("models",),
    "models": ("model",),
    "provider": ("base_url", "api_key_variable"),
}
"""Settings of `llm` and of its roles: who gives one means no more what was given before it."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """The settings of a run.

    Attributes:
      notices: What was read and left without effect, one sentence each.
      sources: Who set each key that is not a default.
    """

    settings: RunSettings
    notices: tuple[str, ...]
    sources: Mapping[str, str]


def resolved(layers: Sequence[Choices], suggestions: Mapping[str, Any]) -> Resolved:
    """Returns the settings of a run.

    Args:
      layers: The command line, the environment, the file: earlier ones win.
      suggestions: What the problem's own configuration asks for, by dotted key; what is no setting
        of ours becomes a notice.

    Raises:
      UsageError: A value is of the wrong kind or out of range.
    """
    asked, notices = _known_suggestions(suggestions)
    if any(name in layer.values for layer in layers for name in _MODELS):
        asked = {name: value for name, value in asked.items() if not name.startswith(_ROLES)}
    merged: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for layer in (Choices(PROBLEMS_OWN, asked), *reversed(layers)):
        for name in layer.values:
            _make_room(merged, name)
        for name, value in layer.values.items():
            if name in ADDRESSES:
                continue
            _put(merged, name.split("."), value)
            sources[name] = layer.source
    try:
        settings = RunSettings.model_validate(merged)
    except ValidationError as error:
        raise _invalid(error, sources) from error
    _require_recipe(settings, sources)
    notices += _prompts(settings.prompts, sources)
    return Resolved(settings, tuple(notices), sources)


def _require_recipe(settings: RunSettings, sources: Mapping[str, str]) -> None:
    """Makes sure that the recipe is known and takes the parameters it is given.

    Raises:
      UsageError: There is no such recipe, or one of its parameters is unknown or out of range.
    """
    name, given = settings.search.strategy, settings.strategy
    try:
        found = recipe(name)
    except (LookupError, ValueError) as error:
        raise UsageError(
            str(error.args[0]),
            where=sources.get("search.strategy", "search.strategy"),
            remedy="Correct the name, or install the package that provides the recipe.",
        ) from error
    known = [one for one in parameter_names(found) if one not in SearchSettings.model_fields]
    unknown = next((one for one in given if one not in known), None)
    if unknown is not None:
        raise _unknown_parameter(name, unknown, known, sources)
    try:
        with_parameters(found, settings.search.model_dump(), given)
    except ValidationError as error:
        raise _invalid(error, sources, "strategy.") from error


def _unknown_parameter(
    recipe: str, name: str, known: Sequence[str], sources: Mapping[str, str]
) -> UsageError:
    if name in SearchSettings.model_fields:
        remedy = f"It is the setting `search.{name}`."
    elif known:
        [nearest] = get_close_matches(name, known, n=1, cutoff=0.0)
        remedy = f"The closest known one is `strategy.{nearest}`."
    else:
        remedy = "Leave it out: the recipe has no parameters of its own."
    return UsageError(
        f"the recipe {recipe!r} has no parameter `strategy.{name}`",
        where=sources.get(f"strategy.{name}", "strategy"),
        remedy=remedy,
    )


def _prompts(told: Mapping[str, Any], sources: Mapping[str, str]) -> list[str]:
    """Checks the prompt templates and knobs; returns what is without effect among them.

    Raises:
      UsageError: One of them is of the wrong kind, or refers to what it is not given.
    """
    try:
        rules = PromptRules.of(told)
    except ValueError as error:
        where = {source for name, source in sources.items() if name.startswith("prompts.")}
        raise UsageError(
            str(error),
            where=f"prompts ({', '.join(sorted(where))})",
            remedy="`docs/prompts.md` has every template and setting; `evoq prompt` shows them.",
        ) from error
    near = {
        name: get_close_matches(name, list(TEMPLATES), n=1, cutoff=0.8)
        for name in sorted(rules.templates)
        if name not in TEMPLATES
    }
    return [
        f"`prompts.templates.{name}`: read but without effect here, because no prompt has a "
        f"template of that name; the closest is `{names[0]}`."
        for name, names in near.items()
        if names
    ]


def without_models(found: Resolved) -> Resolved:
    """Returns the settings with no language model named."""
    nobody: dict[str, Any] = {"models": [], "model": None, "roles": {}, "feedback": False}
    llm = found.settings.llm.model_copy(update=nobody)
    return replace(found, settings=found.settings.model_copy(update={"llm": llm}))


def operators(
    settings: RunSettings, asking: Iterable[str], *, known: Iterable[str]
) -> dict[str, float]:
    """Returns the operator mix of a run: what the settings say, else what suits the models.

    Args:
      settings: The run's.
      asking: The operators that ask a model.
      known: Every operator a run may name.

    Raises:
      UsageError: An operator is unknown, has no weight, or asks a model where there is none.
    """
    told = settings.search.operators
    if told is None:
        return dict(WITH_A_MODEL if settings.llm.mix else WITHOUT_A_MODEL)
    names = sorted(known)
    for name, weight in told.items():
        if name not in names:
            raise UsageError(
                f"unknown operator `{name}`",
                where="search.operators",
                remedy=f"Choose among {', '.join(names)}.",
            )
        if weight < 0:
            raise UsageError(
                f"the weight of `{name}` is below 0",
                where="search.operators",
                value=f"{weight:g}",
                remedy="Give weights of 0 or more.",
            )
    mix = {name: weight for name, weight in told.items() if weight > 0}
    if not mix:
        raise UsageError(
            "no operator has a weight",
            where="search.operators",
            remedy="Give one of them a weight above 0.",
        )
    lacking = sorted(set(asking) & set(mix)) if not settings.llm.mix else []
    if lacking:
        raise UsageError(
            f"{' and '.join(lacking)} {'asks' if len(lacking) == 1 else 'ask'} a language model, "
            f"and none is configured",
            where="search.operators",
            remedy="Name a model, as --set llm.model=NAME, or use tune and mutate, which ask none.",
        )
    return mix


def without_judges(found: Resolved) -> tuple[Resolved, list[str]]:
    """Drops judges that the problem's configuration asks for and no model is there for.

    Raises:
      UsageError: Somebody asked for judges here, and there is no model.
    """
    llm = found.settings.llm
    if not llm.feedback or llm.asked(Role.JUDGE):
        return found, []
    if found.sources.get("llm.feedback") != PROBLEMS_OWN:
        raise UsageError(
            "judges are asked for, and no language model is configured",
            where="llm.feedback",
            remedy="Name a model, as --set llm.model=NAME or --set llm.roles.judge.model=NAME.",
        )
    llm = llm.model_copy(update={"feedback": False})
    return replace(found, settings=found.settings.model_copy(update={"llm": llm})), [
        "`evaluator.use_llm_feedback`: without effect in this run, because no language model is "
        "configured."
    ]


def caps(settings: RunSettings, *, local: bool) -> Caps:
    """Returns what is fixed of how much may be in flight; what is not is measured as the run goes.

    Without a model on one machine both are, and low: a proposal costs a processor from start to
    end, and each one learns from those before it.

    Args:
      settings: The run's.
      local: Whether this machine does all the work.
    """
    few = local and not settings.llm.mix
    suits = Caps(FEW, FEW) if few else Caps()
    queue = settings.queue
    return Caps(queue.generating or suits.generating, queue.evaluating or suits.evaluating)


def _known_suggestions(suggestions: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    asked: dict[str, Any] = {}
    notices = []
    for name, value in suggestions.items():
        section, _, rest = name.partition(".")
        if not known_setting(section, rest):
            notices.append(f"`{name}`: read but without effect here, because no setting takes it.")
            continue
        if name.startswith("llm.") and name.endswith(".models"):
            value, dropped = _known_models(value)
            notices += [
                f"`{name}.{key}`: read but without effect here, because a model has no such "
                f"setting."
                for key in dropped
            ]
        asked[name] = value
    return asked, notices


def _known_models(models: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    kept = [{k: v for k, v in model.items() if k in ModelChoice.model_fields} for model in models]
    dropped = {key for model in models for key in model if key not in ModelChoice.model_fields}
    return kept, sorted(dropped)


def _put(tree: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Puts a value into nested mappings; what is not a mapping on the way is replaced."""
    for name in path[:-1]:
        inner = tree.get(name)
        tree[name] = dict(inner) if isinstance(inner, dict) else {}
        tree = tree[name]
    tree[path[-1]] = value


def _make_room(tree: dict[str, Any], name: str) -> None:
    """Takes away what an earlier layer said and `name` replaces."""
    section, _, last = name.rpartition(".")
    if section.split(".")[0] != "llm":
        return
    inner: Any = tree
    for part in section.split("."):
        inner = inner.get(part) if isinstance(inner, dict) else None
    if isinstance(inner, dict):
        for replaced in _REPLACES.get(last, ()):
            inner.pop(replaced, None)


def _invalid(error: ValidationError, sources: Mapping[str, str], section: str = "") -> UsageError:
    first = error.errors(include_url=False)[0]
    name = section + ".".join(str(part) for part in first["loc"])
    near = (f"{name}.", name)
    origin = next(
        (s for key, s in sources.items() if name.startswith(f"{key}.") or key.startswith(near)), ""
    )
    said = first["msg"].removeprefix("Value error, ")
    if origin == PROBLEMS_OWN:
        name = next((key.name for key in KEYS if key.setting == name), name)
    return UsageError(
        f"`{name}`: {said[0].lower()}{said[1:]}",
        where=origin or name,
        value=repr(redacted_values(first["input"]))[:120],
        remedy="Correct the value, or leave it out to have the default.",
    )
