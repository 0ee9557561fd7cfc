"""docs/prompts.md names every section and every template as the records of both have them."""

import re
from pathlib import Path

from app.domain.prompting.sections import SECTIONS
from app.domain.prompting.templates import TEMPLATES

PAGE = (Path(__file__).parents[4] / "docs" / "prompts.md").read_text()
JUDGES = "evaluation"
"""The template of judges, which docs/models.md describes."""


def rows() -> dict[str, str]:
    """Returns the second cell of each row of the page's tables by the first."""
    return dict(re.findall(r"^\| (.+?) \| (.+?) \|", PAGE, re.MULTILINE))


def test_the_page_lists_the_sections_in_the_order_of_cutting() -> None:
    listed = [cell for first, cell in rows().items() if first.isdecimal()]

    assert listed == [f"`{section.name}`" for section in sorted(SECTIONS, key=lambda s: s.rank)]


def test_the_page_lists_the_placeholders_of_each_template_of_a_section() -> None:
    listed = {
        template.name: set(re.findall(r"`(\w+)`", rows()[f"`{template.name}`"]))
        for section in SECTIONS
        for template in section.templates
    }

    assert listed == {name: set(TEMPLATES[name].placeholders) for name in listed}


def test_the_page_names_every_other_template() -> None:
    named = set(re.findall(r"`(\w+)`", PAGE))

    assert named >= TEMPLATES.keys() - {JUDGES}
    assert named >= {
        key for name in TEMPLATES.keys() - {JUDGES} for key in TEMPLATES[name].placeholders
    }
