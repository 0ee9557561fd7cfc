"""The environment variables of Evoqueue: which there are, and what is wrong with those given."""

import difflib
import os
from collections.abc import Iterable

from pydantic import BaseModel, ValidationError

from app.config.settings import RunSettings, Settings

PREFIX = "EVOQ_"
_ALIKE = 0.85
"""Likeness of two names, 0 to 1, from which on one is taken for a slip of the other."""
_FURTHER = (
    "GENERATE_CONCURRENCY", "EVALUATE_CONCURRENCY", "TASK_EVENTS", "HEARTBEAT_FILE", "IMAGE",
    "PROBLEM_DATA", "PROGRAM_SOURCE", "TEST_VLLM_MODEL",
)  # fmt: skip
"""What Celery's configuration, the compose file, programs under test and our tests are told."""


def _known() -> list[str]:
    sections = {
        name: field.annotation
        for name, field in RunSettings.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
    }
    plain = [name.upper() for name in Settings.model_fields if name not in sections]
    nested = [
        f"{section}__{name}".upper()
        for section, model in sections.items()
        for name in model.model_fields
    ]
    return [PREFIX + name for name in (*plain, *_FURTHER, *nested)]


def misspelt(names: Iterable[str]) -> dict[str, str]:
    """Returns which of these variables nobody reads and are much like one that is, each with it.

    Variables of other programs may begin like ours and stay unnamed; so do those with two
    underscores, whose sections are read by name.
    """
    known = _known()
    sections = tuple(f"{PREFIX}{name.upper()}_" for name in RunSettings.model_fields)
    found: dict[str, str] = {}
    for name in sorted(names):
        if not name.startswith(PREFIX) or "__" in name or name in known:
            continue
        nested = name
        for section in sections:
            if name.startswith(section):
                nested = f"{section}_{name.removeprefix(section)}"
        if nested in known:
            found[name] = nested
        elif alike := difflib.get_close_matches(name, known, n=1, cutoff=_ALIKE):
            found[name] = alike[0]
    return found


def wrong_variables() -> dict[str, str]:
    """Returns the variables of this process that cannot be used, each with why; mostly none."""
    found = {
        name: f"there is no such variable; did you mean {meant}?"
        for name, meant in misspelt(name for name, text in os.environ.items() if text).items()
    }
    try:
        Settings()
    except ValidationError as error:
        for one in error.errors(include_url=False):
            name = PREFIX + "__".join(str(part) for part in one["loc"]).upper()
            found[name] = f"{one['msg'][:1].lower()}{one['msg'][1:]}, not {one['input']!r}"
    return found
