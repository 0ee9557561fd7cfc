"""The sources of a run's settings: the command line, the environment, a configuration file.

Texts and mappings in, values out; only `wrong_variables` reads the environment itself.
"""

import difflib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import yaml
from pydantic import ValidationError

from app.config import lite, yaml_values
from app.config.foreign_names import ForeignName, foreign_names_of, foreign_variables
from app.config.models import ModelSettings
from app.config.places import VARIABLES, places
from app.config.section import fields_of, variable_of
from app.config.settings import OF_PROCESSES, SECTIONS, SETTINGS, Settings
from app.domain.problem import Limits

PREFIX = "EVOQ_"
ENVIRONMENT = "the environment"
"""The source of the settings in variables."""
ADDRESSES = ("database_url", "database_session_url", "redis_url", "home")
"""Settings of the connection, not of the run."""

TEMPLATE_FOLDER = "prompts.template_dir"
"""Stands for the templates in a folder, which the reader of the folder puts in its place."""

_PROBLEM_OPTIONS = (
    "data", "mounts", "environment", "allow_imports", "deny_imports", "inputs", "scoring",
    "checkpoint",
)  # fmt: skip

_ALIKE = 0.85
"""Likeness of two variables, 0 to 1, from which on one is taken for a misspelling of the other."""

_NEAR = 0.7
"""Likeness of two settings from which on one is named as what may have been meant."""

_OTHER_VARIABLES = (
    "GENERATE_CONCURRENCY", "EVALUATE_CONCURRENCY", "TASK_EVENTS", "LOG_FORMAT", "HEARTBEAT_FILE",
    "IMAGE", "EXTRAS", "PROBLEM_DATA", "PROGRAM_SOURCE", "TEST_VLLM_MODEL",
)  # fmt: skip
"""Variables of Celery's configuration, the compose file, programs under test and our tests."""


_UNEXPECTED = "extra inputs are not permitted"
"""Text of an unknown setting of a section in a variable."""


class UsageError(ValueError):
    """Wrong usage: a command, a variable or a file with a value that cannot be used.

    Attributes:
      what: What is wrong, in one clause.
      where: The option, variable or file with the value.
      value: The offending value as written; "" where there is none to show.
      remedy: What to do about it, in one sentence.
    """

    def __init__(self, what: str, *, where: str, value: str = "", remedy: str) -> None:
        self.what, self.where, self.value, self.remedy = what, where, value, remedy
        shown = f" ({value})" if value else ""
        super().__init__(f"{where}: {what}{shown}. {remedy}")


@dataclass(frozen=True, slots=True)
class Choices:
    """The settings of one source, by dotted key.

    Attributes:
      source: Its name in messages: `--set`, `the environment`, a file's name, `the problem`.
      notices: Sentences for the user about what the source says without effect.
      experiment: What a configuration of FunSearch-Lite says beside settings; None for others.
    """

    source: str
    values: Mapping[str, object] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    experiment: lite.Experiment | None = None


def from_assignments(assignments: Iterable[str]) -> Choices:
    """Returns the settings of `--set key=value` options; values are YAML scalars or JSON.

    Raises:
      UsageError: There is no `=`, the key is unknown, or the value is not YAML.
    """
    values: dict[str, object] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise UsageError(
                "no value",
                where=f"--set {assignment}",
                remedy="Write --set key=value, without spaces.",
            )
        name = name.strip()
        # The braces of a template are no YAML.
        is_template = name.startswith("prompts.templates.")
        value = text if is_template else _parsed(text, f"--set {name}")
        values.update(_entries(name, value, "--set"))
    return Choices("--set", values)


def from_environment(environment: Mapping[str, str]) -> Choices:
    """Returns the settings of variables such as `EVOQ_SEARCH__ISLANDS` and `EVOQ_DATABASE_URL`.

    Raises:
      UsageError: A variable of a known section names no setting of it, or a name is misspelt.
    """
    given = {name: text for name, text in sorted(environment.items()) if text}
    for variable, meant in _foreign(given).items():
        raise UsageError(
            f"it is a name of {meant.engine}", where=variable, remedy=meant.remedy_of_variables
        )
    for variable, known in misspelt(given).items():
        raise UsageError(
            "there is no such variable",
            where=variable,
            remedy=f"The closest known one is {known}.",
        )
    values: dict[str, object] = {}
    for variable, text in given.items():
        if not variable.startswith(PREFIX):
            continue
        name = variable.removeprefix(PREFIX).lower().replace("__", ".")
        if name in ADDRESSES:
            values[name] = text
        elif "__" in variable and name.split(".")[0] in SECTIONS:
            values.update(_entries(name, _parsed(text, variable), variable))
    return Choices(ENVIRONMENT, values)


def from_file(text: str, where: str, *, foreign: Callable[[object], bool]) -> Choices | None:
    """Returns the settings of a configuration file; None for a problem's own configuration.

    Args:
      text: Its contents.
      where: Its name, for messages.
      foreign: Returns whether a parsed file is a problem's own configuration.

    Raises:
      UsageError: The file is not YAML, not a mapping, or names an unknown setting.
    """
    loaded = _parsed(text, where) if text.strip() else {}
    if lite.recognises(loaded):
        try:
            return Choices(where, *lite.settings(loaded), lite.experiment(loaded))
        except ValueError as error:
            raise UsageError(str(error), where=where, remedy="Correct the file.") from error
    if not _of_settings(loaded) and foreign(loaded):
        return None
    if not isinstance(loaded, dict):
        raise UsageError(
            "the file is not a mapping",
            where=where,
            value=repr(loaded)[:80],
            remedy="Write sections such as `search:` with settings below them.",
        )
    return from_values(loaded, where)


def from_values(given: Mapping[Any, object], where: str) -> Choices:
    """Returns the settings of a mapping by dotted keys or by sections.

    Raises:
      UsageError: A setting is unknown.
    """
    return Choices(where, _all_entries(given, where))


def is_experiment(text: str) -> bool:
    """Returns whether the text of a file is a configuration of FunSearch-Lite."""
    try:
        return lite.recognises(yaml.safe_load(text))
    except yaml.YAMLError:
        return False


def misspelt(names: Iterable[str]) -> dict[str, str]:
    """Returns the unknown variables that are much like a known one, each with that one.

    Variables of other programs may begin like ours and are left out; so are those with two
    underscores, whose sections are read by name.
    """
    known = _known_variables()
    sections = tuple(f"{PREFIX}{name.upper()}_" for name in SECTIONS)
    meant: dict[str, str] = {}
    for name in sorted(names):
        if not name.startswith(PREFIX) or "__" in name or name in known:
            continue
        section = next((section for section in sections if name.startswith(section)), "")
        nested = f"{section}_{name.removeprefix(section)}"
        if section and nested in known:
            meant[name] = nested
        elif alike := difflib.get_close_matches(name, known, n=1, cutoff=_ALIKE):
            meant[name] = alike[0]
    return meant


def _foreign(names: Iterable[str]) -> dict[str, ForeignName]:
    """Returns the variables that are named as another engine names what they set."""
    known, foreign = _known_variables(), foreign_variables()
    return {name: foreign[name] for name in names if name in foreign and name not in known}


def wrong_variables() -> dict[str, str]:
    """Returns the variables of this process that cannot be used, each with the reason."""
    given = [name for name, text in sorted(os.environ.items()) if text]
    wrong = {
        name: f"there is no such variable; did you mean {known}?"
        for name, known in misspelt(given).items()
    }
    try:
        Settings()
    except ValidationError as error:
        for fault in error.errors(include_url=False):
            text = _UNEXPECTED if fault["type"] == "unexpected_keyword_argument" else fault["msg"]
            name = variable_of(".".join(map(str, fault["loc"])))
            wrong[name] = f"{text[:1].lower()}{text[1:]}, not {fault['input']!r}"
    wrong |= {
        name: f"it is a name of {meant.engine}. {meant.remedy_of_variables}"
        for name, meant in _foreign(given).items()
    }
    try:
        places(os.environ, cores=1)
    except ValueError as error:
        wrong.setdefault(VARIABLES[0], str(error))
    return wrong


def addresses(layers: Sequence[Choices]) -> dict[str, str]:
    """Returns the connection's settings, earlier layers winning."""
    return {
        name: str(layer.values[name])
        for layer in reversed(layers)
        for name in ADDRESSES
        if layer.values.get(name) is not None
    }


def problem_options(layers: Sequence[Choices]) -> dict[str, object]:
    """Returns the settings that shape the problem itself, which are needed to load it.

    An image of the environment shapes none: it is the worker's, for problems that name none.
    """
    shaping = {
        "sandbox.mode",
        "sandbox.image",
        *(f"sandbox.{limit.name}" for limit in fields(Limits)),
    }
    variable = "problem.environment."
    options: dict[str, object] = {}
    for layer in reversed(layers):
        for name, value in layer.values.items():
            if name.startswith(variable):
                before = options.get("problem.environment")
                kept = before if isinstance(before, dict) else {}
                options["problem.environment"] = {**kept, name.removeprefix(variable): str(value)}
            elif name == "sandbox.image" and layer.source == ENVIRONMENT:
                continue
            elif name in shaping or name.startswith("problem."):
                options[name] = value
    return options


def known_setting(section: str, rest: str) -> bool:
    """Returns whether a section has a setting of that name, or takes any."""
    name, _, deeper = rest.partition(".")
    if section == "problem":
        return name in _PROBLEM_OPTIONS
    if section == "strategy":
        # The parameters of a recipe are checked later, when the recipe is known.
        return bool(rest) and not deeper
    if field := SETTINGS.get(f"{section}.{name}"):
        return not deeper or "dict" in str(field.annotation)
    return f"{section}.{rest}" == TEMPLATE_FOLDER


def _known_keys() -> list[str]:
    """Returns every key that `--set` takes, except the parameters of recipes."""
    options = [f"problem.{name}" for name in _PROBLEM_OPTIONS]
    return [*SETTINGS, TEMPLATE_FOLDER, *options, *ADDRESSES]


def _known_variables() -> list[str]:
    plain = [name for name in Settings.model_fields if name not in {**SECTIONS, **OF_PROCESSES}]
    own = [f"{name}.{one}" for name, form in OF_PROCESSES.items() for one in fields_of(form)]
    return [variable_of(name) for name in (*plain, *own, *_OTHER_VARIABLES, *SETTINGS)]


def _of_settings(loaded: object) -> bool:
    """Returns whether a parsed file has a section or an address of ours.

    The section `llm` counts only where it is alone and all of it is ours: OpenEvolve has one, too.
    """
    if not isinstance(loaded, dict):
        return False
    names = {str(name) for name in loaded}
    if names == {"llm"}:
        llm = loaded["llm"]
        return isinstance(llm, dict) and llm.keys() <= fields_of(ModelSettings).keys()
    return bool(names & ({*SECTIONS, *ADDRESSES} - {"llm"}))


def _closest(name: str, known: Sequence[str]) -> str | None:
    """Returns the known key most like `name`, or None; the same last part elsewhere wins."""
    last = name.rsplit(".", 1)[-1]
    moved = [key for key in known if key.rsplit(".", 1)[-1] == last]
    near = moved or difflib.get_close_matches(name, known, n=1, cutoff=_NEAR)
    return near[0] if near else None


def _all_entries(given: Mapping[Any, object], where: str) -> dict[str, object]:
    """Returns settings by dotted key; see `_entries`."""
    values: dict[str, object] = {}
    for name, value in given.items():
        values.update(_entries(str(name), value, where))
    return values


def _entries(name: str, value: object, where: str) -> dict[str, object]:
    """Returns a setting by dotted key; a section becomes its settings."""
    section, _, rest = name.partition(".")
    if name in ADDRESSES:
        return {name: value}
    if section in SECTIONS and not rest:
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise UsageError(
                f"`{section}` is a section",
                where=where,
                value=repr(value)[:80],
                remedy=f"Name a setting of it, such as {section}.KEY.",
            )
        return _all_entries({f"{section}.{key}": inner for key, inner in value.items()}, where)
    # Each key of `prompts.templates` replaces one template, and the others stay.
    if name == "prompts.templates" and isinstance(value, dict):
        return {f"{name}.{template}": text for template, text in value.items()}
    if known_setting(section, rest):
        return {name: value}
    if foreign := foreign_names_of(name, value):
        [(first, meant), *others] = foreign.items()
        remedies = [meant.remedy, *(f"`{one}`: {found.remedy}" for one, found in others)]
        if where.startswith(PREFIX):
            remedies = [meant.remedy_of_variables]
        raise UsageError(
            f"`{first}` is a name of {meant.engine}", where=where, remedy=" ".join(remedies)
        )
    near = _closest(name, _known_keys())
    raise UsageError(
        f"unknown setting `{name}`",
        where=where,
        remedy=f"The closest known one is `{near}`." if near else "docs/settings.md lists all.",
    )


def _parsed(text: str, where: str) -> object:
    try:
        value = yaml_values.loaded(text)
    except yaml.YAMLError as error:
        raise UsageError(
            "not valid YAML or JSON",
            where=where,
            value=str(error).splitlines()[0][:120],
            remedy="Correct the syntax; quote texts that hold `: ` or begin with a bracket.",
        ) from error
    if isinstance(value, dict):
        for key, inner in value.items():
            if inner is None and isinstance(key, str) and ":" in key:
                raise UsageError(
                    "a colon without a space after it",
                    where=where,
                    value=key,
                    remedy=f"Write {key.replace(':', ': ', 1)}.",
                )
    return value
