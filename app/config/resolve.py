"""From the settings of several sources to the settings of one run.

Precedence: the command line, the environment, the configuration file, the problem's own
suggestions, the defaults.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches

from pydantic import ValidationError

from app.config.layers import ADDRESSES, TEMPLATE_FOLDER, Choices, UsageError, known_setting
from app.config.models import ModelChoice
from app.config.recipes import parameter_names, recipe, with_parameters
from app.config.rules import inside_settings
from app.config.section import fields_of
from app.config.settings import RunSettings, SearchSettings, stored_settings
from app.domain.prompting.templates import TEMPLATES
from app.domain.secrets import redacted_values

PROBLEMS_OWN = "the problem's configuration"

_MODELS, _ROLES = ("llm.model", "llm.models"), "llm.roles."
"""A source that names models replaces the models that the problem names for roles."""

_REPLACES = {
    "model": ("models",),
    "models": ("model",),
    "provider": ("base_url", "api_key_variable"),
}
"""Settings of `llm` and of its roles, each with those of earlier sources that it replaces."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """The settings of a run.

    Attributes:
      notices: What was read and left without effect, one sentence each.
      sources: The source of each key that is not a default.
    """

    settings: RunSettings
    notices: tuple[str, ...]
    sources: Mapping[str, str]


def resolved(
    layers: Sequence[Choices],
    suggestions: Mapping[str, object],
    suggested_by: Mapping[str, str] = {},
    *,
    complete: bool = True,
) -> Resolved:
    """Returns the settings of a run.

    Args:
      layers: The command line, the environment, the file: earlier ones win.
      suggestions: The settings that the problem's own configuration asks for, by dotted key; what
        is no setting of ours becomes a notice.
      suggested_by: Setting to the key of the problem's configuration that suggests it.
      complete: Whether all sources are known.  Otherwise the parameters of a recipe that none of
        them names are not checked.

    Raises:
      UsageError: A value is of the wrong kind or out of range.
    """
    suggested, notices = _known_suggestions(suggestions)
    if any(name in layer.values for layer in layers for name in _MODELS):
        suggested = {k: value for k, value in suggested.items() if not k.startswith(_ROLES)}
    merged: dict[str, object] = {}
    sources: dict[str, str] = {}
    for layer in (Choices(PROBLEMS_OWN, suggested), *reversed(layers)):
        own = {k: v for k, v in layer.values.items() if k not in (*ADDRESSES, TEMPLATE_FOLDER)}
        _merge(merged, own)
        sources |= dict.fromkeys(own, layer.source)
    settings = _validated(merged, sources, suggested_by)
    if complete or "search.strategy" in sources:
        _require_recipe(settings, sources, "search.strategy", "strategy")
    inside = inside_settings(settings)
    if inside is not None and (complete or "nested.strategy" in sources):
        _require_recipe(inside, sources, "nested.strategy", "nested.parameters")
    notices += _misspelt_templates(settings.prompts.templates)
    return Resolved(settings, tuple(notices), sources)


def with_values(settings: Mapping[str, object], given: Choices) -> RunSettings:
    """Returns stored settings with other values, which replace as those of a later source do.

    Raises:
      UsageError: A value is of the wrong kind or out of range.
    """
    merged = stored_settings(settings).model_dump(mode="json")
    _merge(merged, given.values)
    return _validated(merged, dict.fromkeys(given.values, given.source))


def _validated(
    merged: Mapping[str, object],
    sources: Mapping[str, str],
    suggested_by: Mapping[str, str] = {},
) -> RunSettings:
    try:
        return RunSettings.model_validate(merged)
    except ValidationError as error:
        raise _invalid(error, sources, suggested_by=suggested_by) from error


def _require_recipe(
    settings: RunSettings, sources: Mapping[str, str], setting: str, section: str
) -> None:
    """Makes sure that the recipe is known and takes the parameters it is given.

    Args:
      settings: Those of the run that follows it.
      sources: As in `Resolved`.
      setting: The setting that names the recipe.
      section: The one of its parameters.

    Raises:
      UsageError: There is no such recipe, or one of its parameters is unknown or out of range.
    """
    name, given = settings.search.strategy, settings.strategy
    try:
        found = recipe(name)
    except (LookupError, ValueError) as error:
        raise UsageError(
            str(error.args[0]),
            where=sources.get(setting, setting),
            remedy="Correct the name, or install the package that provides the recipe.",
        ) from error
    known = [name for name in parameter_names(found) if name not in fields_of(SearchSettings)]
    unknown = next((parameter for parameter in given if parameter not in known), None)
    if unknown is not None:
        raise _unknown_parameter(name, unknown, known, sources, section)
    try:
        with_parameters(found, asdict(settings.search), given)
    except ValidationError as error:
        raise _invalid(error, sources, section=section) from error


def _unknown_parameter(
    recipe: str, name: str, known: Sequence[str], sources: Mapping[str, str], section: str
) -> UsageError:
    if name in fields_of(SearchSettings):
        remedy = f"It is the setting `search.{name}`."
    elif known:
        [nearest] = get_close_matches(name, known, n=1, cutoff=0.0)
        remedy = f"The closest known one is `{section}.{nearest}`."
    else:
        remedy = "Leave it out: the recipe has no parameters of its own."
    return UsageError(
        f"the recipe {recipe!r} has no parameter `{section}.{name}`",
        where=sources.get(f"{section}.{name}", section),
        remedy=remedy,
    )


def _misspelt_templates(templates: Iterable[str]) -> list[str]:
    """Returns a sentence for each template whose name is nearly that of a packaged one."""
    near = {
        name: get_close_matches(name, list(TEMPLATES), n=1, cutoff=0.8)
        for name in sorted(templates)
        if name not in TEMPLATES
    }
    return [
        f"`prompts.templates.{name}`: read but without effect here, because no prompt has a "
        f"template of that name; the closest is `{names[0]}`."
        for name, names in near.items()
        if names
    ]


def _known_suggestions(
    suggestions: Mapping[str, object],
) -> tuple[dict[str, object], list[str]]:
    known: dict[str, object] = {}
    notices = []
    for name, value in suggestions.items():
        section, _, rest = name.partition(".")
        if not known_setting(section, rest):
            notices.append(f"`{name}`: read but without effect here, because no setting takes it.")
            continue
        known[name] = value
        if name.startswith("llm.") and name.endswith(".models") and isinstance(value, list):
            keys = fields_of(ModelChoice)
            known[name] = [{k: v for k, v in model.items() if k in keys} for model in value]
            notices += [
                f"`{name}.{key}`: read but without effect here, because a model has no such "
                f"setting."
                for key in sorted({key for model in value for key in model} - {*keys})
            ]
    return known, notices


def _merge(tree: dict[str, object], values: Mapping[str, object]) -> None:
    """Puts the values of a source into the tree of those of earlier sources.

    Every replaced setting goes before a value comes, because a value may be one of them.
    """
    for name in values:
        section, _, last = name.rpartition(".")
        if name.startswith("llm."):
            inner = _section(tree, section)
            for replaced in _REPLACES.get(last, ()):
                inner.pop(replaced, None)
    for name, value in values.items():
        section, _, last = name.rpartition(".")
        _section(tree, section)[last] = value


def _section(tree: dict[str, object], path: str) -> dict[str, object]:
    """Returns the mapping at a dotted path; one takes the place of another kind of value."""
    for name in path.split("."):
        inner = tree.get(name)
        section = dict(inner) if isinstance(inner, dict) else {}
        tree[name] = section
        tree = section
    return tree


def _invalid(
    error: ValidationError,
    sources: Mapping[str, str],
    *,
    section: str = "",
    suggested_by: Mapping[str, str] = {},
) -> UsageError:
    """Returns the first fault that the validation found, with the sources of its setting."""
    fault = error.errors(include_url=False)[0]
    name = ".".join([section, *map(str, fault["loc"])] if section else map(str, fault["loc"]))
    origins = dict.fromkeys(
        source
        for key, source in sources.items()
        if key == name or name.startswith(f"{key}.") or key.startswith(f"{name}.")
    )
    message = fault["msg"].removeprefix("Value error, ")
    if PROBLEMS_OWN in origins:
        name = suggested_by.get(name, name)
    remedy = "Correct the value, or leave it out to have the default."
    # A fault of the whole section lies in the names that its templates refer to.
    if name == "prompts":
        return UsageError(
            message,
            where=f"prompts ({', '.join(sorted(origins))})",
            remedy="`docs/prompts.md` has every template and setting; `evoq prompt` shows them.",
        )
    # The message of a recipe's refusal names the parameter itself.
    if name in ("strategy", "nested.parameters"):
        return UsageError(f"`{name}.*`: {message}", where=", ".join(origins), remedy=remedy)
    return UsageError(
        f"`{name}`: {message[0].lower()}{message[1:]}",
        where=", ".join(origins) or name,
        value=repr(redacted_values(fault["input"]))[:120],
        remedy=remedy,
    )
