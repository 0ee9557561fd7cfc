"""The kinds of a program's expressions, read from its statements in the order of the text."""

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from app.domain.source.kinds.calls import of_builtin, of_math, of_method, of_numpy
from app.domain.source.kinds.scopes import APPENDED, ELEMENT, Path, Scope
from app.domain.source.kinds.sizes import Sizes
from app.domain.source.kinds.symbols import Symbols
from app.domain.source.kinds.values import (
    MIXED,
    NOTHING,
    TEXT,
    TRUTH,
    Kind,
    Value,
    all_joined,
    annotated,
    bounded,
    constant,
    joined,
)
from app.domain.source.syntax import FunctionNode, argument_names, called_name

# The statements are read twice: the second time with the kinds from below.
_PASSES = 2

_ADDING_METHODS = frozenset(("append", "add", "appendleft"))
_SIZING = frozenset(
    (
        *("range", "arange", "linspace", "zeros", "ones", "empty", "full", "eye", "identity"),
        *("reshape", "tile", "repeat", "roll", "split", "partition", "argpartition", "islice"),
        *("randint", "randrange", "sample", "choices", "combinations", "permutations"),
    )
)
_SIZING_KEYWORDS = frozenset(
    ("size", "shape", "axis", "axes", "k", "n", "repeat", "ndmin", "dtype")
)


@dataclass(slots=True, eq=False)
class Kinds:
    """The kinds of a program's expressions; see the package.

    Attributes:
      tree: The program.
      numpy: The name under which it imports numpy; "" where it does not.
      values: Expression to its value.
      scopes: Expression to the function in which it stands.
      sizes: The expressions from which sizes, positions and keys are made.
      sized: The names among them, each with the name of its function.
      functions: The program's functions by their names.
    """

    tree: ast.Module
    numpy: str = ""
    values: dict[ast.AST, Value] = field(default_factory=dict)
    scopes: dict[ast.AST, Scope] = field(default_factory=dict)
    sizes: set[ast.AST] = field(default_factory=set)
    sized: set[tuple[str, str]] = field(default_factory=set)
    functions: dict[str, Scope] = field(default_factory=dict)
    _inner: dict[ast.AST, Scope] = field(default_factory=dict)
    _sinks: dict[ast.expr, Scope] = field(default_factory=dict)
    _compared: dict[ast.Compare, Scope] = field(default_factory=dict)
    _nested: int = 0
    _symbols: Symbols = field(init=False)

    def __post_init__(self) -> None:
        self.numpy = _numpy(self.tree)
        self._symbols = Symbols(self.numpy)
        module = Scope("")
        for _ in range(_PASSES):
            self._statements(self.tree.body, module)
        self._find_sizes()
        self._symbols.final = True

    def value(self, node: ast.expr, scope: Scope | None = None) -> Value:
        """Returns the value of an expression.

        Args:
          node: One of the program, or another where `scope` is given.
          scope: The function in which it would stand; None means where it stands.
        """
        known = self.values.get(node)
        if scope is None or (known is not None and self.scopes[node] is scope):
            return NOTHING if known is None else self._symbols.resolved(known)
        return self._symbols.resolved(self._value(node, scope))

    def same(self, one: Value, other: Value) -> bool:
        """Returns whether two values are certainly of one type and one shape."""
        return self._symbols.same(one, other)

    def reaches(self, called: Iterable[str], scope: Scope) -> bool:
        """Returns whether a function would call itself if it called these, and does not yet."""
        scope = scope.outermost
        if not scope.name or scope.name in scope.calls:
            return False
        seen, ahead = set[str](), [name for name in called if name in self.functions]
        while ahead:
            name = ahead.pop()
            if name == scope.name:
                return True
            if name not in seen:
                seen.add(name)
                ahead += self.functions[name].calls & self.functions.keys()
        return False

    # Statements

    def _statements(self, body: Sequence[ast.stmt], scope: Scope) -> None:
        for statement in body:
            self._statement(statement, scope)

    def _statement(self, statement: ast.stmt, scope: Scope) -> None:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._function(statement, scope)
            case ast.ClassDef(body=body):
                self._statements(body, scope)
            case ast.Assign(targets=targets, value=value):
                known = self._value(value, scope)
                for target in targets:
                    self._bind(target, known, scope, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._bind(target, self._value(value, scope), scope, value)
            case ast.AugAssign(target=target, op=op, value=value):
                known = self._symbols.arithmetic(
                    op, self._value(target, scope), self._value(value, scope)
                )
                self._bind(target, known, scope, value)
            case ast.Return(value=ast.expr() as value):
                known = self._value(value, scope)
                scope.results[value] = None
                scope.result = known if scope.result is None else joined(scope.result, known)
            case (
                ast.For(target=target, iter=value, body=body, orelse=other)
                | ast.AsyncFor(target=target, iter=value, body=body, orelse=other)
            ):
                known = self._symbols.element(self._value(value, scope))
                self._bind(target, known, scope, value, (ELEMENT,))
                self._statements([*body, *other], scope)
            case (
                ast.If(test=test, body=body, orelse=other)
                | ast.While(test=test, body=body, orelse=other)
            ):
                self._value(test, scope)
                self._statements([*body, *other], scope)
            case ast.With(items=items, body=body) | ast.AsyncWith(items=items, body=body):
                for item in items:
                    self._value(item.context_expr, scope)
                    if item.optional_vars is not None:
                        self._bind(item.optional_vars, NOTHING, scope, item.context_expr)
                self._statements(body, scope)
            case ast.Try(body=body, handlers=handlers, orelse=other, finalbody=last):
                self._inside([*body, *other, *last], scope)
                for handler in handlers:
                    self._inside(handler.body, scope)
            case ast.Expr(value=value):
                self._value(value, scope)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                for alias in aliases:
                    scope.names.setdefault((alias.asname or alias.name).split(".")[0], MIXED)

    def _inside(self, body: Sequence[ast.stmt], scope: Scope) -> None:
        """Reads statements of which some may not be executed."""
        self._nested += 1
        self._statements(body, scope)
        self._nested -= 1

    def _function(self, function: FunctionNode, scope: Scope) -> None:
        inner = self._inner.get(function)
        arguments = function.args
        if inner is None:
            names = argument_names(arguments)
            inner = self._inner[function] = Scope(function.name, scope, names)
            for parameter in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                origin = Value(Kind.UNKNOWN, symbol=f"{function.name}.{parameter.arg}")
                inner.names[parameter.arg] = annotated(parameter.annotation, origin)
            for rest in (arguments.vararg, arguments.kwarg):
                if rest is not None:
                    inner.names[rest.arg] = MIXED
            if function.returns is not None:
                known = annotated(function.returns, NOTHING)
                inner.result = None if known == NOTHING else known
        positional = [*arguments.posonlyargs, *arguments.args]
        defaults = arguments.defaults
        for parameter, default in (
            *zip(positional[len(positional) - len(defaults) :], defaults, strict=True),
            *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
        ):
            if default is not None:
                known, before = self._value(default, scope), inner.names[parameter.arg]
                if before.kind is Kind.UNKNOWN and known.kind is not Kind.UNKNOWN:
                    inner.names[parameter.arg] = known
                inner.sources.setdefault(parameter.arg, {})[default, ()] = scope
        scope.names.setdefault(function.name, Value(Kind.UNKNOWN, symbol=f"def {function.name}"))
        self.functions[function.name] = inner
        nested, self._nested = self._nested, 0
        self._statements(function.body, inner)
        self._nested = nested

    def _bind(
        self, target: ast.expr, value: Value, scope: Scope, source: ast.expr, path: Path = ()
    ) -> None:
        """Joins a value to a target's; `path` says which part of `source` is assigned."""
        match target:
            case ast.Name(id=name):
                if self._symbols.final:
                    return
                before = scope.names.get(name)
                certain = self._nested == 0 and path[:1] != (APPENDED,)
                if certain and before is not None and before.kind is not value.kind:
                    scope.converted |= set() if before.scalar and value.scalar else {name}
                scope.names[name] = value if before is None or certain else joined(before, value)
                scope.sources.setdefault(name, {})[source, path] = scope
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                members = value.parts if value.kind is Kind.TUPLE else ()
                known = len(members) == len(targets)
                element = None if known else self._symbols.element(value)
                for n, part in enumerate(targets):
                    one = members[n] if element is None else element
                    self._bind(part, one, scope, source, (*path, n))
            case ast.Starred(value=inner):
                self._bind(inner, Value(Kind.LIST), scope, source, path)
            case ast.Subscript(value=ast.Name(id=name) as base):
                self._value(target, scope)
                holder = scope.holding(name)
                before = self._value(base, scope)
                if holder is not None and before.kind in (Kind.LIST, Kind.MAPPING):
                    after = joined(before, Value(before.kind, (value,)))
                    self._bind(base, after, holder, source, (APPENDED, *path))
            case _:
                self._value(target, scope)

    # Expressions

    def _value(self, node: ast.expr, scope: Scope) -> Value:
        found = self._symbols.resolved(self._of(node, scope))
        if not self._symbols.final:
            self.values[node] = found
            self.scopes[node] = scope
        return found

    def _of(self, node: ast.expr, scope: Scope) -> Value:
        match node:
            case ast.Constant(value=value):
                return constant(value)
            case ast.Name(id=name):
                holder = scope.holding(name)
                if self._symbols.final and holder is not None and name in holder.converted:
                    return MIXED
                return NOTHING if holder is None else holder.names[name]
            case ast.BinOp(left=left, op=op, right=right):
                one, other = self._value(left, scope), self._value(right, scope)
                if isinstance(op, ast.Mult) and not self._symbols.final:
                    # A list such as `[0.0] * n` has `n` elements.
                    repeated = {left: other, right: one}
                    listed = (Kind.LIST, Kind.TUPLE, Kind.TEXT)
                    self._sinks |= {n: scope for n, by in repeated.items() if by.kind in listed}
                return self._symbols.arithmetic(op, one, other)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self._value(operand, scope)
                return TRUTH
            case ast.UnaryOp(operand=operand):
                return self._symbols.number(self._value(operand, scope))
            case ast.Compare():
                return self._comparison(node, scope)
            case ast.BoolOp(values=parts):
                return all_joined([self._value(part, scope) for part in parts])
            case ast.IfExp(test=test, body=body, orelse=other):
                self._value(test, scope)
                return joined(self._value(body, scope), self._value(other, scope))
            case ast.Call():
                return self._call(node, scope)
            case ast.Attribute(value=value, attr=name):
                return self._symbols.attribute(self._value(value, scope), name)
            case ast.Subscript(value=value, slice=index):
                base = self._value(value, scope)
                self._sink(index, scope)
                return self._symbols.subscript(base, index)
            case ast.Lambda(args=arguments, body=body):
                for name in argument_names(arguments):
                    if not self._symbols.final:
                        scope.names.setdefault(name, Value(Kind.UNKNOWN, symbol=f"lambda.{name}"))
                self._value(body, scope)
                return Value(Kind.UNKNOWN, symbol="lambda")
            case ast.JoinedStr():
                return TEXT
            case ast.NamedExpr(target=target, value=value):
                named = self._value(value, scope)
                self._bind(target, named, scope, value)
                return named
            case ast.Starred(value=value) | ast.Await(value=value):
                self._value(value, scope)
            case _:
                return self._of_collection(node, scope)
        return MIXED

    def _of_collection(self, node: ast.expr, scope: Scope) -> Value:
        """Returns the value of a display or of a comprehension; of anything else, a mixed one."""
        match node:
            case ast.List(elts=parts) | ast.Set(elts=parts):
                known = [self._value(part, scope) for part in parts]
                return Value(Kind.LIST, (all_joined(known),) if known else ())
            case ast.Tuple(elts=parts):
                return bounded(Kind.TUPLE, tuple(self._value(part, scope) for part in parts))
            case ast.Dict(keys=keys, values=parts):
                for key in keys:
                    if key is not None:
                        self._value(key, scope)
                known = [self._value(part, scope) for part in parts]
                return Value(Kind.MAPPING, (all_joined(known),) if known else ())
            case ast.ListComp(elt=part) | ast.SetComp(elt=part) | ast.GeneratorExp(elt=part):
                self._comprehension(node.generators, scope)
                return bounded(Kind.LIST, (self._value(part, scope),))
            case ast.DictComp(key=key, value=part):
                self._comprehension(node.generators, scope)
                self._value(key, scope)
                return bounded(Kind.MAPPING, (self._value(part, scope),))
        return MIXED

    def _comprehension(self, generators: Sequence[ast.comprehension], scope: Scope) -> None:
        for part in generators:
            known = self._symbols.element(self._value(part.iter, scope))
            self._bind(part.target, known, scope, part.iter, (ELEMENT,))
            for test in part.ifs:
                self._value(test, scope)

    def _comparison(self, node: ast.Compare, scope: Scope) -> Value:
        sides = [self._value(side, scope) for side in (node.left, *node.comparators)]
        if any(side.numeric for side in sides):
            sides = [self._symbols.number(side) for side in sides]
        if not self._symbols.final:
            self._compared[node] = scope
        if any(isinstance(op, (ast.In, ast.NotIn, ast.Is, ast.IsNot)) for op in node.ops):
            return TRUTH
        arrays = [side for side in sides if side.kind is Kind.ARRAY]
        if not arrays:
            return TRUTH
        return Value(Kind.TRUTH, symbol=self._symbols.elementwise(arrays).symbol)

    def _sink(self, index: ast.expr, scope: Scope) -> None:
        """Reads an index or a size, and keeps it as one."""
        match index:
            case ast.Slice():
                parts = [part for part in (index.lower, index.upper, index.step) if part]
            case ast.Tuple(elts=parts):
                if not any(isinstance(part, ast.Slice) for part in parts):
                    self._value(index, scope)
            case _:
                parts = []
                self._value(index, scope)
                if not self._symbols.final:
                    self._sinks[index] = scope
        for part in parts:
            self._sink(part, scope)

    def _call(self, node: ast.Call, scope: Scope) -> Value:
        arguments = [self._value(part, scope) for part in node.args]
        sizing = called_name(node) in _SIZING
        if sizing and not self._symbols.final:
            first_only = called_name(node) in ("full", "sample")
            self._sinks |= dict.fromkeys(node.args[: 1 if first_only else None], scope)
        for keyword in node.keywords:
            self._value(keyword.value, scope)
            if keyword.arg in _SIZING_KEYWORDS and not self._symbols.final:
                self._sinks[keyword.value] = scope
        match node.func:
            case ast.Name(id=name) if name in self.functions and scope.holding(name):
                return self._own_call(node, self.functions[name], arguments, scope)
            case ast.Name(id=name):
                return of_builtin(self._symbols, name, arguments)
            case ast.Attribute(value=ast.Name(id="math"), attr=name):
                return of_math(self._symbols, name, arguments)
            case ast.Attribute(value=ast.Name(id=module), attr=name) if module == self.numpy != "":
                return of_numpy(self._symbols, node, name, arguments)
            case ast.Attribute(value=value, attr=name):
                base = self._value(value, scope)
                if name in _ADDING_METHODS and len(arguments) == 1:
                    self._append(node, base, arguments[0], scope)
                    return NOTHING
                return of_method(self._symbols, node, base, name, arguments)
        self._value(node.func, scope)
        return MIXED

    def _own_call(
        self, node: ast.Call, function: Scope, arguments: Sequence[Value], scope: Scope
    ) -> Value:
        if not self._symbols.final:
            scope.outermost.calls.add(function.name)
            given = [*zip(function.parameters, node.args, arguments, strict=False)]
            given += [
                (keyword.arg, keyword.value, self._value(keyword.value, scope))
                for keyword in node.keywords
                if keyword.arg in function.parameters
            ]
            if not any(isinstance(part, ast.Starred) for part in node.args):
                for name, part, value in given:
                    before = function.names[name]
                    known = before.kind is Kind.UNKNOWN and "." in before.symbol
                    function.names[name] = value if known else joined(before, value)
                    function.sources.setdefault(name, {})[part, ()] = scope
        return function.result or Value(Kind.UNKNOWN, symbol=f"{function.name}()")

    def _append(self, node: ast.Call, base: Value, added: Value, scope: Scope) -> None:
        match node.func:
            case ast.Attribute(value=ast.Name(id=name) as target) if base.kind is Kind.LIST:
                holder = scope.holding(name)
                if holder is not None:
                    value = bounded(Kind.LIST, (added,))
                    self._bind(target, value, holder, node.args[0], (APPENDED,))

    # Sizes

    def _find_sizes(self) -> None:
        found = Sizes(self.functions)
        for node, scope in self._sinks.items():
            found.follow(node, (), scope)
        found.follow_bounds(self._compared)
        self.sizes, self.sized = found.nodes, found.names


def _numpy(tree: ast.Module) -> str:
    for statement in tree.body:
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                if alias.name == "numpy":
                    return alias.asname or alias.name
    return ""
