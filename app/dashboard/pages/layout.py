"""What all pages share: the frame around them, tables, texts, tiles, and how they are kept live."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from app.dashboard.pages.text import as_html
from app.ports.protocols import Unavailable

EVERY_SECONDS = 1.0
NAVIGATION = {"/": "Runs", "/compare": "Compare", "/system": "System"}

STYLE = """
:root { --line: #8883; --soft: #8881; --grey: #5c626b; --add: #1a7f37; --del: #b42318; }
.body--dark { --grey: #a3a9b3; --add: #58c27d; --del: #ff8a80; }
body { font: 15px/1.45 system-ui, sans-serif; }
.nicegui-content { padding: 0; align-items: stretch; gap: 0; }
header.bar { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; align-items: baseline;
  padding: .6rem 1rem; border-bottom: 1px solid var(--line); }
header.bar a { font-weight: 500; } header.bar > a { font-weight: 700; }
.content { padding: 1rem; max-width: 1240px; width: 100%; margin: 0 auto; min-width: 0; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .25rem; font-weight: 600;
  overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; line-height: 1.3; margin: 1.5rem 0 .5rem; font-weight: 600; }
a { color: #1f6feb; text-decoration: none; } a:hover { text-decoration: underline; }
.body--dark a { color: #79b0ff; }
a:focus-visible, button:focus-visible, summary:focus-visible, .scroll:focus-visible {
  outline: 2px solid #1f6feb; outline-offset: 2px; }
.grey { color: var(--grey); }
.notice { border-left: 4px solid #d9822b; padding: .5rem .75rem; background: var(--soft);
  margin: .75rem 0; overflow-wrap: anywhere; white-space: pre-wrap; }
.notice:empty { display: none; }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: .5rem;
  margin: .75rem 0; }
.tile { border: 1px solid var(--line); border-radius: 6px; padding: .45rem .65rem; min-width: 0; }
.tile .value { font-size: 1.15rem; font-weight: 600; overflow-wrap: anywhere; }
.tile .name { color: var(--grey); font-size: .85rem; }
.scroll { overflow-x: auto; max-width: 100%; }
table.plain { border-collapse: collapse; min-width: 50%; }
table.plain th { text-align: left; font-weight: 600; color: var(--grey); font-size: .85rem; }
table.plain th, table.plain td { padding: .28rem .9rem .28rem 0; vertical-align: top;
  border-bottom: 1px solid var(--line); }
table.plain td { max-width: 32rem; overflow-wrap: break-word; font-variant-numeric: tabular-nums; }
table.plain td a { white-space: nowrap; }
pre.text { margin: .25rem 0; padding: .6rem; background: var(--soft); border-radius: 6px;
  overflow: auto; max-height: 36rem; max-width: 100%; font: 13px/1.4 ui-monospace, monospace;
  white-space: pre; unicode-bidi: isolate; direction: ltr; tab-size: 4; }
pre.text ins { color: var(--add); text-decoration: none; }
pre.text del { color: var(--del); text-decoration: none; }
details { margin: .4rem 0; } summary { cursor: pointer; font-weight: 500; display: list-item; }
ol.tree { list-style: none; margin: .25rem 0; padding: 0; }
ol.tree li { padding: .2rem 0 .2rem 1.4rem; position: relative; border-left: 2px solid var(--line);
  margin-left: .4rem; overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
ol.tree li::before { content: ""; position: absolute; left: -.3rem; top: .7rem; width: .5rem;
  height: .5rem; border-radius: 50%; background: var(--grey); }
ol.tree li.best::before { background: #d9822b; }
ol.tree details { margin: .2rem 0; }
ol.tree li > span { display: inline; }
.boards { display: grid; grid-template-columns: repeat(auto-fill, minmax(190px, 1fr));
  gap: .75rem; margin: .5rem 0; }
.board { border: 1px solid var(--line); border-radius: 6px; padding: .5rem; min-width: 0;
  overflow-wrap: anywhere; font-size: .85rem; }
.picture svg { max-width: 100%; height: auto; display: block; margin: 0 auto; border-radius: 4px;
  background: #f5f3ec; }
.picture.large svg { width: min(100%, 480px); margin: 0; }
.blank { aspect-ratio: 7 / 6; display: grid; place-items: center; background: var(--soft);
  border-radius: 4px; color: var(--grey); }
table.cross th, table.cross td { text-align: right; padding: .28rem .6rem; white-space: nowrap; }
table.cross th:first-child { text-align: left; }
.moves { overflow-wrap: anywhere; margin: .5rem 0; } .moves mark { padding: 0 .2rem; }
.chart { height: 360px; width: 100%; }
.actions { display: flex; flex-wrap: wrap; gap: .5rem; margin: .5rem 0; }
.links { display: flex; flex-wrap: wrap; gap: .25rem 1rem; margin: .35rem 0; }
@media (max-width: 500px) { .content { padding: .75rem; } .chart { height: 300px; }
  .tiles, .boards { grid-template-columns: repeat(2, 1fr); } }
"""


@dataclass(frozen=True, slots=True)
class Link:
    """A cell of a table, or an entry of a list, that leads to a page."""

    text: str
    to: str


Cell = str | Link


@contextmanager
def page(title: str) -> Iterator[None]:
    """Draws the bar above a page; its content goes inside."""
    ui.page_title(f"{title} · Evoqueue")
    ui.add_css(STYLE)
    with ui.element("header").classes("bar"):
        ui.link("Evoqueue", "/")
        with ui.element("nav").classes("links").props('aria-label="Pages"'):
            for path, name in NAVIGATION.items():
                ui.link(name, path)
    with ui.element("div").classes("content"):
        yield


def heading(text: str, level: int = 2) -> None:
    """Draws a heading."""
    TextElement(tag=f"h{level}", text=text)


def say(text: str, classes: str = "") -> ui.label:
    """Draws a line of text."""
    return ui.label(text).classes(classes)


def links(entries: Sequence[Link]) -> None:
    """Draws links in a row."""
    with ui.element("div").classes("links"):
        for entry in entries:
            ui.link(entry.text, entry.to)


def text_block(content: str, *, markup: bool = False, name: str) -> ui.html:
    """Draws a text that somebody else wrote, character by character.

    Args:
      content: The text; HTML that this package made of it where `markup`.
      markup: See `content`.
      name: What it is, for screen readers.
    """
    made = content if markup else as_html(content)
    block = ui.html(made, sanitize=False, tag="pre")
    return block.classes("text scroll").props(f'tabindex=0 role=region aria-label="{name}"')


@contextmanager
def folded(summary: str, *, opened: bool = False) -> Iterator[None]:
    """Draws content that opens and closes."""
    with ui.element("details").props("open" if opened else ""):
        TextElement(tag="summary", text=summary)
        yield


class Tiles:
    """Named values in a grid, changed in place."""

    def __init__(self, names: Sequence[str]) -> None:
        """Draws a tile for each name, without values."""
        self._values: dict[str, ui.label] = {}
        with ui.element("div").classes("tiles"):
            for name in names:
                with ui.element("div").classes("tile"):
                    ui.label(name).classes("name")
                    self._values[name] = ui.label("–").classes("value")

    def show(self, **values: str) -> None:
        """Changes the values of tiles, whose names are written with underscores here."""
        for name, value in values.items():
            set_text(self._values[name.replace("_", " ")], value)


class Grid:
    """A table whose cells are changed in place, so that the focus stays where it is."""

    def __init__(self, columns: Sequence[str], *, name: str, empty: str) -> None:
        """Draws a table without rows.

        Args:
          columns: Their headings.
          name: What it shows, for screen readers.
          empty: What is said while it has no rows.
        """
        self._columns = len(columns)
        self._rows: list[tuple[ui.element, list[ui.element]]] = []
        self._empty = say(empty, "grey")
        self._empty.set_visibility(False)
        with (
            ui.element("div")
            .classes("scroll")
            .props(f'tabindex=0 role=region aria-label="{name}"') as self._box,
            ui.element("table").classes("plain"),
        ):
            with ui.element("thead"), ui.element("tr"):
                for column in columns:
                    TextElement(tag="th", text=column).props("scope=col")
            self._body = ui.element("tbody")
        self._box.set_visibility(False)

    def show(self, rows: Sequence[Sequence[Cell]]) -> None:
        """Replaces the rows."""
        self._empty.set_visibility(not rows)
        self._box.set_visibility(bool(rows))
        for row, cells in zip(rows, self._rows, strict=False):
            for cell, holder in zip(row, cells[1], strict=True):
                _fill(holder, cell)
        for line, _ in self._rows[len(rows) :]:
            line.delete()
        del self._rows[len(rows) :]
        for row in rows[len(self._rows) :]:
            with self._body, ui.element("tr") as line:
                holders = [ui.element("td") for _ in range(self._columns)]
            for cell, holder in zip(row, holders, strict=True):
                _fill(holder, cell)
            self._rows.append((line, holders))


def _fill(holder: ui.element, cell: Cell) -> None:
    """Shows a cell; what it shows already is left as it is."""
    children = holder.default_slot.children
    present = children[0] if children else None
    if isinstance(cell, Link):
        if isinstance(present, ui.link):
            set_text(present, cell.text)
            if present.props.get("href") != cell.to:
                present.props["href"] = cell.to
                present.update()
            return
        holder.clear()
        with holder:
            ui.link(cell.text, cell.to)
        return
    if isinstance(present, ui.label):
        set_text(present, cell)
        return
    holder.clear()
    with holder:
        ui.label(cell)


def set_text(element: TextElement, text: str) -> None:
    """Changes a text if it is another one: each change is a message to the browser."""
    if element.text != text:
        element.set_text(text)


def keep_live(refresh: Callable[[], Awaitable[None]], seconds: float = EVERY_SECONDS) -> None:
    """Calls `refresh` as soon as the browser has the page, and again and again.

    The page is painted before anything is read for it.  Says so while the ledger does not answer.
    """
    page_ = ui.context.slot.parent.props("aria-busy=true")
    fault = say("", "notice").props("role=status")
    fault.set_visibility(False)

    async def attempt() -> None:
        try:
            await refresh()
        except Unavailable as error:
            set_text(fault, f"{error}. This page goes on as soon as it answers.")
            fault.set_visibility(True)
        except LookupError as error:
            if isinstance(error, KeyError | IndexError):
                raise
            set_text(fault, f"{error}: it has been removed.")
            fault.set_visibility(True)
        else:
            fault.set_visibility(False)
        if "aria-busy" in page_.props:
            page_.props(remove="aria-busy")

    ui.timer(seconds, attempt)
