"""Each row of `docs/settings.md` is a setting that a line of the code reads.

A read is an attribute of something that carries the section: the section itself, or the value that
it is turned into. `CARRIERS` names these values. So it is with the parameters of recipes, which
`self` carries, with the options of problems, which are constants, and with variables, which are
texts.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from app.adapters.problems import options
from app.config.section import fields_of
from app.config.settings import SearchSettings
from app.domain.search.recipes import RECIPES

CARRIERS: Mapping[str, tuple[str, ...]] = {
    "budget": ("budget", "Budget"),
    "search": ("search", "SearchSettings", "SearchRules", "MapElites"),
    "nested": ("nested", "NestedSettings", "NestedRules"),
    "agent": ("agent", "AgentSettings"),
    "queue": ("queue", "QueueSettings", "pace", "Caps", "Pace"),
    "llm": (
        "llm",
        "ModelSettings",
        "RoleSettings",
        "ModelChoice",
        "ModelSpec",
        "spec",
        "model",
        "own",
    ),
    "sandbox": ("sandbox", "SandboxSettings", "limits", "Limits"),
    "prices": ("prices",),
    "prompts": ("prompts", "PromptSettings", "PromptRules", "rules"),
    "strategy": ("MapElites",),
    "EVOQ": ("settings", "Settings", "target"),
    "EVOQ_KUBERNETES": ("KubernetesSettings", "cluster"),
}
"""Section to the names of values and classes that have its settings as attributes."""

BY_NAME: Mapping[str, str] = {
    **{
        f"prices.{kind}_usd_per_hour": '{kind}_usd_per_hour"]' for kind in ("gpu", "cpu", "control")
    },
    "search.operators": "weights = settings.search.operators",
    "sandbox.mode": "options.mode or",
    "sandbox.open_files": '["open_files"]',
}
"""Settings that are read by a key or a computed name, with the text that does so."""

ROW = re.compile(r"^\| `([\w.]+)` \|", re.MULTILINE)
ITEM = re.compile(r"^\* `(EVOQ_\w+)`", re.MULTILINE)
"""Variables that the page lists below its tables."""
NO_READERS = (
    *("app/config/settings.py", "app/config/checks.py", "app/config/mix.py"),
    *("app/cli/doctor", "app/cli/prompt.py", "app/reports/", "app/dashboard/"),
)
"""Where settings are defined and checked, and where they are shown."""


class Reads(ast.NodeVisitor):
    """Collects the attributes that a module reads, each with what carries it and its line."""

    def __init__(self, path: str) -> None:
        self.found: dict[tuple[str, str], str] = {}
        self._path = path
        self._classes: list[str] = []
        self._annotated: list[dict[str, ast.expr]] = [{}]

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._classes.append(node.name)
        self.generic_visit(node)
        self._classes.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        arguments = [*node.args.args, *node.args.kwonlyargs]
        known = {a.arg: a.annotation for a in arguments if a.annotation}
        self._annotated.append({**self._annotated[-1], **known})
        self.generic_visit(node)
        self._annotated.pop()

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Load):
            for carrier in self._carriers(node.value):
                self.found.setdefault((carrier, node.attr), f"{self._path}:{node.lineno}")
        self.generic_visit(node)

    def _carriers(self, value: ast.expr) -> Iterator[str]:
        match value:
            case ast.Name("self"):
                yield from self._classes
            case ast.Name(name):
                yield name
                if name in self._annotated[-1]:
                    yield from re.findall(r"\w+", ast.unparse(self._annotated[-1][name]))
            case ast.Attribute(attr=name):
                yield name.removeprefix("_")
            case ast.Call(func=ast.Name(name)):
                yield name


@cache
def parsed(repository: Path) -> dict[str, ast.Module]:
    """Returns the modules that may read settings, by their paths."""
    return {
        str(file.relative_to(repository)): ast.parse(file.read_text())
        for folder in ("app", "workers")
        for file in sorted((repository / folder).rglob("*.py"))
    }


@cache
def reads(repository: Path) -> dict[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}
    for path, module in parsed(repository).items():
        if not path.startswith(NO_READERS):
            visitor = Reads(path)
            visitor.visit(module)
            for read, line in visitor.found.items():
                found.setdefault(read, line)
    return found


def unread(rows: list[str], repository: Path) -> list[str]:
    """Returns the rows that no line of the code reads."""
    known = reads(repository)
    text = "".join(
        file.read_text()
        for part in ("app", "workers")
        for file in (repository / part).rglob("*.py")
    )
    missing = []
    for row in rows:
        section, _, name = row.rpartition(".")
        if row.startswith("EVOQ_"):
            section, _, name = row.rpartition("__")
            if not section:
                section, name = "EVOQ", name.removeprefix("EVOQ_")
            name = name.lower()
        by_attribute = any((carrier, name) in known for carrier in CARRIERS[section])
        by_name = row in BY_NAME and BY_NAME[row] in text
        if not by_attribute and not by_name:
            missing.append(row)
    return missing


@pytest.fixture(scope="module")
def rows() -> list[str]:
    page = (Path(__file__).parents[3] / "docs" / "settings.md").read_text()
    return ROW.findall(page)


def test_each_setting_on_the_page_is_read_by_a_line_of_the_code(
    repository: Path, rows: list[str]
) -> None:
    assert len(rows) > 100
    assert unread(rows, repository) == []


def test_a_row_of_each_table_is_looked_for(rows: list[str]) -> None:
    sections = {row.partition(".")[0] for row in rows if "." in row}
    variables = {"EVOQ", "EVOQ_KUBERNETES"}
    expected = {*CARRIERS} - {"strategy"} - variables  # recipes.md

    assert sections == expected
    assert sum(row.startswith("EVOQ_") for row in rows) > 10


def test_a_setting_that_nothing_reads_is_found(repository: Path) -> None:
    assert unread(["search.islandz", "EVOQ_NOTHING", "sandbox.turbo"], repository) == [
        "search.islandz",
        "EVOQ_NOTHING",
        "sandbox.turbo",
    ]


def unread_parameters(sources: Mapping[str, str]) -> list[str]:
    """Returns the parameters of recipes that nothing but their checks reads.

    Args:
      sources: Recipe to the text of its module.
    """
    missing = []
    for name, recipe in RECIPES.items():
        visitor = Reads(name)
        for node in ast.walk(ast.parse(sources[name])):
            match node:
                case ast.ClassDef(body=body) if node.name == recipe.__name__:
                    node.body = [part for part in body if "__post_init__" not in ast.unparse(part)]
                    visitor.visit(node)
        parameters = recipe.__dataclass_fields__  # type: ignore[attr-defined]
        own = [one for one in parameters if one not in fields_of(SearchSettings)]
        missing += [f"{name}.{one}" for one in own if (recipe.__name__, one) not in visitor.found]
    return missing


def test_each_parameter_of_a_recipe_is_read_by_a_line_of_it(repository: Path) -> None:
    folder = repository / "app/domain/search/recipes"
    sources = {
        name: (folder / f"{recipe.__module__.rpartition('.')[2]}.py").read_text()
        for name, recipe in RECIPES.items()
    }

    assert unread_parameters(sources) == []
    beam = sources["beam"].replace("best_of(self.width", "best_of(3")
    for old in ("best(self.width)", "self.width,", "self.width *"):
        beam = beam.replace(old, old.replace("self.width", "3"))
    assert unread_parameters({**sources, "beam": beam}) == ["beam.width"]


def test_each_option_of_a_problem_is_read_where_problems_are_loaded(repository: Path) -> None:
    folder = repository / "app/adapters/problems"
    text = "".join(file.read_text() for file in folder.rglob("*.py"))
    rows = ROW.findall((repository / "docs/problems.md").read_text())
    constants = {value: name for name, value in vars(options).items() if isinstance(value, str)}

    named = [row for row in rows if row.startswith("problem.")]

    assert len(named) == 8

    def reading(row: str) -> str:
        field = row.removeprefix("problem.")
        return rf"(\.get\(|\.pop\(|chosen\[)(option\.)?{constants[row]}\b|(options|self)\.{field}\b"

    assert [row for row in named if not re.search(reading(row), text)] == []


def test_each_variable_below_the_tables_is_read_by_a_line_of_the_code(repository: Path) -> None:
    items = ITEM.findall((repository / "docs/settings.md").read_text())
    texts = {
        node.value
        for module in parsed(repository).values()
        for node in ast.walk(module)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }

    assert len(items) == 5
    assert [name for name in items if name not in texts] == []
