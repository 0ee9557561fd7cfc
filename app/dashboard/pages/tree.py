"""The page of a run's tree: the branches that led to its improvements, and counts of the rest."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from app.dashboard.pages.layout import keep_live, page, say, set_text
from app.dashboard.pages.sources import Sources
from app.dashboard.pages.text import as_html, counted, gain
from app.dashboard.reads import TreeDocument
from app.domain.digits import number_texts
from app.domain.run import Run
from app.domain.search.strategy import Ranking
from app.reports.lineage import TreeBranch, TreeNode, branches

MOST_DRAWN = 60
"""Newest programs of the branch of the best that are drawn at first; what is older, and the other
branches, when they are opened."""


def add(sources: Sources) -> None:
    """Adds the page."""

    @ui.page("/run/{name}/tree", response_timeout=30)
    async def tree_page(name: str) -> None:
        run = await sources.run(name)
        if run is None:
            return
        with page(f"Tree of {run.name}"):
            view = _TreeView(sources, run)
            keep_live(view.refresh, 2.0)


class _TreeView:
    """The elements of one viewer's page."""

    def __init__(self, sources: Sources, run: Run) -> None:
        """Draws them without a tree."""
        self._sources, self._run = sources, run
        self._drawn: TreeDocument | None = None
        with ui.element("div").classes("links"):
            ui.link(run.name, f"/run/{run.id}")
            self._lineage = ui.link("Lineage of the best", f"/run/{run.id}")
            self._lineage.set_visibility(False)
        self._news = say("", "notice").props("role=status")
        self._said = say("The tree is read.", "grey")
        self._box = ui.element("div").classes("scroll")
        self._box.props('tabindex=0 role=region aria-label="Tree"')

    async def refresh(self) -> None:
        course = (await self._sources.tail(self._run)).course
        improvements = list(course.improvements)
        if self._drawn is None:
            self._drawn = await self._sources.tree(self._run, improvements)
            self._draw(self._drawn, course.progress.told_apart)
        more = len(improvements) - self._drawn.improvements
        text = f"{more} new since this page was drawn: load it again to see them."
        set_text(self._news, text if more else "")

    def _draw(self, tree: TreeDocument, told_apart: Sequence[float | None]) -> None:
        set_text(self._said, _summary(tree))
        if tree.best:
            self._lineage.props(f'href="/run/{self._run.id}/lineage/{tree.best}"')
            self._lineage.set_visibility(True)
        fitness = [node.fitness for node in tree.nodes]
        texts = dict(zip(fitness, number_texts(fitness, told_apart), strict=True))
        drawing = _Drawing(self._run.id, self._run.ranking is Ranking.ABSOLUTE, texts)
        with self._box:
            for n, branch in enumerate(branches(tree.nodes, tree.best)):
                if n == 0:
                    drawing.draw_leading(branch)
                else:
                    _lazily(drawing.title(branch), partial(drawing.branch, branch))


def _summary(tree: TreeDocument) -> str:
    if not tree.nodes:
        return "No program has been measured yet: the tree begins with the seeds."
    marked = sum(node.improvement for node in tree.nodes)
    left = tree.improvements - marked
    newest = f"; {left:,} older or repeated ones are left out" if left else ""
    return (
        f"{counted(len(tree.nodes), 'program')} of {tree.measured:,} that were measured: those "
        f"that were the best of the run when they were measured ({marked:,}, marked by ★{newest}), "
        f"and their ancestors. The first branch leads to the best program; a line that goes "
        f"straight down is parent and child."
    )


@dataclass(frozen=True, slots=True)
class _Drawing:
    """The parts of a tree as HTML.

    Attributes:
      run: Number of the run.
      comparable: Whether numbers of parents and children are, so that a gain is shown.
      texts: The text of each fitness in the tree.
    """

    run: int
    comparable: bool
    texts: Mapping[float, str]

    def draw_leading(self, branch: TreeBranch) -> None:
        """Draws the newest programs of a branch, and folds the older ones and the sides."""
        older, newer = branch.nodes[:-MOST_DRAWN], branch.nodes[-MOST_DRAWN:]
        if older:
            first = replace(branch, nodes=older)
            sides = sum(side.size for node in older for side in branch.sides.get(node.program, ()))
            beside = f", and {counted(sides, 'program')} beside them" if sides else ""
            title = f"{counted(len(older), 'older program')} of this branch{beside}"
            _lazily(title, partial(self.branch, first))
        parent = older[-1] if older else None
        with ui.element("ol").classes("tree"):
            for node in newer:
                with ui.element("li").classes("best" if node.improvement else ""):
                    ui.html(self._node(node, parent), sanitize=False, tag="span")
                    for side in branch.sides.get(node.program, ()):
                        _lazily(self.title(side), partial(self.branch, side, node))
                parent = node

    def branch(self, branch: TreeBranch, parent: TreeNode | None = None) -> str:
        """Returns the list of a branch, with its sides in it."""
        return f'<ol class="tree">{"".join(self._items(branch, parent))}</ol>'

    def title(self, branch: TreeBranch) -> str:
        """Returns the line of a branch that is folded."""
        return f"branch of {counted(branch.size, 'program')}, best {self.texts[branch.best]}"

    def _items(self, branch: TreeBranch, parent: TreeNode | None) -> Iterator[str]:
        for node in branch.nodes:
            sides = "".join(self._side(side, node) for side in branch.sides.get(node.program, ()))
            kind = ' class="best"' if node.improvement else ""
            yield f"<li{kind}>{self._node(node, parent)}{sides}</li>"
            parent = node

    def _side(self, side: TreeBranch, parent: TreeNode) -> str:
        summary = f"<summary>{self.title(side)}</summary>"
        return f"<details>{summary}{self.branch(side, parent)}</details>"

    def _node(self, node: TreeNode, parent: TreeNode | None) -> str:
        facts = [
            gain(node.fitness, parent.fitness) if parent is not None and self.comparable else "",
            "seed" if node.ordinal < 0 else node.operator,
            f"island {node.island}",
            "" if node.ordinal < 0 else f"proposal {node.ordinal}",
            counted(node.others, "other child", "other children") if node.others else "",
        ]
        link = f'<a href="/run/{self.run}/program/{node.program}">{node.program[:12]}</a>'
        star = "★ " if node.improvement else ""
        text = as_html(" · ".join(fact for fact in facts if fact))
        return f'{star}<b>{self.texts[node.fitness]}</b> {link} <span class="grey">{text}</span>'


def _lazily(title: str, content: Callable[[], str]) -> None:
    """Draws a folded part whose content is made when it is opened."""
    with ui.element("details") as box:
        TextElement(tag="summary", text=title)

    def fill() -> None:
        if len(box.default_slot.children) == 1:
            with box:
                ui.html(content(), sanitize=False)

    box.on("toggle", fill)
