"""The tree of a run: what it shows, and how its branches are laid out."""

import math

from app.ports.history import Birth
from app.reports.lineage import TreeBranch, branches, tree


def birth(program: str, parent: str | None, fitness: float, children: int = 0) -> Birth:
    return Birth(program, parent, fitness, "tune", 0, int(fitness), children)


def deepest(found: list[TreeBranch]) -> int:
    sides = [side for branch in found for places in branch.sides.values() for side in places]
    return 1 + deepest(sides) if sides else 1


def names(branch: TreeBranch) -> str:
    return "".join(node.program for node in branch.nodes)


def test_a_tree_marks_improvements_and_counts_the_children_it_leaves_out():
    nodes = tree([birth("a", None, -3, 7), birth("b", "a", -2, 1), birth("c", "b", -1)], {"a", "c"})

    assert [node.improvement for node in nodes] == [True, False, True]
    assert [node.others for node in nodes] == [6, 0, 0]


def test_a_program_whose_parent_is_not_in_the_tree_is_a_root():
    [node] = tree([birth("a", "elsewhere", 1)], {"a"})

    assert node.parent is None


def test_the_first_branch_leads_to_the_best_program_and_others_leave_it():
    #   a ── b ── d ── f        e is the best, though b's side is the larger one
    #   └── c ── e   └── g
    nodes = tree(
        [
            birth("a", None, 1),
            birth("b", "a", 2),
            birth("c", "a", 3),
            birth("d", "b", 4),
            birth("e", "c", 9),
            birth("f", "d", 5),
            birth("g", "d", 6),
        ],
        set("abcdefg"),
    )

    [first] = branches(nodes, "e")

    assert names(first) == "ace"
    assert (first.size, first.best) == (7, 9)
    [side] = first.sides["a"]
    assert (names(side), side.size, side.best) == ("bdg", 4, 6)
    assert [names(each) for each in side.sides["d"]] == ["f"]


def test_the_best_of_a_branch_is_the_best_of_the_run_though_others_entered_with_more():
    nodes = tree([birth("a", None, 1), birth("b", "a", 9), birth("c", "a", 5)], set("abc"))

    [first] = branches(nodes, "c")

    assert (names(first), first.best) == ("ac", 5)
    assert first.sides["a"][0].best == 9


def test_a_deep_or_a_wide_tree_nests_few_branches():
    chain = [birth(str(n), str(n - 1) if n else None, n) for n in range(5000)]
    [line] = branches(tree(chain, {"4999"}), "4999")
    assert (len(line.nodes), line.sides) == (5000, {})

    binary = [birth(str(n), str((n - 1) // 2) if n else None, n) for n in range(4095)]
    found = branches(tree(binary, set()), "4094")
    assert deepest(found) <= math.log2(4095) + 2


def test_a_run_without_programs_has_no_branch():
    assert branches([], None) == []
