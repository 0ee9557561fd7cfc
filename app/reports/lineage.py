"""Tree of a run: the programs that were its best once, and the ancestors that led to them.

The other programs are counted, not shown, so that the tree of a long run stays small.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from app.domain.program import ProgramId
from app.ports.history import Birth


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A program of the tree.

    Attributes:
      parent: None of a root.
      improvement: Whether it became the best of the run.
      others: Its admitted children that are not in the tree.
    """

    program: ProgramId
    parent: ProgramId | None
    fitness: float
    operator: str
    island: int
    ordinal: int
    improvement: bool
    others: int


def tree(births: Sequence[Birth], improvements: Collection[ProgramId]) -> list[TreeNode]:
    """Returns the nodes of a tree, parents before their children.

    Args:
      births: Of the improvements and all their ancestors, parents first.
      improvements: Programs that became the best of the run.
    """
    known: set[ProgramId] = set()
    shown: dict[ProgramId, int] = {}
    parents: list[ProgramId | None] = []
    for birth in births:
        parent = birth.parent if birth.parent in known else None
        parents.append(parent)
        known.add(birth.program)
        if parent is not None:
            shown[parent] = shown.get(parent, 0) + 1
    return [
        TreeNode(
            program=birth.program,
            parent=parent,
            fitness=birth.fitness,
            operator=birth.operator,
            island=birth.island,
            ordinal=birth.ordinal,
            improvement=birth.program in improvements,
            others=birth.children - shown.get(birth.program, 0),
        )
        for birth, parent in zip(births, parents, strict=True)
    ]


@dataclass(slots=True)
class TreeBranch:
    """A line of descent: each node but the first is a child of the one before it.

    Attributes:
      sides: By program, the other branches that begin with a child of it, the largest first.
      size: Programs of the branch and of all its sides.
      best: The highest fitness among them; that of the best program of the run where it is one of
        them, for numbers of others need not be comparable with it.
    """

    nodes: list[TreeNode]
    sides: dict[ProgramId, list["TreeBranch"]] = field(default_factory=dict)
    size: int = 0
    best: float = float("-inf")


def branches(nodes: Sequence[TreeNode], best: ProgramId | None) -> list[TreeBranch]:
    """Returns the branches that begin with the roots of a tree, that of the best program first.

    A branch goes on with the child that leads to the best program, else with the one that has the
    most descendants; ties: the fitter, then the older.  So a program of a tree of n nodes lies at
    most log2(n) + 2 branches deep, whatever the depth of the tree.

    Args:
      nodes: Parents before their children.
      best: The best program of the run; None before there is one.
    """
    by_id = {node.program: node for node in nodes}
    sizes = dict.fromkeys(by_id, 1)
    highest = {node.program: (node.program == best, node.fitness) for node in nodes}
    children: dict[ProgramId | None, list[TreeNode]] = {}
    for node in reversed(nodes):
        children.setdefault(node.parent, []).append(node)
        if node.parent is not None:
            sizes[node.parent] += sizes[node.program]
            highest[node.parent] = max(highest[node.parent], highest[node.program])
    leading, at = set(), best
    while at in by_id and at not in leading:
        leading.add(at)
        at = by_id[at].parent

    def rank(node: TreeNode) -> tuple[bool, int, float, int]:
        return (
            node.program not in leading,
            -sizes[node.program],
            -node.fitness,
            node.ordinal,
        )

    found: list[TreeBranch] = []
    waiting = [(node, found) for node in sorted(children.get(None, ()), key=rank)]
    # The list grows while it is read: side branches come after their branch.
    for first, place in waiting:
        branch = TreeBranch([], size=sizes[first.program], best=highest[first.program][1])
        place.append(branch)
        line = [first]
        while line:
            end, line = line[0], sorted(children.get(line[0].program, ()), key=rank)
            branch.nodes.append(end)
            if line[1:]:
                sides = branch.sides.setdefault(end.program, [])
                waiting += [(other, sides) for other in line[1:]]
    return found
