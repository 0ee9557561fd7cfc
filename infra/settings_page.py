"""Writes docs/settings.md: `python -m infra.settings_page`, or `make settings`.

The text around the tables is in `infra/settings.md.in`; a line such as `{{budget}}` of it stands
for the table of a section, and `{{EVOQ}}` for the settings that only a process has.  Default, range
and owner of a setting come from its field, and its meaning from the docstring below the field.
"""

import ast
import enum
import functools
import inspect
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from app.config.section import Owner, fields_of, variable_of
from app.config.settings import OF_PROCESSES, SECTIONS, Settings, owner_of

ROOT = Path(__file__).parents[1]
TEXT = ROOT / "infra" / "settings.md.in"
PAGE = ROOT / "docs" / "settings.md"
OF_A_PROCESS = "EVOQ"
"""Name of the table of the settings that no run has."""
_PLACE = re.compile(r"^\{\{(\w+)\}\}$", re.MULTILINE)


def page(text: str) -> str:
    """Returns the page: a text whose places are filled with tables.

    Raises:
      LookupError: A place names no section, or a section has no place.
    """
    tables = _tables()
    places = _PLACE.findall(text)
    if sorted(places) != sorted(tables):
        differing = sorted({*places} ^ {*tables}) or places
        raise LookupError(f"each section needs one place in {TEXT.name}: {', '.join(differing)}")
    return _PLACE.sub(lambda place: tables[place[1]], text)


def row(name: str, field: FieldInfo, meaning: str, owner: Owner | None = None) -> str:
    """Returns the row of a setting.

    Args:
      name: Its dotted key, or its variable.
      field: Its field.
      meaning: The docstring of the field.
      owner: Its owner, in a table that has a column for it.
    """
    default = field.get_default(call_default_factory=True)
    meaning = " ".join(meaning.split())
    cells = [f"`{name}`", _shown(default), _values(field), *([owner] if owner else []), meaning]
    return f"| {' | '.join(cells)} |"


@functools.cache
def docstrings(section: type) -> Mapping[str, str]:
    """Returns the text below each field of a class, also of an inherited one, by name.

    Pydantic can read it too, which would take a tenth of the import of the settings.
    """
    found = {}
    for each in reversed(section.__mro__):
        if each.__module__.startswith("app."):
            [definition] = ast.parse(inspect.getsource(each)).body
            assert isinstance(definition, ast.ClassDef)
            for attribute, below in itertools.pairwise(definition.body):
                match attribute, below:
                    case (
                        ast.AnnAssign(target=ast.Name(id=name)),
                        ast.Expr(value=ast.Constant(value=str(text))),
                    ):
                        found[name] = text
    return found


def _tables() -> dict[str, str]:
    """Returns the table of each section that has fields, by the section's name."""
    tables = {name: _table_of(name, section) for name, section in SECTIONS.items() if section}
    own = docstrings(Settings)
    of_a_process = [
        row(variable_of(name), field, own.get(name, ""))
        for name, field in Settings.model_fields.items()
        if name not in {**SECTIONS, **OF_PROCESSES}
    ]
    for name, section in OF_PROCESSES.items():
        meanings = docstrings(section)
        rows = [
            row(variable_of(f"{name}.{one}"), field, meanings.get(one, ""))
            for one, field in fields_of(section).items()
        ]
        tables[name] = _table(rows, owned=False)
    return {**tables, OF_A_PROCESS: _table(of_a_process, owned=False)}


def _table_of(name: str, section: type) -> str:
    fields = fields_of(section)
    owners = {field: owner_of(f"{name}.{field}") for field in fields}
    owned = {*owners.values()} != {Owner.RUN}
    meanings = docstrings(section)
    rows = [
        row(f"{name}.{one}", field, meanings.get(one, ""), owners[one] if owned else None)
        for one, field in fields.items()
    ]
    return _table(rows, owned=owned)


def _table(rows: Iterable[str], *, owned: bool) -> str:
    columns = ["Setting", "Default", "Values", *(["Owner"] if owned else []), "Meaning"]
    return "\n".join([f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}", *rows])


def _shown(default: Any) -> str:
    match default:
        case None | "" | [] | {}:
            return "–"
        case bool():
            return str(default).lower()
        case _:
            return f"{default:g}" if isinstance(default, float) else str(default)


def _values(field: FieldInfo) -> str:
    """Returns the values that a setting takes; "–" for any of its type."""
    bounds = {sign: value for part in field.metadata for sign, value in _bounds_of(part)}
    if bounds:
        return ", ".join(f"{sign} {value:g}" for sign, value in bounds.items())
    return ", ".join(_choices(field.annotation)) or "–"


def _bounds_of(part: Any) -> Iterator[tuple[str, float]]:
    """Yields the signs and numbers of a constraint; nothing for another kind of constraint."""
    for name, sign in (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<")):
        if isinstance(value := getattr(part, name, None), int | float):
            yield sign, value


def _choices(annotation: Any) -> list[str]:
    """Returns the values of a closed set; [] for a type that is none."""
    if get_origin(annotation) is dict:
        return []
    if annotation is bool:
        return ["true", "false"]
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return [str(member) for member in annotation]
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [choice for part in get_args(annotation) for choice in _choices(part)]


if __name__ == "__main__":
    PAGE.write_text(page(TEXT.read_text()))
