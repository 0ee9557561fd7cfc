"""Changes of the default search that `benchmarks.search` measures and the product does not have.

Each is an arm: the default settings with another choice of parents, another choice of operators, or
one operator more.  What pays becomes a part of the product and leaves this module.
"""

import ast
import copy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, TypeAlias

from app.domain.operator import Brief, Child, Conversation, Draft, Offspring, Operator
from app.domain.operators.mutate import mutated
from app.domain.program import Program, fingerprint
from app.domain.search.archive import Bred, Elite, IslandView
from app.domain.search.recipes.map_elites import CONTENDERS, PROMISING
from app.domain.search.strategy import Lineage, Move, Strategy, Upkeep
from app.domain.source.sites import SourceTree, sites
from app.domain.source.syntax import nodes, number

FITTEST = 10
EXPLORE = 0.05
COUNTED = 1000

PATIENCE = 10
"""That of a run of 100 proposals."""
Choose: TypeAlias = Callable[[IslandView], Elite]
"""Returns the parent."""


def leaving(island: IslandView) -> Elite:
    """Leaves the best for good once it has `PATIENCE` children."""
    best, *others = island.bred(PROMISING, COUNTED)
    fresh = [bred.elite for bred in others if bred.children < PATIENCE]
    if best.children < PATIENCE or not fresh:
        return best.elite
    return max(fresh[:CONTENDERS], key=lambda elite: elite.generation)


Weight: TypeAlias = Callable[[int, Bred, IslandView], float]
"""Takes the rank of a program, from 1, the program with its children, and its island."""


@dataclass(frozen=True)
class Ablation:
    """An arm.

    Attributes:
      weight: Draws the parent of all but `EXPLORE` of the children from the fittest, with these
        weights; None leaves it to the recipe.
      choose: Chooses the parent of all but `EXPLORE` of the children, whose parents are drawn from
        all cells; None leaves it to the recipe.
      stays: Share of the children whose parent is the fittest program, exhausted or not.
      resets: An island begins again from its oldest program once its best has a third of so many
        children, and its fittest have all of them together; 0 for never.
      bandit: Whether the operator is drawn by Thompson sampling of its share of improvements on the
        parent.
      tuned: Proposals by `tune` after each new best program.
      operators: Operators beside those of the mix, with their weights.
    """

    weight: Weight | None = None
    choose: Choose | None = None
    stays: float = 0.0
    resets: int = 0
    bandit: bool = False
    tuned: int = 0
    operators: Mapping[str, float] = field(default_factory=dict)

    def strategy(self, strategy: Strategy) -> Strategy:
        if self.resets:
            strategy = replace(strategy, upkeep=Upkeep(1, self._moves))
        return replace(strategy, selection=lambda island, rng: self._lineage(strategy, island, rng))

    def _lineage(self, strategy: Strategy, island: IslandView, rng: Random) -> Lineage:
        lineage = strategy.selection(island, rng)
        [parent] = lineage.parents
        if self.weight is not None and rng.random() >= EXPLORE:
            fittest = island.bred(FITTEST, COUNTED)
            weights = [self.weight(rank, bred, island) for rank, bred in enumerate(fittest, 1)]
            parent = rng.choices(fittest, weights)[0].elite
        elif self.choose is not None:
            explores = rng.random() < EXPLORE
            parent = island.uniform(1, rng)[0] if explores else self.choose(island)
        elif rng.random() < self.stays:
            [parent] = island.best(1)
        others = (elite for elite in lineage.inspirations if elite.program != parent.program)
        return Lineage((parent,), tuple(others))

    def _moves(self, islands: Sequence[IslandView], rng: Random) -> tuple[Move, ...]:
        return tuple(
            Move(founder, island.index, island.index, reset=True)
            for island in islands
            if self._stagnant(island.bred(FITTEST, self.resets // 3))
            and (founder := _first(island)) is not None
        )

    def _stagnant(self, fittest: Sequence[Bred]) -> bool:
        exhausted = fittest[0].children >= self.resets // 3
        return exhausted and sum(bred.children for bred in fittest) >= self.resets


def _first(island: IslandView) -> Elite | None:
    """Returns the elite of the fewest generations, if it is not the best."""
    first = min(island.best(COUNTED), key=lambda elite: elite.generation)
    return None if first == island.best(1)[0] else first


def _near(bred: Bred, island: IslandView) -> int:
    """Returns how many elites are in the cell of an elite or in a cell beside it."""
    cells = [elite.cell for elite in island.best(COUNTED)]
    return sum(
        all(abs(float(a) - float(b)) <= 1 for a, b in zip(cell, bred.elite.cell, strict=True))
        for cell in cells
    )


ABLATIONS = {
    "discounted": Ablation(lambda rank, bred, island: rank**-1.5 / (1 + bred.children)),
    "power": Ablation(lambda rank, bred, island: rank**-2.0),
    "novel": Ablation(lambda rank, bred, island: rank**-1.5 / _near(bred, island)),
    "leaves": Ablation(choose=leaving),
    "stays": Ablation(stays=0.25),
    "resets": Ablation(resets=30),
    "bandit": Ablation(bandit=True),
    "tuned": Ablation(tuned=4),
    "crossed": Ablation(operators={"cross": 0.25}),
}


class Choice:
    """Chooses the operators of one search."""

    def __init__(self, ablation: Ablation, mix: Mapping[str, float]) -> None:
        rest = 1.0 - sum(ablation.operators.values())
        self.mix = {name: weight * rest for name, weight in mix.items()}
        self.mix.update(ablation.operators)
        self._ablation = ablation
        self._better: Counter[str] = Counter()
        self._worse: Counter[str] = Counter()
        self._due = 0

    def operator(self, drawn: str, rng: Random) -> str:
        """Returns the operator of a proposal, for which the mix has drawn one."""
        if self._due:
            self._due -= 1
            return "tune"
        if not self._ablation.bandit:
            return drawn
        draws = [
            (rng.betavariate(1 + self._better[name], 1 + self._worse[name]), name)
            for name in sorted(self.mix)
        ]
        return max(draws)[1]

    def settled(self, operator: str, *, better: bool, best: bool) -> None:
        """Counts a child: whether it is better than its parent, and the best of its island."""
        (self._better if better else self._worse)[operator] += 1
        if best:
            self._due = self._ablation.tuned


def _crossed(brief: Brief, draft: Draft) -> Child:
    """Returns the parent with some, but not all, of the expressions in which an elite differs.

    Source: Poli & Langdon 1998, "On the search properties of different crossover operators in
    genetic programming", for uniform crossover in the places that two trees share.
    """
    parent, rng = brief.known[draft.parents[0]].program, brief.rng(f"cross/{draft.ordinal}")
    if not draft.inspirations:
        return mutated(brief, draft)
    source = SourceTree.of(parent.source)
    other = SourceTree.of(brief.known[rng.choice(draft.inspirations)].program.source).tree
    places = {id(site.node): site for site in sites(source)}
    pairs = [
        (places[id(ours)], copy.deepcopy(theirs))
        for ours, theirs in _differences(source.tree, other)
        if id(ours) in places and _free_names(theirs) <= _free_names(ours) | places[id(ours)].names
    ]
    if len(pairs) < 2:
        return mutated(brief, draft)  # a child with every difference is the other program
    child = Program(source.replaced(rng.sample(pairs, rng.randrange(1, len(pairs)))), "python")
    same = fingerprint(child) == fingerprint(parent)
    return mutated(brief, draft) if same else Offspring(child, "crossed with another program")


def _differences(ours: ast.AST, theirs: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yields the smallest expressions in which two trees differ."""
    if isinstance(ours, ast.expr) and isinstance(theirs, ast.expr):
        if number(ours) is not None or _form(ours) != _form(theirs):
            if ast.dump(ours) != ast.dump(theirs):
                yield ours, theirs
            return
    elif type(ours) is not type(theirs):
        return
    parts = zip(ast.iter_child_nodes(ours), ast.iter_child_nodes(theirs), strict=False)
    for one, other in parts:
        yield from _differences(one, other)


def _form(node: ast.expr) -> list[Any]:
    """Returns what an expression is, without the expressions that it consists of."""
    fields = [value if isinstance(value, list) else [value] for _, value in ast.iter_fields(node)]
    return [type(node), *([_leaf(part) for part in field] for field in fields)]


def _leaf(part: object) -> Any:
    if isinstance(part, ast.expr):
        return None
    return ast.dump(part) if isinstance(part, ast.AST) else part


def _converse(brief: Brief) -> Conversation:
    yield from ()
    return [_crossed(brief, draft) for draft in brief.drafts]


CROSS = Operator("cross", _converse, asks_model=False)


def _free_names(node: ast.expr) -> frozenset[str]:
    """Returns the names that an expression reads."""
    return frozenset(part.id for part in nodes(node) if isinstance(part, ast.Name))
