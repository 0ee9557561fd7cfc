"""What the messages of the product name exists: settings, variables, commands and options."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

import app
from app.cli.application import COMMANDS, application
from app.config.layers import from_environment, known_setting

SOURCES = sorted(Path(app.__file__).parent.rglob("*.py"))
_SETTING = re.compile(
    r"(?<![\w/.-])(budget|search|nested|queue|llm|sandbox|prompts|problem)"
    r"\.(?!yaml|schema|md\b)([a-z_]+(?:\.[a-z_]+)*)"
)
_VARIABLE = re.compile(r"EVOQ_[A-Z_]+[A-Z]")
_COMMAND = re.compile(r"`evoq ([a-z-]+)([^`]*)`")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


@cache
def messages(path: Path) -> tuple[str, ...]:
    """Returns the texts of a module that have several words and are no docstrings."""
    tree = ast.parse(path.read_text())
    return tuple(text for text in _texts(tree) if " " in text)


def _texts(tree: ast.Module) -> Iterator[str]:
    within = set[int]()
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant() as text):
                within.add(id(text))
            case ast.JoinedStr(values=parts):
                within |= set(map(id, parts))
                yield "".join(str(p.value) if isinstance(p, ast.Constant) else "{}" for p in parts)
            case ast.Constant(value=str(text)) if id(node) not in within:
                yield text
            case _:
                pass


def options(command: str) -> set[str]:
    """Returns the long options of a command."""
    group = typer.main.get_command(application(command))
    assert isinstance(group, TyperGroup)
    named = group.commands[command]
    commands = named.commands.values() if isinstance(named, TyperGroup) else [named]
    return {name for one in commands for each in one.params for name in each.opts} | {"--help"}


def test_every_setting_that_a_message_names_exists() -> None:
    named = {
        (path.name, match[1], match[2])
        for path in SOURCES
        for text in messages(path)
        for match in _SETTING.finditer(text)
    }

    assert len(named) > 100
    assert [one for one in sorted(named) if not known_setting(*one[1:])] == []


def test_every_variable_that_a_message_names_exists() -> None:
    named = {
        name for path in SOURCES for text in messages(path) for name in _VARIABLE.findall(text)
    }

    assert len(named) > 5
    from_environment(dict.fromkeys(named, "1"))


OF_AGENTS = "try"
"""The command that only an agent has, in its folder."""


def test_every_command_and_option_that_a_message_names_exists() -> None:
    named = {
        (match[1], option)
        for path in SOURCES
        for text in messages(path)
        for match in _COMMAND.finditer(text)
        if match[1] != OF_AGENTS
        for option in [*_OPTION.findall(match[2]), "--help"]
    }

    assert len(named) > 15
    assert {command for command, _ in named} <= set(COMMANDS)
    assert [one for one in sorted(named) if one[1] not in options(one[0])] == []


@pytest.mark.parametrize("given", ["search.ilands", "llm.models.nothing_of_it"])
def test_a_name_that_does_not_exist_is_found(given: str) -> None:
    [(section, name)] = _SETTING.findall(f"Set {given} and try again.")

    assert not known_setting(section, name)
