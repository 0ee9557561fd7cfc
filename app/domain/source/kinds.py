"""Kinds of values in a Python program, as far as its text shows them, and its sizes and positions.

Nothing is run.  An assignment replaces the kind of a name; one inside a `try` is joined to it, and
so is an element that is added.  A value of which nothing is known has a symbol for where it
comes from, such as a parameter or an element of it, so that equal symbols mean values of one type.
Arrays that the program itself combines element by element are of one shape, and others are not.
"""

import ast
import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from app.domain.source.syntax import FunctionNode, argument_names, called_name, number

# The statements are read twice: the second time with the kinds from below.
_PASSES = 2
# Most steps of the search for sizes; fewer sizes are found in a program that needs more.
_MOST_STEPS = 20_000
# Most types inside types: a list can be appended to itself.
_DEPTH = 12

_REAL_CALLS = frozenset(
    ("float", "uniform", "gauss", "normalvariate", "betavariate", "expovariate")
)
_INTEGER_CALLS = frozenset(("int", "len", "ord", "hash", "randint", "randrange"))
_TEXT_CALLS = frozenset(("str", "chr", "repr", "format", "hex", "bin"))
_TRUTH_CALLS = frozenset(("bool", "isinstance", "any", "all", "callable", "hasattr"))
_LISTING = frozenset(("list", "sorted", "set", "tuple", "reversed", "frozenset", "deque", "iter"))
_INTEGERS_OF_MATH = frozenset(
    ("floor", "ceil", "trunc", "comb", "factorial", "gcd", "isqrt", "lcm")
)
_ELEMENTWISE = frozenset(
    (
        *("abs", "absolute", "sqrt", "cbrt", "exp", "exp2", "expm1", "log", "log2", "log10"),
        *("log1p", "square", "minimum", "maximum", "where", "clip", "sin", "cos", "tan", "tanh"),
        *("arctan", "arctan2", "power", "floor", "ceil", "sign", "add", "subtract", "multiply"),
        *("divide", "hypot", "fmin", "fmax", "interp", "nan_to_num", "round", "mod", "reciprocal"),
    )
)
_REDUCTIONS = frozenset(
    ("sum", "mean", "min", "max", "std", "var", "prod", "median", "amin", "amax")
)
_LIKE = frozenset(
    ("zeros_like", "ones_like", "full_like", "empty_like", "asarray", "array", "copy")
)
_TEXT_METHODS = frozenset(
    ("lower", "upper", "strip", "lstrip", "rstrip", "replace", "join", "title")
)
_TRUTH_METHODS = frozenset(
    ("isdigit", "isalpha", "isupper", "islower", "startswith", "endswith", "isspace", "isalnum")
)
_COUNTING_METHODS = frozenset(("count", "index", "find", "rfind", "bit_length"))
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
_THROUGH = frozenset(("int", "round", "abs", "min", "max", "str", "chr", "floor", "ceil", "divmod"))
_ORDERINGS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


class Kind(enum.Enum):
    """What a value is."""

    INTEGER = enum.auto()
    REAL = enum.auto()
    TRUTH = enum.auto()
    TEXT = enum.auto()
    LIST = enum.auto()
    TUPLE = enum.auto()
    MAPPING = enum.auto()
    ARRAY = enum.auto()
    UNKNOWN = enum.auto()


@dataclass(frozen=True, slots=True)
class Value:
    """What is known of a value.

    Attributes:
      parts: The kind of the elements of a list and of the values of a mapping, if it is known; the
        kinds of the members of a tuple.
      symbol: The shape of an array, and of a truth value that was made from one; the origin of an
        unknown value.
    """

    kind: Kind
    parts: tuple["Value", ...] = ()
    symbol: str = ""

    @property
    def scalar(self) -> bool:
        """Whether it is one number."""
        return self.kind in (Kind.INTEGER, Kind.REAL)

    @property
    def numeric(self) -> bool:
        """Whether arithmetic has a meaning for it."""
        return self.scalar or self.kind is Kind.ARRAY


INTEGER, REAL, TRUTH, TEXT = (
    Value(kind) for kind in (Kind.INTEGER, Kind.REAL, Kind.TRUTH, Kind.TEXT)
)
_NOTHING = Value(Kind.UNKNOWN, symbol="None")
_MIXED = Value(Kind.UNKNOWN, symbol="mixed")
_ELEMENT = "element"
Path: TypeAlias = tuple[int | str, ...]
"""Which part of a value: `_ELEMENT` for any element, an integer for a member of a tuple."""
_APPENDED = "appended"


@dataclass(slots=True, eq=False)
class Scope:
    """A function, or the module, with the kinds of its names.

    Attributes:
      sources: Name to the expressions that are assigned to it, each with the part that is.
      results: The expressions that it returns.
      converted: Names whose kind changes from one line to the next.
    """

    name: str
    parent: "Scope | None" = None
    parameters: tuple[str, ...] = ()
    names: dict[str, Value] = field(default_factory=dict)
    sources: dict[str, dict[tuple[ast.expr, Path], "Scope"]] = field(default_factory=dict)
    results: dict[ast.expr, None] = field(default_factory=dict)
    result: Value | None = None
    calls: set[str] = field(default_factory=set)
    converted: set[str] = field(default_factory=set)

    @property
    def outermost(self) -> "Scope":
        """The function of the module that it is part of; what it calls counts as called by that."""
        scope = self
        while scope.parent is not None and scope.parent.parent is not None:
            scope = scope.parent
        return scope

    def holding(self, name: str) -> "Scope | None":
        """Returns the scope that binds a name; None for a builtin and an unknown name."""
        scope: Scope | None = self
        while scope is not None and name not in scope.names:
            scope = scope.parent
        return scope


@dataclass(slots=True, eq=False)
class Kinds:
    """The kinds of a program's expressions.

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
    _numbers: set[str] = field(default_factory=set)
    _shapes: dict[str, str] = field(default_factory=dict)
    _sinks: dict[ast.expr, Scope] = field(default_factory=dict)
    _compared: dict[ast.Compare, Scope] = field(default_factory=dict)
    _nested: int = 0
    _read: bool = False

    def __post_init__(self) -> None:
        self.numpy = _numpy(self.tree)
        module = Scope("")
        for _ in range(_PASSES):
            self._statements(self.tree.body, module)
        self._find_sizes()
        self._read = True

    def value(self, node: ast.expr, scope: Scope | None = None) -> Value:
        """Returns the value of an expression.

        Args:
          node: One of the program, or another where `scope` is given.
          scope: The function in which it would stand; None means where it stands.
        """
        known = self.values.get(node)
        if scope is None or (known is not None and self.scopes[node] is scope):
            return _NOTHING if known is None else self._resolved(known)
        return self._resolved(self._value(node, scope))

    def same(self, one: Value, other: Value) -> bool:
        """Returns whether two values are certainly of one type and one shape."""
        if one.kind is not other.kind or len(one.parts) != len(other.parts):
            return False
        if one.kind is Kind.UNKNOWN:
            return one.symbol == other.symbol and one not in (_MIXED, _NOTHING)
        if self._shape(one.symbol) != self._shape(other.symbol):
            return False
        return all(map(self.same, one.parts, other.parts))

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
                known = self._arithmetic(op, self._value(target, scope), self._value(value, scope))
                self._bind(target, known, scope, value)
            case ast.Return(value=ast.expr() as value):
                known = self._value(value, scope)
                scope.results[value] = None
                scope.result = known if scope.result is None else _joined(scope.result, known)
            case (
                ast.For(target=target, iter=value, body=body, orelse=other)
                | ast.AsyncFor(target=target, iter=value, body=body, orelse=other)
            ):
                known = self._element(self._value(value, scope))
                self._bind(target, known, scope, value, (_ELEMENT,))
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
                        self._bind(item.optional_vars, _NOTHING, scope, item.context_expr)
                self._statements(body, scope)
            case ast.Try(body=body, handlers=handlers, orelse=other, finalbody=last):
                self._inside([*body, *other, *last], scope)
                for handler in handlers:
                    self._inside(handler.body, scope)
            case ast.Expr(value=value):
                self._value(value, scope)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                for alias in aliases:
                    scope.names.setdefault((alias.asname or alias.name).split(".")[0], _MIXED)

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
                inner.names[parameter.arg] = _annotated(parameter.annotation, origin)
            for rest in (arguments.vararg, arguments.kwarg):
                if rest is not None:
                    inner.names[rest.arg] = _MIXED
            if function.returns is not None:
                known = _annotated(function.returns, _NOTHING)
                inner.result = None if known == _NOTHING else known
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
                if self._read:
                    return
                before = scope.names.get(name)
                certain = self._nested == 0 and path[:1] != (_APPENDED,)
                if certain and before is not None and before.kind is not value.kind:
                    scope.converted |= set() if before.scalar and value.scalar else {name}
                scope.names[name] = value if before is None or certain else _joined(before, value)
                scope.sources.setdefault(name, {})[source, path] = scope
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                members = value.parts if value.kind is Kind.TUPLE else ()
                known = len(members) == len(targets)
                element = None if known else self._element(value)
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
                    after = _joined(before, Value(before.kind, (value,)))
                    self._bind(base, after, holder, source, (_APPENDED, *path))
            case _:
                self._value(target, scope)

    # Expressions

    def _value(self, node: ast.expr, scope: Scope) -> Value:
        found = self._resolved(self._of(node, scope))
        if not self._read:
            self.values[node] = found
            self.scopes[node] = scope
        return found

    def _of(self, node: ast.expr, scope: Scope) -> Value:
        match node:
            case ast.Constant(value=value):
                return _constant(value)
            case ast.Name(id=name):
                holder = scope.holding(name)
                if self._read and holder is not None and name in holder.converted:
                    return _MIXED
                return _NOTHING if holder is None else holder.names[name]
            case ast.BinOp(left=left, op=op, right=right):
                one, other = self._value(left, scope), self._value(right, scope)
                if isinstance(op, ast.Mult) and not self._read:
                    # A list such as `[0.0] * n` has `n` elements.
                    repeated = {left: other, right: one}
                    listed = (Kind.LIST, Kind.TUPLE, Kind.TEXT)
                    self._sinks |= {n: scope for n, by in repeated.items() if by.kind in listed}
                return self._arithmetic(op, one, other)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self._value(operand, scope)
                return TRUTH
            case ast.UnaryOp(operand=operand):
                return self._number(self._value(operand, scope))
            case ast.Compare():
                return self._comparison(node, scope)
            case ast.BoolOp(values=parts):
                return _all_joined([self._value(part, scope) for part in parts])
            case ast.IfExp(test=test, body=body, orelse=other):
                self._value(test, scope)
                return _joined(self._value(body, scope), self._value(other, scope))
            case ast.Call():
                return self._call(node, scope)
            case ast.Attribute(value=value, attr=name):
                return self._attribute(self._value(value, scope), name)
            case ast.Subscript(value=value, slice=index):
                return self._subscript(self._value(value, scope), index, scope)
            case ast.Lambda(args=arguments, body=body):
                for name in argument_names(arguments):
                    if not self._read:
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
        return _MIXED

    def _of_collection(self, node: ast.expr, scope: Scope) -> Value:
        """Returns the value of a display or of a comprehension; of anything else, a mixed one."""
        match node:
            case ast.List(elts=parts) | ast.Set(elts=parts):
                known = [self._value(part, scope) for part in parts]
                return Value(Kind.LIST, (_all_joined(known),) if known else ())
            case ast.Tuple(elts=parts):
                return _bounded(Kind.TUPLE, tuple(self._value(part, scope) for part in parts))
            case ast.Dict(keys=keys, values=parts):
                for key in keys:
                    if key is not None:
                        self._value(key, scope)
                known = [self._value(part, scope) for part in parts]
                return Value(Kind.MAPPING, (_all_joined(known),) if known else ())
            case ast.ListComp(elt=part) | ast.SetComp(elt=part) | ast.GeneratorExp(elt=part):
                self._comprehension(node.generators, scope)
                return _bounded(Kind.LIST, (self._value(part, scope),))
            case ast.DictComp(key=key, value=part):
                self._comprehension(node.generators, scope)
                self._value(key, scope)
                return _bounded(Kind.MAPPING, (self._value(part, scope),))
        return _MIXED

    def _comprehension(self, generators: Sequence[ast.comprehension], scope: Scope) -> None:
        for part in generators:
            known = self._element(self._value(part.iter, scope))
            self._bind(part.target, known, scope, part.iter, (_ELEMENT,))
            for test in part.ifs:
                self._value(test, scope)

    def _arithmetic(self, op: ast.operator, left: Value, right: Value) -> Value:
        match op:
            case ast.Sub() | ast.Div() | ast.Pow() | ast.FloorDiv():
                left, right = self._number(left), self._number(right)
            case ast.Mult() | ast.Mod() if left.kind not in (Kind.TEXT, Kind.LIST):
                if right.kind not in (Kind.TEXT, Kind.LIST, Kind.TUPLE, Kind.MAPPING):
                    left, right = self._number(left), self._number(right)
            case ast.Add() if left.numeric:
                right = self._number(right)
            case ast.Add() if right.numeric:
                left = self._number(left)
        for one, other in ((left, right), (right, left)):
            if one.kind in (Kind.TEXT, Kind.LIST):
                return _joined(one, other) if isinstance(op, ast.Add) else one
        if not (left.numeric or left == TRUTH) or not (right.numeric or right == TRUTH):
            return left if left == right else _MIXED
        if isinstance(op, ast.MatMult):
            return _array(f"{left.symbol}@{right.symbol}")
        if Kind.ARRAY in (left.kind, right.kind):
            return self._elementwise((left, right))
        integers = Kind.REAL not in (left.kind, right.kind) and not isinstance(op, ast.Div)
        return INTEGER if integers else REAL

    def _comparison(self, node: ast.Compare, scope: Scope) -> Value:
        sides = [self._value(side, scope) for side in (node.left, *node.comparators)]
        if any(side.numeric for side in sides):
            sides = [self._number(side) for side in sides]
        if not self._read:
            self._compared[node] = scope
        if any(isinstance(op, (ast.In, ast.NotIn, ast.Is, ast.IsNot)) for op in node.ops):
            return TRUTH
        arrays = [side for side in sides if side.kind is Kind.ARRAY]
        return Value(Kind.TRUTH, symbol=self._elementwise(arrays).symbol) if arrays else TRUTH

    def _attribute(self, base: Value, name: str) -> Value:
        if name in ("pi", "e", "inf", "tau", "real"):
            return REAL
        if name == "shape":
            return Value(Kind.LIST, (INTEGER,))
        if name in ("size", "ndim"):
            return INTEGER
        if base.kind is Kind.ARRAY:
            return _array(f"{self._shape(base.symbol)}.{name}")
        return Value(Kind.UNKNOWN, symbol=f"{base.symbol or base.kind.name}.{name}")

    def _subscript(self, base: Value, index: ast.expr, scope: Scope) -> Value:
        self._sink(index, scope)
        match base.kind:
            case Kind.TEXT:
                return TEXT
            case Kind.ARRAY:
                return _array(f"{self._shape(base.symbol)}[{_axes(index)}]")
            case Kind.LIST if isinstance(index, ast.Slice):
                return base
            case Kind.UNKNOWN if isinstance(index, ast.Slice) and base not in (_MIXED, _NOTHING):
                return Value(Kind.UNKNOWN, symbol=f"{base.symbol}[:]")
            case Kind.TUPLE if isinstance(place := number(index), int):
                return base.parts[place] if -len(base.parts) <= place < len(base.parts) else _MIXED
        return base.parts[0] if base.kind is Kind.MAPPING and base.parts else self._element(base)

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
                if not self._read:
                    self._sinks[index] = scope
        for part in parts:
            self._sink(part, scope)

    def _call(self, node: ast.Call, scope: Scope) -> Value:
        arguments = [self._value(part, scope) for part in node.args]
        sizing = called_name(node) in _SIZING
        for n, part in enumerate(node.args):
            if (
                sizing
                and not self._read
                and not (n > 0 and called_name(node) in ("full", "sample"))
            ):
                self._sinks[part] = scope
        for keyword in node.keywords:
            self._value(keyword.value, scope)
            if keyword.arg in _SIZING_KEYWORDS and not self._read:
                self._sinks[keyword.value] = scope
        match node.func:
            case ast.Name(id=name) if name in self.functions and scope.holding(name):
                return self._own_call(node, self.functions[name], arguments, scope)
            case ast.Name(id=name):
                return self._builtin(name, arguments)
            case ast.Attribute(value=ast.Name(id="math"), attr=name):
                numbers = [self._number(part) for part in arguments]
                if name.startswith("is") and name != "isqrt":
                    return TRUTH
                return INTEGER if name in _INTEGERS_OF_MATH and numbers else REAL
            case ast.Attribute(value=ast.Name(id=module), attr=name) if module == self.numpy != "":
                return self._numpy_call(node, name, arguments)
            case ast.Attribute(value=base, attr=name):
                return self._method(node, self._value(base, scope), name, arguments, scope)
        self._value(node.func, scope)
        return _MIXED

    def _own_call(
        self, node: ast.Call, function: Scope, arguments: Sequence[Value], scope: Scope
    ) -> Value:
        if not self._read:
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
                    function.names[name] = value if known else _joined(before, value)
                    function.sources.setdefault(name, {})[part, ()] = scope
        return function.result or Value(Kind.UNKNOWN, symbol=f"{function.name}()")

    def _builtin(self, name: str, arguments: Sequence[Value]) -> Value:
        first = arguments[0] if arguments else _NOTHING
        match name:
            case "abs" | "pow":
                return self._number(first)
            case "round":
                return INTEGER if len(arguments) == 1 else REAL
            case "min" | "max" if len(arguments) > 1:
                if any(part.numeric for part in arguments):
                    arguments = [self._number(part) for part in arguments]
                return _all_joined(arguments)
            case "min" | "max":
                return self._element(first)
            case "sum":
                found = self._number(self._element(first))
                return found if found.numeric else REAL
            case "range":
                return Value(Kind.LIST, (INTEGER,))
            case "zip":
                return Value(
                    Kind.LIST, (_bounded(Kind.TUPLE, tuple(map(self._element, arguments))),)
                )
            case "enumerate":
                return Value(Kind.LIST, (_bounded(Kind.TUPLE, (INTEGER, self._element(first))),))
            case "divmod":
                return Value(Kind.TUPLE, (self._number(first),) * 2)
            case "dict":
                return Value(Kind.MAPPING)
        if name in _LISTING:
            return _bounded(Kind.LIST, (self._element(first),)) if arguments else Value(Kind.LIST)
        return _of_name(name) or Value(Kind.UNKNOWN, symbol=f"{name}()")

    def _numpy_call(self, node: ast.Call, name: str, arguments: Sequence[Value]) -> Value:
        reduced = not any(keyword.arg == "axis" for keyword in node.keywords) and len(arguments) < 2
        if name in _ELEMENTWISE:
            shaped = arguments[:1] if name == "interp" else arguments
            numbers = [self._number(part) for part in shaped if part.kind is not Kind.TRUTH]
            if not all(part.numeric for part in numbers):
                return _array(_fresh(node))
            return self._elementwise(numbers)
        if name in _REDUCTIONS and reduced:
            return REAL
        if name == "argsort":
            return Value(Kind.LIST, (INTEGER,))
        if name in ("argmin", "argmax") and reduced:
            return INTEGER
        if name in _LIKE and arguments and self._number(arguments[0]).kind is Kind.ARRAY:
            return self._number(arguments[0])
        return _array(_fresh(node))

    def _method(
        self,
        node: ast.Call,
        base: Value,
        name: str,
        arguments: Sequence[Value],
        scope: Scope,
    ) -> Value:
        first = arguments[0] if arguments else _NOTHING
        whole = not arguments and not node.keywords
        if name in _ADDING_METHODS and len(arguments) == 1:
            self._append(node, base, first, scope)
            return _NOTHING
        if name in _TRUTH_METHODS:
            return TRUTH
        if name in _TEXT_METHODS or (name == "pop" and base.kind is Kind.TEXT):
            return TEXT
        if name in ("split", "rsplit", "splitlines"):
            return Value(Kind.LIST, (TEXT,))
        if name in _COUNTING_METHODS or (name in ("argmin", "argmax") and whole):
            return INTEGER
        if name == "argsort":
            return Value(Kind.LIST, (INTEGER,))
        if base.kind is Kind.MAPPING and base.parts:
            match name:
                case "get":
                    return _all_joined([base.parts[0], *arguments[1:2]])
                case "values":
                    return base
                case "items":
                    return Value(Kind.LIST, (Value(Kind.TUPLE, (_MIXED, *base.parts)),))
        if base.kind is Kind.LIST and name in ("pop", "copy"):
            return base if name == "copy" else self._element(base)
        if base.kind is Kind.ARRAY:
            if name in _REDUCTIONS and whole:
                return REAL
            return base if name in ("copy", "astype", "clip") else _array(_fresh(node))
        if name in _REDUCTIONS and whole and self.numpy:
            return REAL
        if name in ("choice", "random"):
            return self._element(first) if name == "choice" and arguments else REAL
        known = _of_name(name) if base.kind is Kind.UNKNOWN else None
        return known or Value(Kind.UNKNOWN, symbol=f"{base.symbol or base.kind.name}.{name}()")

    def _append(self, node: ast.Call, base: Value, added: Value, scope: Scope) -> None:
        match node.func:
            case ast.Attribute(value=ast.Name(id=name) as target) if base.kind is Kind.LIST:
                holder = scope.holding(name)
                if holder is not None:
                    value = _bounded(Kind.LIST, (added,))
                    self._bind(target, value, holder, node.args[0], (_APPENDED,))

    # Values

    def _resolved(self, value: Value) -> Value:
        """Returns an unknown value as a number where the program calculates with it."""
        if value.kind is Kind.UNKNOWN and value.symbol in self._numbers:
            return _array(value.symbol) if self.numpy else REAL
        return value

    def _number(self, value: Value) -> Value:
        """Returns a value that the program calculates with."""
        if value.kind is Kind.TRUTH and not value.symbol:
            return INTEGER
        if value.kind is Kind.TRUTH:
            return _array(value.symbol)
        if value.kind is Kind.UNKNOWN and value not in (_MIXED, _NOTHING) and not self._read:
            self._numbers.add(value.symbol)
        return self._resolved(value)

    def _element(self, value: Value) -> Value:
        match value.kind:
            case Kind.LIST:
                return value.parts[0] if value.parts else _NOTHING
            case Kind.TUPLE:
                return _all_joined(value.parts)
            case Kind.TEXT:
                return TEXT
            case Kind.ARRAY:
                return _array(f"{self._shape(value.symbol)}[i]")
            case Kind.UNKNOWN if value not in (_MIXED, _NOTHING) and len(value.symbol) < 200:
                return self._resolved(Value(Kind.UNKNOWN, symbol=f"{value.symbol}[]"))
        return _MIXED

    def _elementwise(self, values: Sequence[Value]) -> Value:
        """Returns what an operation on each element makes, and notes that the shapes are one."""
        shapes = [self._shape(value.symbol) for value in values if value.kind is Kind.ARRAY]
        if not shapes:
            return REAL
        if not self._read:
            for shape in shapes[1:]:
                if self._shape(shape) != self._shape(shapes[0]):
                    self._shapes[self._shape(shape)] = self._shape(shapes[0])
        return _array(self._shape(shapes[0]))

    def _shape(self, symbol: str) -> str:
        while symbol in self._shapes:
            symbol = self._shapes[symbol]
        return symbol

    # Sizes

    def _find_sizes(self) -> None:
        """Marks the expressions whose values become sizes, positions or keys."""
        steps = _Steps(self, _MOST_STEPS)
        for node, scope in self._sinks.items():
            steps.follow(node, (), scope)
        # A comparison such as `0 <= column < 7` keeps a position in bounds.
        for node, scope in self._compared.items():
            sides = (node.left, *node.comparators)
            if any(
                isinstance(side, ast.Name) and (scope.name, side.id) in self.sized for side in sides
            ) and any(isinstance(op, _ORDERINGS) for op in node.ops):
                for side in sides:
                    steps.follow(side, (), scope)


@dataclass(slots=True, eq=False)
class _Steps:
    """Follows a size back to the expressions that it is made from."""

    kinds: Kinds
    left: int
    seen: set[tuple[int, Path, int]] = field(default_factory=set)

    def follow(self, node: ast.expr, path: Path, scope: Scope) -> None:
        key = (id(node), path, id(scope))
        if key in self.seen or self.left <= 0 or len(path) > _DEPTH:
            return
        self.seen.add(key)
        self.left -= 1
        if not path:
            self.kinds.sizes.add(node)
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
                self.follow(value, (chosen if isinstance(chosen, int) else _ELEMENT, *path), scope)
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
            self.kinds.sized.add((holder.name, name))
        for (source, part), where in holder.sources.get(name, {}).items():
            if part[:1] == (_APPENDED,):
                if path:
                    self.follow(source, (*part[1:], *path[1:]), where)
            else:
                self.follow(source, (*part, *path), where)

    def _call(self, node: ast.Call, path: Path, scope: Scope) -> None:
        name = called_name(node)
        match name, path:
            case "zip", (_, int() as place, *rest) if place < len(node.args):
                self.follow(node.args[place], (_ELEMENT, *rest), scope)
            case "enumerate", (_, 1, *rest):
                self._all(node.args[:1], (_ELEMENT, *rest), scope)
            case "range", (_,):
                self._all(node.args, (), scope)
            case (("min" | "max"), _) if len(node.args) == 1:
                self._all(node.args, (_ELEMENT, *path), scope)
            case _ if name in _LISTING or name in ("array", "asarray"):
                self._all(node.args[:1], path, scope)
            case _ if name in _THROUGH and len(path) < 2:
                self._all(node.args, (), scope)
            case _ if isinstance(node.func, ast.Name) and name in self.kinds.functions:
                function = self.kinds.functions[name]
                self._all(function.results, path, function)


def _numpy(tree: ast.Module) -> str:
    for statement in tree.body:
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                if alias.name == "numpy":
                    return alias.asname or alias.name
    return ""


def _constant(value: object) -> Value:
    match value:
        case bool():
            return TRUTH
        case int():
            return INTEGER
        case float():
            return REAL
        case str() | bytes():
            return TEXT
    return _NOTHING


def _annotated(annotation: ast.expr | None, otherwise: Value) -> Value:
    """Returns the value that an annotation promises."""
    match annotation:
        case ast.Constant(value=str() as text) if text.isidentifier():
            return _annotated(ast.Name(text, ast.Load()), otherwise)
        case ast.Name(id=name):
            plain = {"int": INTEGER, "float": REAL, "bool": TRUTH, "str": TEXT}
            return plain.get(name, otherwise)
        case ast.Subscript(value=ast.Name(id="dict" | "Mapping"), slice=ast.Tuple(elts=[_, part])):
            return Value(Kind.MAPPING, (_annotated(part, _MIXED),))
        case ast.Subscript(
            value=ast.Name(id="tuple"), slice=ast.Tuple(elts=[part, ast.Constant(value=e)])
        ) if e is ...:
            return Value(Kind.LIST, (_annotated(part, _MIXED),))
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=parts)):
            return Value(Kind.TUPLE, tuple(_annotated(part, _MIXED) for part in parts))
        case ast.Subscript(value=ast.Name(id="list" | "Sequence" | "Iterable" | "set"), slice=part):
            return Value(Kind.LIST, (_annotated(part, _MIXED),))
        case ast.Attribute(attr="ndarray"):
            return _array(otherwise.symbol)
    return otherwise


def _of_name(name: str) -> Value | None:
    """Returns the result of a call that its name tells."""
    for names, value in (
        (_REAL_CALLS, REAL),
        (_INTEGER_CALLS, INTEGER),
        (_TEXT_CALLS, TEXT),
        (_TRUTH_CALLS, TRUTH),
    ):
        if name in names:
            return value
    return None


def _array(shape: str) -> Value:
    return Value(Kind.ARRAY, symbol=shape[:200])


def _fresh(node: ast.Call) -> str:
    """Returns the name of a shape that only one place of a program makes."""
    return f"{called_name(node)}@{node.lineno}:{node.col_offset}"


def _bounded(kind: Kind, parts: tuple[Value, ...]) -> Value:
    """Returns a value with parts, unless they hold parts too deeply."""
    return Value(kind, parts) if all(_depth(part) < _DEPTH for part in parts) else _MIXED


def _depth(value: Value) -> int:
    return 1 + max(map(_depth, value.parts), default=0)


def _joined(one: Value, other: Value) -> Value:
    """Returns what is known of a value that is one of two."""
    if one == other or other == _NOTHING:
        return one
    if one == _NOTHING:
        return other
    if one.scalar and other.scalar:
        return REAL
    if one.kind is other.kind and one.kind in (Kind.LIST, Kind.MAPPING):
        if not one.parts or not other.parts:
            return one if one.parts else other
        return _bounded(one.kind, (_joined(one.parts[0], other.parts[0]),))
    if one.kind is other.kind is Kind.TUPLE and len(one.parts) == len(other.parts):
        return Value(Kind.TUPLE, tuple(map(_joined, one.parts, other.parts)))
    for array, number_ in ((one, other), (other, one)):
        if array.kind is Kind.ARRAY and number_.scalar:
            return array
    return _MIXED


def _all_joined(values: Sequence[Value]) -> Value:
    found = _NOTHING
    for value in values:
        found = _joined(found, value)
    return found


def _axes(index: ast.expr) -> str:
    """Returns the form of an index of an array, with names and numbers alike."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    return ",".join(map(_axis, parts))


def _axis(part: ast.expr) -> str:
    match part:
        case ast.Slice():
            return ":"
        case ast.Constant(value=None):
            return "n"
    return "i"
