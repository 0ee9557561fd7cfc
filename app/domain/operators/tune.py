"""The operator that moves a parent's numbers and asks an optimiser where to.

No optimiser state is kept anywhere: what was tried is read from the ledger each time.  Children of
the same parent, and inspirations, that differ from it in numbers only are points of one space.  A
parent without numbers is mutated instead.
"""

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from app.domain.evaluation import Failure, FailureKind
from app.domain.operator import Brief, Child, Conversation, Draft, Operator, ProgramRecord
from app.domain.operators.edit_sites import Site, Source, literal, number, sites
from app.domain.operators.mutate import mutated
from app.domain.program import Program
from app.domain.replies.interpretation import as_child, syntax_fault

SIBLINGS = 64
_DIMENSIONS = 40  # the largest space a few dozen trials can say anything about
_REACH = 0.3  # one unit of the optimiser's space, as a share of a number's size
_ATTEMPTS = 4


@dataclass(frozen=True, slots=True)
class Tried:
    """A point of the optimiser's space, and the fitness found there; higher is better."""

    vector: tuple[float, ...]
    fitness: float


@dataclass(frozen=True, slots=True)
class AskRequest:
    """What an optimiser is asked: one more point.

    Attributes:
      dimensions: At least one.  The parent is the origin; a unit is a sensible first step.
      history: What was tried, oldest first; holds the parent where its fitness is known.
      seed: Of everything random in the answer; 0 <= seed < 2**32.
    """

    dimensions: int
    history: tuple[Tried, ...]
    seed: int


Ask: TypeAlias = Callable[[AskRequest], tuple[float, ...]]
"""A pure function: the same request has the same answer."""


def tuner(ask: Ask) -> Operator:
    """Returns the operator `tune` over an optimiser."""

    def converse(brief: Brief) -> Conversation:
        yield from ()
        return [tuned(brief, draft, ask) for draft in brief.drafts]

    return Operator("tune", converse, asks_model=False, siblings=SIBLINGS)


def tuned(brief: Brief, draft: Draft, ask: Ask) -> Child:
    """Returns a draft's parent with its numbers where the optimiser wants them."""
    known = brief.known[draft.parents[0]]
    parent = known.program
    if parent.language != "python":
        return Failure(
            FailureKind.NO_CODE,
            f"The operator 'tune' reads Python, and this program is {parent.language!r}.",
        )
    fault = syntax_fault(parent)
    if fault is not None:
        return Failure(FailureKind.SYNTAX, f"The parent does not parse: {fault}")
    origin = numbers(parent)
    if not origin:
        return mutated(brief, draft)  # nothing to tune; a mutation may give it numbers
    relatives = [*(brief.known[one] for one in draft.inspirations), *reversed(brief.siblings)]
    rng = brief.rng(f"tune/{draft.ordinal}")
    chosen = sorted(rng.sample(range(len(origin)), min(len(origin), _DIMENSIONS)))
    history = _history([*relatives, known], parent, origin, chosen)
    child: Child | None = None
    for _ in range(_ATTEMPTS):  # whole numbers may round back to the parent's
        request = AskRequest(len(chosen), history, rng.getrandbits(32))
        values = _placed(origin, chosen, ask(request))
        source, note = _rewritten(parent, origin, values)
        child = as_child(source, parent, brief.edit, note)
        if not isinstance(child, Failure):
            return child
    assert child is not None
    return child


def numbers(program: Program) -> list[int | float]:
    """Returns the numbers that may be tuned, in the order of the text."""
    return [_value(site) for site in _tunable(Source.of(program.source))]


def skeleton(program: Program) -> str:
    """Returns what programs that differ only in tunable numbers have in common."""
    source = Source.of(program.source)
    kinds = {id(site.node): type(_value(site)).__name__ for site in _tunable(source)}
    return ast.dump(_Holes(kinds).visit(source.tree))


def _tunable(source: Source) -> list[Site]:
    """Returns the numbers worth moving: no positions, sizes, small exponents, nor 0, 1 and -1."""
    return [
        site
        for site in sites(source)
        if (value := number(site.node)) is not None
        and not site.structural
        and not (site.exponent and float(value).is_integer() and abs(value) <= 3)
        and not (isinstance(value, int) and abs(value) <= 1)
    ]


class _Holes(ast.NodeTransformer):
    """Puts a text that no program can mean as a number in the place of each tunable number."""

    def __init__(self, kinds: dict[int, str]) -> None:
        self._kinds = kinds

    def visit(self, node: ast.AST) -> ast.AST:
        kind = self._kinds.get(id(node))
        if kind is not None:
            return ast.Constant(f"tunable {kind}")
        visited: ast.AST = self.generic_visit(node)
        return visited


def _value(site: Site) -> int | float:
    value = number(site.node)
    assert value is not None
    return value


def _unit(value: int | float) -> float:
    """Returns how far one unit of the optimiser's space moves a number."""
    return max(abs(value), 0.3) * _REACH


def _history(
    relatives: Iterable[ProgramRecord],
    parent: Program,
    origin: Sequence[float],
    chosen: Sequence[int],
) -> tuple[Tried, ...]:
    shape = skeleton(parent)
    tried: list[Tried] = []
    seen: set[str] = set()
    for known in relatives:
        if known.fitness is None or known.program.id in seen or not _alike(known.program, shape):
            continue
        seen.add(known.program.id)
        values = numbers(known.program)
        vector = tuple((values[n] - origin[n]) / _unit(origin[n]) for n in chosen)
        tried.append(Tried(vector, known.fitness))
    return tuple(tried)


def _alike(program: Program, shape: str) -> bool:
    if program.language != "python" or syntax_fault(program) is not None:
        return False
    return skeleton(program) == shape


def _placed(
    origin: Sequence[int | float], chosen: Sequence[int], vector: Sequence[float]
) -> list[int | float]:
    values = list(origin)
    for place, step in zip(chosen, vector, strict=True):
        before = origin[place]
        moved = before + step * _unit(before)
        values[place] = round(moved) if isinstance(before, int) else float(f"{moved:.6g}")
    return values


def _rewritten(
    parent: Program, origin: Sequence[int | float], values: Sequence[int | float]
) -> tuple[str, str]:
    source = Source.of(parent.source)
    pairs = [
        (site, literal(after))
        for site, before, after in zip(_tunable(source), origin, values, strict=True)
        if before != after
    ]
    moves = [
        f"{before} to {after}"
        for before, after in zip(origin, values, strict=True)
        if before != after
    ]
    return source.replaced(pairs), "numbers moved: " + ", ".join(moves[:12])
