"""Sites: the expressions in a Python program's EVOLVE-BLOCK regions that may be replaced.

A replacement is made in the syntax tree.  Only the statement or header expression that contains it
is rendered anew; every other line of the text keeps its comments and its layout.
"""

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from app.domain.source import regions
from app.domain.source.kinds.program import Kinds
from app.domain.source.kinds.values import Kind
from app.domain.source.syntax import (
    SHARED,
    argument_names,
    bound_names,
    called_name,
    nodes,
    number,
    shared_tree,
    with_replaced,
)

_SIZING = frozenset(
    (
        *("range", "arange", "linspace", "zeros", "ones", "empty", "full", "eye", "identity"),
        *("reshape", "tile", "repeat", "roll", "split", "partition", "argpartition", "argsort"),
        *("randint", "choice", "sample", "zip", "enumerate", "islice", "len", "round"),
    )
)
"""Calls whose integers are sizes, counts or positions rather than quantities."""

_IDENTITY = (ast.In, ast.NotIn, ast.Is, ast.IsNot)
Anchor: TypeAlias = ast.stmt | ast.expr


class Site(NamedTuple):
    """An expression that may be replaced; a program has hundreds.

    Attributes:
      anchor: The statement or expression that is rendered anew when the node is replaced.
      names: Names that are bound where the expression stands.
      truth: Whether its form shows that its value is a truth value.
      exponent: Whether it is the right side of a power.
      structural: Whether a size, a position or a switch is made from it, or a loop ends by it.
      whole: Whether it is an integer where a fraction would be of another type.
    """

    node: ast.expr
    anchor: Anchor
    names: frozenset[str]
    truth: bool = False
    exponent: bool = False
    structural: bool = False
    whole: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class SourceTree:
    """A parsed program together with its text.

    Attributes:
      tree: Shared; nobody may change it.
      encoded: The text in UTF-8: the tree's columns count bytes.
      starts: Byte offset of each line.
    """

    tree: ast.Module
    encoded: bytes
    starts: tuple[int, ...]
    regions: regions.Regions

    @classmethod
    @lru_cache(maxsize=SHARED)
    def of(cls, text: str) -> "SourceTree":
        """Parses a program.

        Raises:
          SyntaxError, ValueError, RecursionError, MemoryError: The text is not Python.
        """
        starts = [0]
        for line in regions.lines(text):
            starts.append(starts[-1] + len(line.encode()))
        return cls(shared_tree(text), text.encode(), tuple(starts), regions.parse(text))

    def within(self, node: Anchor) -> bool:
        """Returns whether every line of a node may change."""
        last = node.end_lineno or node.lineno
        return all(self.regions.holds(line - 1) for line in range(node.lineno, last + 1))

    def span(self, node: Anchor) -> tuple[int, int]:
        """Returns a node's first byte and the one after its last."""
        first = self.starts[node.lineno - 1] + node.col_offset
        return first, self.starts[(node.end_lineno or 1) - 1] + (node.end_col_offset or 0)

    def replaced(self, pairs: Sequence[tuple[Site, ast.expr]]) -> str:
        """Returns the text with each site's expression replaced."""
        new: dict[ast.AST, ast.AST] = {site.node: node for site, node in pairs}
        anchors = {self.span(site.anchor): site.anchor for site, _ in pairs}
        text = self.encoded
        for (first, end), anchor in sorted(anchors.items(), key=lambda item: item[0], reverse=True):
            text = text[:first] + ast.unparse(with_replaced(anchor, new)).encode() + text[end:]
        return text.decode()


@lru_cache(maxsize=SHARED)
def kinds(source: SourceTree) -> Kinds:
    """Returns the kinds of a program's values; shared, nobody may change them."""
    return Kinds(source.tree)


@lru_cache(maxsize=SHARED)
def sites(source: SourceTree) -> tuple[Site, ...]:
    """Returns every replaceable expression of the regions, in the order of the text."""
    walk = _SiteWalk(source, kinds(source), bound_names(source.tree.body))
    walk.statements(source.tree.body, frozenset())
    return tuple(walk.found)


@dataclass(frozen=True, slots=True)
class _SiteWalk:
    """Finds the sites of a program's statements, with the names that are bound at each."""

    source: SourceTree
    kinds: Kinds
    module_names: frozenset[str]
    found: list[Site] = field(default_factory=list)

    def statements(self, body: Sequence[ast.stmt], names: frozenset[str]) -> None:
        for n, statement in enumerate(body):
            if n > 0:
                names = names | bound_names([body[n - 1]])
            self._statement(statement, names)

    def _statement(self, statement: ast.stmt, names: frozenset[str]) -> None:
        match statement:
            case ast.FunctionDef(args=arguments) | ast.AsyncFunctionDef(args=arguments):
                defaults = [d for d in (*arguments.defaults, *arguments.kw_defaults) if d]
                for default in defaults:
                    if number(default) is not None and self.source.within(default):
                        self.found.append(Site(default, default, frozenset()))
                inner = self.module_names | names.union(argument_names(arguments))
                self.statements(statement.body, inner)
            case ast.ClassDef():
                self.statements(statement.body, names)
            case ast.Expr(value=ast.Call() as call):
                # The statement does not use the result of its call.
                if self.source.within(statement):
                    for operand in _operands(Site(call, statement, names)):
                        self._find(operand._replace(whole=not _takes_fractions(call)))
            case ast.Assign() | ast.AugAssign() | ast.AnnAssign() | ast.Return() | ast.Expr():
                if statement.value is not None:
                    whole = not isinstance(statement, ast.Return) or self._returns_whole(statement)
                    self._anchored(Site(statement.value, statement, names, whole=whole))
            case ast.If() | ast.While():
                endless = isinstance(statement, ast.While)
                self._anchored(Site(statement.test, statement.test, names, structural=endless))
                self._bodies(statement, names)
            case ast.For() | ast.AsyncFor():
                self._anchored(Site(statement.iter, statement.iter, names, structural=True))
                self._bodies(statement, names | _targets([statement.target]))
            case ast.With() | ast.AsyncWith() | ast.Try():
                self._bodies(statement, names | bound_names([statement]))

    def _returns_whole(self, statement: ast.Return) -> bool:
        scope = self.kinds.scopes.get(statement.value) if statement.value is not None else None
        return scope is None or scope.result is None or scope.result.kind is not Kind.REAL

    def _anchored(self, site: Site) -> None:
        if self.source.within(site.anchor):
            self._find(site)

    def _find(self, site: Site) -> None:
        """Adds the site itself if it may be replaced, then the sites inside its expression."""
        node = site.node
        integral = self.kinds.value(node).kind is Kind.INTEGER
        site = site._replace(
            structural=site.structural or node in self.kinds.sizes, whole=site.whole and integral
        )
        match node:
            case ast.Name():
                self.found.append(site)
                return
            case ast.Constant():
                if number(node) is not None:
                    self.found.append(site)
                return
            case ast.BinOp() | ast.Compare() if _textual(node):
                return
            case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                self.found.append(site._replace(truth=True))
            case (
                ast.BinOp() | ast.Call() | ast.Attribute() | ast.Subscript()
                | ast.UnaryOp() | ast.IfExp()
            ):  # fmt: skip
                self.found.append(site)
        whole = site.whole if _calculates(node) else not _takes_fractions(node)
        for inner in _operands(site):
            self._find(inner._replace(whole=whole))

    def _bodies(self, statement: ast.stmt, names: frozenset[str]) -> None:
        for name, value in ast.iter_fields(statement):
            if name in ("body", "orelse", "finalbody"):
                self.statements(value, names)
            elif name == "handlers":
                for handler in value:
                    self.statements(handler.body, names)


def _operands(site: Site) -> Sequence[Site]:
    """Returns the expressions one level below a site, whether or not they may be replaced."""
    node, anchor, names, structural = site.node, site.anchor, site.names, site.structural
    parts: Sequence[ast.expr] = ()
    match node:
        case ast.BinOp(left=left, op=op, right=right):
            power = isinstance(op, ast.Pow)
            return (
                Site(left, anchor, names, False, False, structural),
                Site(right, anchor, names, False, power, structural),
            )
        case ast.Call(args=arguments, keywords=keywords):
            sizing = structural or called_name(node) in _SIZING
            inner = [Site(argument, anchor, names, structural=sizing) for argument in arguments]
            for keyword in keywords:
                # An integer keyword such as `axis=0` or `size=3` is structural.
                integer = isinstance(number(keyword.value), int)
                inner.append(Site(keyword.value, anchor, names, structural=sizing or integer))
            return inner
        case ast.UnaryOp(operand=operand) if number(node) is None:
            parts = (operand,)
        case ast.BoolOp(values=elements) | ast.List(elts=elements) | ast.Tuple(elts=elements):
            parts = elements
        case ast.Compare(left=left, comparators=others):
            parts = (left, *others)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            parts = (test, body, orelse)
        case ast.Lambda(args=parameters, body=body):
            parts, names = (body,), names.union(argument_names(parameters))
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() as comprehension:
            parts = (comprehension.elt,)
            names = names | _targets([part.target for part in comprehension.generators])
    return [Site(part, anchor, names, structural=structural) for part in parts]


def _calculates(node: ast.expr) -> bool:
    """Returns whether the value of an expression is whole where its operands are."""
    match node:
        case ast.BinOp() | ast.UnaryOp() | ast.IfExp():
            return True
        case ast.Call():
            return called_name(node) in ("abs", "min", "max", "sum")
    return False


def _takes_fractions(node: ast.expr) -> bool:
    """Returns whether the operands of an expression may be any numbers."""
    match node:
        case ast.Compare():
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name(id="math"))):
            return True
        case ast.Call():
            return called_name(node) in ("float", "int", "round")
    return False


def _targets(targets: Sequence[ast.expr]) -> frozenset[str]:
    return frozenset(
        node.id for target in targets for node in nodes(target) if isinstance(node, ast.Name)
    )


def _textual(node: ast.expr) -> bool:
    """Returns whether an expression works on text or identity, where arithmetic has no meaning."""
    match node:
        case ast.BinOp(left=left, right=right):
            return _string(left) or _string(right) or ast.JoinedStr in (type(left), type(right))
        case ast.Compare(left=left, ops=ops, comparators=others):
            return any(isinstance(op, _IDENTITY) for op in ops) or any(
                _string(side) for side in (left, *others)
            )
    return False


def _string(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))
