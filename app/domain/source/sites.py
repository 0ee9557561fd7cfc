"""Sites: the expressions in a Python program's EVOLVE-BLOCK regions that may be replaced.

A replacement is made in the syntax tree.  Only the statement or header expression that contains it
is rendered anew; every other line of the text keeps its comments and its layout.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from app.domain.source import regions
from app.domain.source.syntax import argument_names, bound_names, nodes, number, syntax_tree

_SIZING = frozenset(
    (
        *("range", "arange", "linspace", "zeros", "ones", "empty", "full", "eye", "identity"),
        *("reshape", "tile", "repeat", "roll", "split", "partition", "argpartition", "argsort"),
        *("randint", "choice", "sample", "zip", "enumerate", "islice", "len", "round"),
    )
)
"""Calls whose integers are sizes, counts or positions rather than quantities."""


Anchor: TypeAlias = ast.stmt | ast.expr


class Site(NamedTuple):
    """An expression that may be replaced; a program has hundreds.

    Attributes:
      anchor: The statement or expression that is rendered anew when the node is replaced.
      names: Names that are bound where the expression stands.
      truth: Whether its form shows that its value is a truth value.
      exponent: Whether it is the right side of a power.
      structural: Whether it stands where sizes, positions and switches are expected.
    """

    node: ast.expr
    anchor: Anchor
    names: frozenset[str]
    truth: bool = False
    exponent: bool = False
    structural: bool = False


@dataclass(frozen=True, slots=True)
class SourceTree:
    """A parsed program together with its text.

    Attributes:
      encoded: The text in UTF-8: the tree's columns count bytes.
      starts: Byte offset of each line.
    """

    tree: ast.Module
    encoded: bytes
    starts: tuple[int, ...]
    regions: regions.Regions

    @classmethod
    def of(cls, text: str) -> "SourceTree":
        """Parses a program.

        Raises:
          SyntaxError, ValueError, RecursionError, MemoryError: The text is not Python.
        """
        starts = [0]
        for line in regions.lines(text):
            starts.append(starts[-1] + len(line.encode()))
        return cls(syntax_tree(text), text.encode(), tuple(starts), regions.parse(text))

    def within(self, node: Anchor) -> bool:
        """Returns whether every line of a node may change."""
        last = node.end_lineno or node.lineno
        return all(self.regions.holds(line - 1) for line in range(node.lineno, last + 1))

    def span(self, node: Anchor) -> tuple[int, int]:
        """Returns a node's first byte and the one after its last."""
        first = self.starts[node.lineno - 1] + node.col_offset
        return first, self.starts[(node.end_lineno or 1) - 1] + (node.end_col_offset or 0)

    def replaced(self, pairs: Sequence[tuple[Site, ast.expr]]) -> str:
        """Returns the text with each site's expression replaced.

        The call changes the tree, so it may be made once.
        """
        anchors: dict[tuple[int, int], Anchor] = {}
        for site, node in pairs:
            span = self.span(site.anchor)
            anchors[span] = _Replacement(site.node, node).visit(anchors.get(span, site.anchor))
        text = self.encoded
        for (first, end), anchor in sorted(anchors.items(), key=lambda item: item[0], reverse=True):
            text = text[:first] + ast.unparse(anchor).encode() + text[end:]
        return text.decode()


class _Replacement(ast.NodeTransformer):
    def __init__(self, old: ast.expr, new: ast.expr) -> None:
        self._old = old
        self._new = new

    def visit(self, node: ast.AST) -> Any:
        return self._new if node is self._old else self.generic_visit(node)


def sites(source: SourceTree) -> list[Site]:
    """Returns every replaceable expression of the regions, in the order of the text."""
    walk = _SiteWalk(source, bound_names(source.tree.body))
    return list(walk.statements(source.tree.body, frozenset()))


@dataclass(frozen=True, slots=True)
class _SiteWalk:
    """Finds the sites of a program's statements, with the names that are bound at each."""

    source: SourceTree
    module_names: frozenset[str]

    def statements(self, body: Sequence[ast.stmt], names: frozenset[str]) -> Iterator[Site]:
        for statement in body:
            yield from self._statement(statement, names)
            names = names | bound_names([statement])

    def _statement(self, statement: ast.stmt, names: frozenset[str]) -> Iterator[Site]:
        match statement:
            case ast.FunctionDef(args=arguments) | ast.AsyncFunctionDef(args=arguments):
                defaults = [d for d in (*arguments.defaults, *arguments.kw_defaults) if d]
                for default in defaults:
                    if number(default) is not None and self.source.within(default):
                        yield Site(default, default, frozenset())
                inner = self.module_names | names.union(argument_names(arguments))
                yield from self.statements(statement.body, inner)
            case ast.ClassDef():
                yield from self.statements(statement.body, names)
            case ast.Assign() | ast.AugAssign() | ast.AnnAssign() | ast.Return() | ast.Expr():
                if statement.value is not None and self.source.within(statement):
                    yield from _expressions(Site(statement.value, statement, names))
            case ast.If() | ast.While():
                yield from self._header(Site(statement.test, statement.test, names))
                yield from self._bodies(statement, names)
            case ast.For() | ast.AsyncFor():
                yield from self._header(
                    Site(statement.iter, statement.iter, names, structural=True)
                )
                yield from self._bodies(statement, names | _targets([statement.target]))
            case ast.With() | ast.AsyncWith() | ast.Try():
                yield from self._bodies(statement, names | bound_names([statement]))

    def _header(self, site: Site) -> Iterator[Site]:
        if self.source.within(site.anchor):
            yield from _expressions(site)

    def _bodies(self, statement: ast.stmt, names: frozenset[str]) -> Iterator[Site]:
        for field, value in ast.iter_fields(statement):
            if field in ("body", "orelse", "finalbody"):
                yield from self.statements(value, names)
            elif field == "handlers":
                for handler in value:
                    yield from self.statements(handler.body, names)


def _expressions(site: Site) -> Iterator[Site]:
    """Yields the site itself if it may be replaced, then the sites inside its expression."""
    node = site.node
    if _textual(node):
        return
    match node:
        case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
            yield site._replace(truth=True)
        case (
            ast.Name() | ast.Attribute() | ast.Call() | ast.Subscript() | ast.BinOp() | ast.IfExp()
        ):
            yield site
        case ast.UnaryOp():
            yield site
        case _ if number(node) is not None:
            yield site
    if number(node) is None:
        for inner in _operands(site):
            yield from _expressions(inner)


def _operands(site: Site) -> Iterator[Site]:
    """Yields the expressions one level below a site, whether or not they may be replaced."""
    site = site._replace(exponent=False)
    match site.node:
        case ast.Call(args=arguments, keywords=keywords) as call:
            sizing = site.structural or _called(call) in _SIZING
            for argument in arguments:
                yield site._replace(node=argument, structural=sizing)
            for keyword in keywords:
                integer = isinstance(number(keyword.value), int)  # axis=0, size=3
                yield site._replace(node=keyword.value, structural=sizing or integer)
        case ast.BinOp(left=left, op=op, right=right):
            yield site._replace(node=left)
            yield site._replace(node=right, exponent=isinstance(op, ast.Pow))
        case ast.BoolOp(values=parts) | ast.List(elts=parts) | ast.Tuple(elts=parts):
            for part in parts:
                yield site._replace(node=part)
        case ast.UnaryOp(operand=operand):
            yield site._replace(node=operand)
        case ast.Compare(left=left, comparators=others):
            for part in (left, *others):
                yield site._replace(node=part)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            for part in (test, body, orelse):
                yield site._replace(node=part)
        case ast.Lambda(args=arguments, body=body):
            yield site._replace(node=body, names=site.names.union(argument_names(arguments)))
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() as comprehension:
            bound = _targets([part.target for part in comprehension.generators])
            yield site._replace(node=comprehension.elt, names=site.names | bound)


def _targets(targets: Sequence[ast.expr]) -> frozenset[str]:
    return frozenset(
        node.id for target in targets for node in nodes(target) if isinstance(node, ast.Name)
    )


def _called(node: ast.Call) -> str:
    match node.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _textual(node: ast.expr) -> bool:
    """Returns whether an expression works on text or identity, where arithmetic has no meaning."""
    match node:
        case ast.BinOp(left=left, right=right):
            return any(isinstance(side, ast.JoinedStr) or _string(side) for side in (left, right))
        case ast.Compare(left=left, ops=ops, comparators=others):
            return any(
                isinstance(op, ast.In | ast.NotIn | ast.Is | ast.IsNot) for op in ops
            ) or any(_string(side) for side in (left, *others))
    return False


def _string(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
