"""What the documents name exists: commands, settings, other documents and their headings."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.cli.application import COMMANDS
from app.config.layers import known_setting
from app.config.openevolve_keys import KEYS
from app.config.recipes import parameter_names
from app.domain.search.recipes import RECIPES

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NOTEBOOKS = sorted((ROOT / "notebooks").rglob("*.md"))
OF_AGENTS = "try"
"""The command that only an agent has, in its folder."""
_LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
_SETTING = re.compile(
    r"(?:`|--set )(agent|budget|search|nested|strategy|queue|llm|sandbox|prices|prompts|problem)\."
    r"(?!yaml)([a-z_]+)"
)


def headings(path: Path) -> Iterator[str]:
    for line in path.read_text().splitlines():
        if line.startswith("#"):
            plain = re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower())
            yield plain.replace(" ", "-")


@pytest.mark.parametrize("path", [*DOCUMENTS, *NOTEBOOKS], ids=lambda path: path.name)
def test_every_link_of_a_document_leads_somewhere(path: Path):
    for target, anchor in _LINK.findall(path.read_text()):
        if target.startswith("http"):
            continue
        found = path.parent / target if target else path
        assert found.exists(), target
        assert not anchor or anchor in headings(found), f"{target}#{anchor}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_setting_and_command_of_a_document_exists(path: Path):
    text = path.read_text()
    theirs = {key.name for key in KEYS}  # of OpenEvolve's config.yaml
    named = {(section, name) for section, name in _SETTING.findall(text)}

    parameters = {name for recipe in RECIPES.values() for name in parameter_names(recipe)}

    def known(section: str, name: str) -> bool:
        return name in parameters if section == "strategy" else known_setting(section, name)

    unknown = [f"{s}.{n}" for s, n in named if not known(s, n) and f"{s}.{n}" not in theirs]
    commands = set(re.findall(r"(?:^|`|bin/)evoq ([a-z][a-z-]+)", text, re.MULTILINE))

    assert unknown == []
    assert commands <= {*COMMANDS, OF_AGENTS}


def test_the_page_on_the_command_names_every_one():
    text = (ROOT / "docs" / "cli.md").read_text()

    assert [name for name in COMMANDS if f"evoq {name}" not in text] == []


@pytest.mark.parametrize("name", ["architecture.md", "glossary.md"])
def test_every_module_that_a_document_names_exists(name: str):
    text = (ROOT / "docs" / name).read_text()
    modules = set(re.findall(r"`((?:app|workers|mock_llm)(?:\.[a-z_]+)+)`", text))
    paths = {module: ROOT / module.replace(".", "/") for module in modules}

    assert [
        m for m, path in paths.items() if not path.is_dir() and not path.with_suffix(".py").exists()
    ] == []
