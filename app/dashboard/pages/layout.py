"""What all pages share: the frame around them, tables, texts, tiles, and how they are kept live."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement
from nicegui.events import EChartPointClickEventArguments

from app.dashboard.pages.text import as_html, shown
from app.domain.program import ProgramId
from app.ports.protocols import Unavailable
from app.reports.decoration import NotMade, attempt

EVERY_SECONDS = 1.0
NAVIGATION = {"/": "Runs", "/compare": "Compare", "/system": "System"}

STYLE = """
:root { color-scheme: light dark; --line: #8883; --soft: #8881; --ground: #fff; --grey: #5c626b;
  --link: #1f6feb; --add: #1a7f37; --del: #b42318; --warn: #9a5b00; }
@media (prefers-color-scheme: dark) { :root { --ground: #121212; --grey: #a3a9b3; --link: #79b0ff;
  --add: #58c27d; --del: #ff8a80; --warn: #e8a652; } }
body { font: 15px/1.45 system-ui, sans-serif; margin: 0; background: var(--ground); }
.nicegui-content { padding: 0; align-items: stretch; gap: 0; }
header.bar { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; align-items: baseline;
  padding: .6rem 1rem; border-bottom: 1px solid var(--line); }
header.bar a { font-weight: 500; } header.bar > a { font-weight: 700; }
.content, h1 { max-width: 1240px; width: 100%; margin: 0 auto; padding: 0 1rem 2rem; min-width: 0;
  box-sizing: border-box; }
h1 { font-size: 1.5rem; line-height: 1.25; padding: 1rem 1rem .25rem; font-weight: 600;
  overflow-wrap: anywhere; letter-spacing: normal; }
h2 { font-size: 1.1rem; line-height: 1.3; margin: 1.5rem 0 .4rem; font-weight: 600; }
a { color: var(--link); text-decoration: none; } a:hover { text-decoration: underline; }
.q-btn { --q-primary: var(--link); padding: .2rem .7rem; }
a:focus-visible, button:focus-visible, summary:focus-visible, .scroll:focus-visible {
  outline: 2px solid var(--link); outline-offset: 2px; }
.grey { color: var(--grey); }
.notice { border-left: 4px solid #d9822b; padding: .5rem .75rem; background: var(--soft);
  margin: .75rem 0; overflow-wrap: anywhere; white-space: pre-wrap; }
.notice:empty { display: none; }
.state { font-weight: 600; color: var(--grey); white-space: nowrap; }
.state::before { content: ""; display: inline-block; width: .6em; height: .6em; margin-right: .4em;
  border-radius: 50%; background: currentColor; }
.state[data-state=running], .state[data-state=ok] { color: var(--link); }
.state[data-state=finished] { color: var(--add); } .state[data-state=paused] { color: var(--warn); }
.state[data-state=failed], .state[data-state=missing] { color: var(--del); }
.tiles { display: flex; flex-wrap: wrap; gap: .5rem; margin: .75rem 0; }
.tile { border: 1px solid var(--line); border-radius: 6px; padding: .45rem .65rem;
  flex: 1 1 135px; max-width: 100%; }
.tile .value { font-size: 1.15rem; font-weight: 600; overflow-wrap: break-word; }
.tile .name, .tile .more { color: var(--grey); font-size: .85rem; }
.columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 33rem), 1fr));
  gap: 0 2.5rem; }
.columns > * { min-width: 0; }
.scroll { overflow-x: auto; max-width: 100%; }
table.plain { border-collapse: collapse; min-width: 50%; }
.columns table.plain { width: 100%; }
table.plain th { text-align: left; font-weight: 600; color: var(--grey); font-size: .85rem; }
table.plain th, table.plain td { padding: .28rem .9rem .28rem 0; vertical-align: top;
  border-bottom: 1px solid var(--line); }
table.plain th { vertical-align: bottom; } table.plain td.number { white-space: nowrap; }
table.plain td { max-width: 32rem; overflow-wrap: break-word; font-variant-numeric: tabular-nums; }
table.plain td a { white-space: nowrap; }
table.plain .number { text-align: right; } table.plain td.words { min-width: 15rem; }
table.plain tbody tr:hover { background: var(--soft); }
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
table.cross { min-width: 0; }
table.cross th, table.cross td { text-align: right; padding: .28rem .6rem; white-space: nowrap; }
table.cross th:first-child { text-align: left; }
.moves { overflow-wrap: anywhere; margin: .5rem 0; } .moves mark { padding: 0 .2rem; }
.chart { height: 360px; width: 100%; }
.actions { display: flex; flex-wrap: wrap; gap: .5rem; margin: .5rem 0; }
.links { display: flex; flex-wrap: wrap; gap: .25rem 1rem; margin: .35rem 0; }
td .links { margin: 0; }
.chart.low { height: 220px; }
@media (max-width: 500px) { .content, h1 { padding-inline: .75rem; } .chart { height: 300px; }
  table.plain { font-size: .9rem; } table.plain th, table.plain td { padding-right: .6rem; }
  .boards { grid-template-columns: repeat(2, 1fr); } }
"""


@dataclass(frozen=True, slots=True)
class Link:
    """A cell of a table, or an entry of a list, that leads to a page."""

    text: str
    to: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A cell of a table that names a state, in the colour of that state."""

    state: str


Cell = str | Link | Mark | tuple[Link, ...]


def program_link(run: int, program: ProgramId) -> Link:
    """Returns the link to a program's page by the beginning of its id."""
    return Link(program[:12], f"/run/{run}/program/{program}")


def opener(run: int, place: int) -> Callable[[EChartPointClickEventArguments], None]:
    """Returns a function that opens the page of the program whose point is clicked.

    Args:
      run: Its run.
      place: Of the program's id in the data of a point.
    """

    def open_program(click: EChartPointClickEventArguments) -> None:
        if isinstance(click.data, list) and len(click.data) > place:
            ui.navigate.to(f"/run/{run}/program/{click.data[place]}")

    return open_program


@contextmanager
def page(title: str) -> Iterator[None]:
    """Draws the bar above a page and its heading; its content goes inside.

    Bar and heading are part of the document, so that the browser paints them before it has run a
    script.
    """
    ui.page_title(f"{shown(title)} · Evoqueue")
    ui.add_head_html(f"<style>{STYLE}</style>")
    entries = "".join(f'<a href="{path}">{name}</a>' for path, name in NAVIGATION.items())
    bar = f'<a href="/">Evoqueue</a><nav class="links" aria-label="Pages">{entries}</nav>'
    ui.add_body_html(f'<header class="bar">{bar}</header><h1>{as_html(title)}</h1>')
    # The content lies inside the page, which is the element `main`.
    with ui.element("div").classes("content"):
        yield


@asynccontextmanager
async def late() -> AsyncIterator[None]:
    """Lets the browser paint bar and heading before what follows is read and drawn."""
    content = ui.context.slot.parent.props("aria-busy=true")
    await ui.context.client.connected()
    try:
        yield
    except Unavailable as error:
        say(f"{error}. Load this page again when it answers.", "notice")
    if "live" not in content.classes:
        content.props(remove="aria-busy")


def heading(text: str) -> None:
    """Draws the heading of a part of the page."""
    TextElement(tag="h2", text=text)


def columns() -> ui.element:
    """Draws the parts that follow inside it beside each other where there is room."""
    return ui.element("div").classes("columns")


@contextmanager
def section(name: str) -> Iterator[None]:
    """Draws a part of the page under its heading."""
    with ui.element("section"):
        heading(name)
        yield


def table(
    name: str,
    columns: Sequence[str],
    empty: str,
    *,
    numbers: Collection[str] = (),
    words: str = "",
) -> "Grid":
    """Draws a heading and, below it, a table of that name; see `Grid`."""
    heading(name)
    return Grid(columns, name=name, empty=empty, numbers=numbers, words=words)


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
        self._values: dict[str, tuple[ui.label, ui.label]] = {}
        with ui.element("div").classes("tiles"):
            for name in names:
                with ui.element("div").classes("tile"):
                    ui.label(name).classes("name")
                    self._values[name] = say("–", "value"), say("", "more")

    def show(self, **values: str | tuple[str, str]) -> None:
        """Changes the values of tiles, whose names are written with underscores here.

        A pair is a value and a remark below it.
        """
        for name, value in values.items():
            texts = (value, "") if isinstance(value, str) else value
            for element, text in zip(self._values[name.replace("_", " ")], texts, strict=True):
                set_text(element, text)


class Chart:
    """A chart, drawn when it is first shown: its script of 1 MB does not delay the first paint."""

    def __init__(
        self,
        name: str,
        on_click: Callable[[EChartPointClickEventArguments], None] | None = None,
        *,
        low: bool = False,
    ) -> None:
        """Keeps the room free.

        Args:
          name: What it shows, for screen readers.
          on_click: Called when a point is clicked.
          low: Whether it is less high than others.
        """
        self._on_click = on_click
        self._chart: ui.echart | None = None
        self._fault = say("", "notice")
        self._box = ui.element("div").classes("chart low" if low else "chart")
        self._box.props(f'role=img aria-label="{name}"')

    def show(self, options: Callable[[], dict[str, object]]) -> None:
        """Draws it anew, or says why it cannot be drawn; see `charts` for the options."""
        made = attempt("this chart", options)
        if isinstance(made, NotMade):
            set_text(self._fault, shown(made.text))
            return
        set_text(self._fault, "")
        if self._chart is None:
            with self._box:
                self._chart = ui.echart(made, on_point_click=self._on_click)
                self._chart.style("height: 100%")
            return
        self._chart.options.clear()
        self._chart.options.update(made)
        self._chart.update()


class Grid:
    """A table whose cells are changed in place, so that the focus stays where it is."""

    def __init__(
        self,
        columns: Sequence[str],
        *,
        name: str,
        empty: str,
        numbers: Collection[str] = (),
        words: str = "",
    ) -> None:
        """Keeps the place of a table, which is drawn with its first rows.

        Args:
          columns: Their headings.
          name: What it shows, for screen readers.
          empty: What is said while it has no rows.
          numbers: The columns that hold numbers, which are aligned at their ends.
          words: The column that holds sentences, which is never narrow.
        """
        self._columns = {
            column: "number" if column in numbers else "words" if column == words else ""
            for column in columns
        }
        self._body: ui.element | None = None
        self._rows: list[tuple[ui.element, list[ui.element]]] = []
        self._cells: list[list[Cell]] = []
        self._empty = say(empty, "grey")
        self._empty.set_visibility(False)
        self._box = ui.element("div").classes("scroll")
        self._box.props(f'tabindex=0 role=region aria-label="{name}"')
        self._box.set_visibility(False)

    def show(self, rows: Sequence[Sequence[Cell]]) -> None:
        """Replaces the rows."""
        self._empty.set_visibility(not rows)
        self._box.set_visibility(bool(rows))
        for row, before, (_, holders) in zip(rows, self._cells, self._rows, strict=False):
            for cell, known, holder in zip(row, before, holders, strict=True):
                if cell != known:
                    _fill(holder, cell)
        for line, _ in self._rows[len(rows) :]:
            line.delete()
        del self._rows[len(rows) :]
        for row in rows[len(self._rows) :]:
            self._body = self._body or self._draw()
            with self._body, ui.element("tr") as line:
                holders = [ui.element("td").classes(kind) for kind in self._columns.values()]
            for cell, holder in zip(row, holders, strict=True):
                _fill(holder, cell)
            self._rows.append((line, holders))
        self._cells = [list(row) for row in rows]

    def _draw(self) -> ui.element:
        with self._box, ui.element("table").classes("plain"):
            with ui.element("thead"), ui.element("tr"):
                for column, kind in self._columns.items():
                    TextElement(tag="th", text=column).classes(kind).props("scope=col")
            return ui.element("tbody")


def _fill(holder: ui.element, cell: Cell) -> None:
    """Shows a cell; an element that can show it is kept, so that the focus stays in it."""
    if isinstance(cell, tuple):
        holder.clear()
        with holder:
            links(cell)
        return
    children = holder.default_slot.children
    present = children[0] if children else None
    if isinstance(cell, Link):
        if isinstance(present, ui.link):
            set_text(present, cell.text)
            present.props["href"] = cell.to
            present.update()
            return
        holder.clear()
        with holder:
            ui.link(cell.text, cell.to)
        return
    if not isinstance(present, ui.label):
        holder.clear()
        with holder:
            present = ui.label()
    if isinstance(cell, Mark):
        mark(present, cell.state)
    else:
        set_text(present, cell)


def mark(element: ui.label, state: str) -> None:
    """Shows a state in its colour."""
    if element.text != state:
        element.classes("state").props(f'data-state="{state}"')
        element.set_text(state)


def set_text(element: TextElement, text: str) -> None:
    """Changes a text if it is another one: each change is a message to the browser."""
    if element.text != text:
        element.set_text(text)


def keep_live(refresh: Callable[[], Awaitable[None]], seconds: float = EVERY_SECONDS) -> None:
    """Calls `refresh` as soon as the browser has the page, and again and again.

    The page is painted before anything is read for it.  Says so while the ledger does not answer.
    """
    page_ = ui.context.slot.parent.props("aria-busy=true").classes("live")
    fault = say("", "notice").props("role=status")
    fault.set_visibility(False)
    client = ui.context.client

    async def attempt() -> None:
        if not client.has_socket_connection:
            # The page was left, and NiceGUI keeps it for a while because the browser may come back.
            return
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
        finally:
            if "aria-busy" in page_.props:
                page_.props(remove="aria-busy")

    ui.timer(seconds, attempt)
