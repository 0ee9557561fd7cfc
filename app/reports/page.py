"""Reports as Markdown, and as one HTML file that loads nothing."""

import base64
import html
from collections.abc import Sequence
from pathlib import Path

from markdown_it import MarkdownIt


def page(title: str, text: str, pictures: Sequence[Path]) -> str:
    """Returns the Markdown as one HTML file with its pictures inside."""
    body = str(MarkdownIt("commonmark", {"html": False}).enable("table").render(text))
    for path in pictures:
        data = f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"
        body = body.replace(f'src="{html.escape(path.name)}"', f'src="{data}"')
    return _PAGE.format(title=html.escape(title), body=body)


_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; }}
table {{ border-collapse: collapse; display: block; overflow-x: auto; }}
th, td {{ border-bottom: 1px solid #8886; padding: .3rem .8rem; text-align: left; }}
pre {{ background: #8882; overflow-x: auto; padding: .6rem; }}
img {{ background: white; max-width: 100%; }}
</style>
{body}</html>
"""


def fenced(text: str, language: str = "") -> list[str]:
    """Returns a block of text as it is; nothing in it is read as Markdown."""
    fence = "```"
    while fence in text:
        fence += "`"
    return [f"{fence}{language}", text.rstrip("\n"), fence, ""]


def code(text: str) -> str:
    """Returns a name or a number as it is."""
    return f"`` {text.replace('`', chr(39))} ``" if text else ""


def row(cells: Sequence[str]) -> str:
    """Returns a row of a Markdown table."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def rule(columns: int) -> str:
    """Returns the line below the head of a Markdown table."""
    return f"|{' --- |' * columns}"
