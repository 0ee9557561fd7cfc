"""What a person said about a run, and where: the command line, the environment, a file.

Pure: texts and mappings in, values out.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import yaml
from pydantic import BaseModel

from app.adapters.problems.openevolve.keys import KEYS
from app.config.environment import PREFIX, misspelt
from app.config.models import ModelSettings
from app.config.settings import RunSettings
from app.domain.problem import Limits
from app.domain.prompting.rules import PromptRules

ADDRESSES = ("database_url", "redis_url", "home")
"""Settings of the connection, not of the run."""

_SECTIONS: dict[str, type[BaseModel] | None] = {
    name: field.annotation
    if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
    else None
    for name, field in RunSettings.model_fields.items()
}
"""Section to its model; None for a section that takes any name."""

_OPENEVOLVE = {key.name.split(".")[0] for key in KEYS}


class UsageError(ValueError):
    """Wrong usage: what was said cannot be meant.

    Attributes:
      what: What is wrong, in one clause.
      where: The option, variable or file that says it.
      value: The offending value as written; "" where there is none to show.
      remedy: What to do about it, in one sentence.
    """

    def __init__(self, what: str, *, where: str, value: str = "", remedy: str) -> None:
        self.what, self.where, self.value, self.remedy = what, where, value, remedy
        shown = f" ({value})" if value else ""
        super().__init__(f"{where}: {what}{shown}. {remedy}")


@dataclass(frozen=True, slots=True)
class Choices:
    """What one source says, by dotted key.

    Attributes:
      source: How messages call it: `--set`, `the environment`, a file's name, `the problem`.
    """

    source: str
    values: Mapping[str, Any] = field(default_factory=dict)


def assigned(assignments: Iterable[str]) -> Choices:
    """Returns what `--set key=value` options say; values are YAML scalars or JSON.

    Raises:
      UsageError: There is no `=`, the key is unknown, or the value is not YAML.
    """
    values: dict[str, Any] = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(
                "no value", where=f"--set {text}", remedy="Write --set key=value, without spaces."
            )
        plain = name.strip().startswith("prompts.templates.")  # braces are a template's, not YAML's
        read = value if plain else _scalar(value, f"--set {name}")
        values.update(_entries(name.strip(), read, "--set"))
    return Choices("--set", values)


def surrounding(environment: Mapping[str, str]) -> Choices:
    """Returns what variables such as `EVOQ_SEARCH__ISLANDS` and `EVOQ_DATABASE_URL` say.

    Raises:
      UsageError: A variable of a known section names no setting of it, or a name is misspelt.
    """
    for variable, meant in misspelt(name for name, text in environment.items() if text).items():
        raise UsageError(
            "there is no such variable", where=variable, remedy=f"The closest known one is {meant}."
        )
    values: dict[str, Any] = {}
    for variable, text in sorted(environment.items()):
        if not variable.startswith(PREFIX) or text == "":
            continue
        name = variable.removeprefix(PREFIX).lower().replace("__", ".")
        if name in ADDRESSES:
            values[name] = text
        elif "__" in variable and name.split(".")[0] in _SECTIONS:
            values.update(_entries(name, _scalar(text, variable), variable))
    return Choices("the environment", values)


def is_openevolve(loaded: Any) -> bool:
    """Returns whether a parsed configuration file is OpenEvolve's and not ours."""
    if not isinstance(loaded, dict):
        return False
    names = {str(name) for name in loaded} - {"llm"}
    if names:
        return bool(names & _OPENEVOLVE) and not names & {*_SECTIONS, *ADDRESSES}
    llm = loaded.get("llm")
    if not isinstance(llm, dict):
        return False
    theirs = {key.name.split(".")[1] for key in KEYS if key.name.startswith("llm.")}
    return not set(llm) <= set(ModelSettings.model_fields) and bool(set(llm) & theirs)


def written(text: str, where: str) -> Choices | None:
    """Returns what a configuration file of our own shape says; None when it is OpenEvolve's.

    Raises:
      UsageError: The file is not YAML, not a mapping, or names an unknown setting.
    """
    loaded = _scalar(text, where) if text.strip() else {}
    if is_openevolve(loaded):
        return None
    if not isinstance(loaded, dict):
        raise UsageError(
            "the file is not a mapping",
            where=where,
            value=repr(loaded)[:80],
            remedy="Write sections such as `search:` with settings below them.",
        )
    values: dict[str, Any] = {}
    for name, value in loaded.items():
        values.update(_entries(str(name), value, where))
    return Choices(where, values)


def addresses(layers: Sequence[Choices]) -> dict[str, str]:
    """Returns the connection's settings, earlier layers winning."""
    found: dict[str, str] = {}
    for layer in reversed(layers):
        found |= {
            name: str(layer.values[name])
            for name in ADDRESSES
            if layer.values.get(name) is not None
        }
    return found


_OF_PROBLEM = (
    "problem.data", "problem.environment", "problem.allow_imports", "problem.deny_imports",
)  # fmt: skip


def problem_options(layers: Sequence[Choices]) -> dict[str, Any]:
    """Returns what shapes the problem itself and must be known before it is loaded."""
    limits = (f"sandbox.{limit.name}" for limit in fields(Limits))
    shaping = ("sandbox.mode", "sandbox.image", *limits)
    variables = "problem.environment."
    found: dict[str, Any] = {}
    for name, value in ((n, v) for layer in reversed(layers) for n, v in layer.values.items()):
        if name.startswith(variables):
            told = found.get("problem.environment")
            kept = dict(told) if isinstance(told, dict) else {}
            found["problem.environment"] = {**kept, name.removeprefix(variables): str(value)}
        elif name in shaping or name.startswith("problem."):
            found[name] = value
    return found


def closest(name: str, known: Sequence[str]) -> str:
    """Returns the known key most like `name`; the same last part in another section wins."""
    last = name.rsplit(".", 1)[-1]
    moved = [key for key in known if key.rsplit(".", 1)[-1] == last]
    return moved[0] if moved else difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]


def known_keys() -> list[str]:
    """Returns every key that `--set` takes, but for those of the open sections."""
    keys = [
        f"{section}.{name}"
        for section, model in _SECTIONS.items()
        if model
        for name in model.model_fields
    ]
    prompts = [f"prompts.{name}" for name in (*PromptRules.names(), "template_dir")]
    return [*keys, *prompts, *_OF_PROBLEM, *ADDRESSES]


def known_setting(section: str, rest: str) -> bool:
    """Returns whether a section has a setting of that name, or takes any."""
    if section not in _SECTIONS:
        return False
    model = _SECTIONS[section]
    if section == "strategy":  # checked once the recipe is known
        return bool(rest) and "." not in rest
    if section == "problem":
        return f"problem.{rest.split('.')[0]}" in _OF_PROBLEM
    if section == "prompts":
        name, _, deeper = rest.partition(".")
        mapping = name in ("templates", "template_variations")
        return name in (*PromptRules.names(), "template_dir") and (mapping or not deeper)
    name, _, deeper = rest.partition(".")
    if model is None or name not in model.model_fields:
        return False
    return not deeper or "dict" in str(model.model_fields[name].annotation)


def _entries(name: str, value: Any, where: str) -> dict[str, Any]:
    """Returns `name` and its value by dotted key: a section's own mapping is taken apart."""
    section, _, rest = name.partition(".")
    if name in ADDRESSES:
        return {name: value}
    if section in _SECTIONS and not rest:
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise UsageError(
                f"`{section}` is a section",
                where=where,
                value=repr(value)[:80],
                remedy=f"Name a setting of it, such as {section}.KEY.",
            )
        found: dict[str, Any] = {}
        for key, inner in value.items():
            found.update(_entries(f"{section}.{key}", inner, where))
        return found
    if name == "prompts.templates" and isinstance(value, dict):  # each replaces one, not all
        return {f"{name}.{template}": text for template, text in value.items()}
    if known_setting(section, rest):
        return {name: value}
    raise UsageError(
        f"unknown setting `{name}`",
        where=where,
        remedy=f"The closest known one is `{closest(name, known_keys())}`.",
    )


def _scalar(text: str, where: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UsageError(
            "not valid YAML or JSON",
            where=where,
            value=str(error).splitlines()[0][:120],
            remedy="Correct the syntax; quote texts that hold `: ` or begin with a bracket.",
        ) from error
