"""The page of a run's tree: the branches that led to its improvements, and counts of the rest."""

from collections.abc import Iterator

from nicegui import ui

from app.dashboard.pages.layout import Link, heading, keep_live, links, page, say, set_text
from app.dashboard.pages.sources import Sources
from app.dashboard.pages.text import as_html, number
from app.dashboard.reads import TreeDocument
from app.domain.run import Run
from app.reports.lineage import Branch, TreeNode, branches


def add(sources: Sources) -> None:
    """Adds the page."""

    @ui.page("/run/{name}/tree", response_timeout=30)
    async def tree_page(name: str) -> None:
        run = await sources.run(name)
        if run is None:
            return
        tail = await sources.tail(run)
        tree = await sources.tree(run, list(tail.course.improvements))
        with page(f"Tree of {run.name}"):
            heading("Tree", 1)
            base = f"/run/{run.id}"
            best = [Link("Lineage of the best", f"{base}/lineage/{tree.best}")] if tree.best else []
            links([Link(run.name, base), *best])
            news = say("", "notice").props("role=status")
            say(_summary(tree), "grey")
            _draw(run, tree)

            async def refresh() -> None:
                more = len((await sources.tail(run)).course.improvements) - tree.improvements
                text = f"{more} new since this page was drawn: load it again to see them."
                set_text(news, text if more else "")

            await keep_live(refresh, 2.0)


def _summary(tree: TreeDocument) -> str:
    if not tree.nodes:
        return "No program has been admitted yet: the tree begins with the seeds."
    marked = sum(node.improvement for node in tree.nodes)
    left = tree.improvements - marked
    newest = f" ({left} older or repeated ones are left out)" if left else ""
    return (
        f"{len(tree.nodes):,} programs, of {tree.admitted:,} that were admitted: the {marked:,} "
        f"that were the best of the run when they were admitted, marked by ★{newest}, and their "
        f"ancestors. The first branch leads to the best program; a line that goes straight down "
        f"is parent and child."
    )


def _draw(run: Run, tree: TreeDocument) -> None:
    html = "".join(_branch(run, branch) for branch in branches(tree.nodes, tree.best))
    box = ui.html(html, sanitize=False, tag="div")
    box.classes("scroll").props('tabindex=0 role=region aria-label="Tree"')


def _branch(run: Run, branch: Branch, parent: TreeNode | None = None) -> str:
    """Returns the list of a branch, with its sides in it."""
    return f'<ol class="tree">{"".join(_items(run, branch, parent))}</ol>'


def _items(run: Run, branch: Branch, parent: TreeNode | None) -> Iterator[str]:
    for node in branch.nodes:
        sides = "".join(_side(run, side, node) for side in branch.sides.get(node.program, ()))
        kind = ' class="best"' if node.improvement else ""
        yield f"<li{kind}>{_node(run, node, parent)}{sides}</li>"
        parent = node


def _side(run: Run, side: Branch, parent: TreeNode) -> str:
    programs = _counted(side.size, "program")
    return (
        f"<details><summary>branch of {programs}, best {number(side.best)}</summary>"
        f"{_branch(run, side, parent)}</details>"
    )


def _node(run: Run, node: TreeNode, parent: TreeNode | None) -> str:
    facts = [
        "" if parent is None else f"{node.fitness - parent.fitness:+.4g}",
        "seed" if node.ordinal < 0 else node.operator,
        f"island {node.island}",
        "" if node.ordinal < 0 else f"proposal {node.ordinal}",
        _counted(node.others, "other child", "other children") if node.others else "",
    ]
    link = f'<a href="/run/{run.id}/program/{node.program}">{node.program[:12]}</a>'
    star = "★ " if node.improvement else ""
    text = as_html(" · ".join(fact for fact in facts if fact))
    return f'{star}<b>{number(node.fitness)}</b> {link} <span class="grey">{text}</span>'


def _counted(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"
