"""Sizes, positions and keys of a program, and the expressions that they are made from."""

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from app.domain.source.kinds.calls import LISTING
from app.domain.source.kinds.scopes import APPENDED, ELEMENT, Path, Scope
from app.domain.source.kinds.values import DEPTH
from app.domain.source.syntax import called_name, number

# Most steps of the search for sizes; fewer sizes are found in a program that needs more.
_MOST_STEPS = 20_000
_THROUGH = frozenset(("int", "round", "abs", "min", "max", "str", "chr", "floor", "ceil", "divmod"))
_ORDERINGS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


@dataclass(slots=True, eq=False)
class Sizes:
    """Follows sizes back to the expressions that they are made from.

    Attributes:
      functions: The program's functions by their names.
      nodes: The expressions from which sizes, positions and keys are made.
      names: The names among them, each with the name of its function.
    """

    functions: Mapping[str, Scope]
    nodes: set[ast.AST] = field(default_factory=set)
    names: set[tuple[str, str]] = field(default_factory=set)
    _left: int = _MOST_STEPS
    _seen: set[tuple[int, Path, int]] = field(default_factory=set)

    def follow_bounds(self, compared: Mapping[ast.Compare, Scope]) -> None:
        """Follows what bounds a position: a comparison such as `0 <= column < 7`."""
        for node, scope in compared.items():
            sides = (node.left, *node.comparators)
            if any(
                isinstance(side, ast.Name) and (scope.name, side.id) in self.names for side in sides
            ) and any(isinstance(op, _ORDERINGS) for op in node.ops):
                for side in sides:
                    self.follow(side, (), scope)

    def follow(self, node: ast.expr, path: Path, scope: Scope) -> None:
        """Marks an expression whose part at `path` becomes a size, and what that is made from."""
        key = (id(node), path, id(scope))
        if key in self._seen or self._left <= 0 or len(path) > DEPTH:
            return
        self._seen.add(key)
        self._left -= 1
        if not path:
            self.nodes.add(node)
        match node, path:
            case ast.Name(id=name), _:
                self._name(name, path, scope)
            case ast.List(elts=parts) | ast.Set(elts=parts) | ast.Tuple(elts=parts), (place, *rest):
                if isinstance(place, int) and -len(parts) <= place < len(parts):
                    parts = [parts[place]]
                self._all(parts, tuple(rest), scope)
            case ast.Dict(values=parts), (_, *rest):
                self._all(parts, tuple(rest), scope)
            case ast.Tuple(elts=parts), ():
                self._all(parts, (), scope)
            case ast.BinOp(left=left, op=op, right=right), _:
                if isinstance(op, ast.Mult) or not path:
                    self._all([left, right], path, scope)
            case ast.UnaryOp(operand=operand), ():
                self.follow(operand, (), scope)
            case ast.IfExp(body=body, orelse=other), _:
                self._all([body, other], path, scope)
            case ast.Subscript(value=value, slice=ast.Slice()), _:
                self.follow(value, path, scope)
            case ast.Subscript(value=value, slice=index), _:
                chosen = number(index)
                self.follow(value, (chosen if isinstance(chosen, int) else ELEMENT, *path), scope)
            case ast.ListComp(elt=part) | ast.GeneratorExp(elt=part) | ast.SetComp(elt=part), (
                _,
                *rest,
            ):
                self.follow(part, tuple(rest), scope)
            case ast.Call(), _:
                self._call(node, path, scope)

    def _all(self, parts: Iterable[ast.expr], path: Path, scope: Scope) -> None:
        for part in parts:
            self.follow(part, path, scope)

    def _name(self, name: str, path: Path, scope: Scope) -> None:
        holder = scope.holding(name)
        if holder is None:
            return
        if not path:
            self.names.add((holder.name, name))
        for (source, part), where in holder.sources.get(name, {}).items():
            if part[:1] == (APPENDED,):
                if path:
                    self.follow(source, (*part[1:], *path[1:]), where)
            else:
                self.follow(source, (*part, *path), where)

    def _call(self, node: ast.Call, path: Path, scope: Scope) -> None:
        name = called_name(node)
        match name, path:
            case "zip", (_, int() as place, *rest) if place < len(node.args):
                self.follow(node.args[place], (ELEMENT, *rest), scope)
            case "enumerate", (_, 1, *rest):
                self._all(node.args[:1], (ELEMENT, *rest), scope)
            case "range", (_,):
                self._all(node.args, (), scope)
            case (("min" | "max"), _) if len(node.args) == 1:
                self._all(node.args, (ELEMENT, *path), scope)
            case _ if name in LISTING or name in ("array", "asarray"):
                self._all(node.args[:1], path, scope)
            case _ if name in _THROUGH and len(path) < 2:
                self._all(node.args, (), scope)
            case _ if isinstance(node.func, ast.Name) and name in self.functions:
                function = self.functions[name]
                self._all(function.results, path, function)
