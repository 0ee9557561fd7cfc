"""The form of a section of settings: a frozen dataclass that is validated.

A section that the domain reads is a dataclass there, and the class here adds the validation.
"""

import enum
from collections.abc import Mapping
from typing import TypeVar

from pydantic import ConfigDict, field_validator
from pydantic.dataclasses import dataclass
from pydantic.fields import FieldInfo

from app.domain.setting import LARGEST_INTEGER

Value = TypeVar("Value")


class Owner(enum.StrEnum):
    """The process whose value of a setting holds; a setting that names none is the run's."""

    RUN = "run"
    """The value is stored with the run, and every step of the run reads it."""
    WORKER = "worker"
    """Each worker reads its own value at its start, for all runs."""
    COMMAND = "command"
    """The value is read by the command of `evoq` that it is given to."""


def _bounded(value: Value) -> Value:
    """Returns the value of a setting.

    Raises:
      ValueError: It is an integer that no column of the ledger holds.
    """
    if isinstance(value, int) and value > LARGEST_INTEGER:
        raise ValueError(f"must be at most {LARGEST_INTEGER}")
    return value


@dataclass(config=ConfigDict(extra="forbid", allow_inf_nan=False), frozen=True, slots=True)
class Section:
    """A section of settings: it refuses unknown names and integers that no column holds."""

    _bounded = field_validator("*")(_bounded)


def fields_of(section: type) -> Mapping[str, FieldInfo]:
    """Returns the settings of a section by name; its class is a model or a validated dataclass."""
    fields: Mapping[str, FieldInfo] = vars(section)["__pydantic_fields__"]
    return fields


def variable_of(setting: str) -> str:
    """Returns the variable that sets a setting, or would if there were one."""
    return f"EVOQ_{setting.replace('.', '__').upper()}"
