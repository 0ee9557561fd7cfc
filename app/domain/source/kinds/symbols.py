"""Symbols of unknown values and of shapes: which are numbers, and which shapes are one."""

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from app.domain.source.kinds.values import (
    INTEGER,
    MIXED,
    NOTHING,
    REAL,
    TEXT,
    TRUTH,
    Kind,
    Value,
    all_joined,
    array,
    joined,
)
from app.domain.source.syntax import number


@dataclass(slots=True, eq=False)
class Symbols:
    """What a program's calculations show of its symbols, and what they make of values.

    Attributes:
      numpy: The name under which the program imports numpy; "" where it does not.
      final: Whether the whole program has been read, so that nothing is learnt any more.
    """

    numpy: str
    final: bool = False
    _numbers: set[str] = field(default_factory=set)
    _shapes: dict[str, str] = field(default_factory=dict)

    def same(self, one: Value, other: Value) -> bool:
        """Returns whether two values are certainly of one type and one shape."""
        if one.kind is not other.kind or len(one.parts) != len(other.parts):
            return False
        if one.kind is Kind.UNKNOWN:
            return one.symbol == other.symbol and one not in (MIXED, NOTHING)
        if self._shape(one.symbol) != self._shape(other.symbol):
            return False
        return all(map(self.same, one.parts, other.parts))

    def resolved(self, value: Value) -> Value:
        """Returns an unknown value as a number where the program calculates with it."""
        if value.kind is Kind.UNKNOWN and value.symbol in self._numbers:
            return array(value.symbol) if self.numpy else REAL
        return value

    def number(self, value: Value) -> Value:
        """Returns a value that the program calculates with."""
        if value.kind is Kind.TRUTH and not value.symbol:
            return INTEGER
        if value.kind is Kind.TRUTH:
            return array(value.symbol)
        if value.kind is Kind.UNKNOWN and value not in (MIXED, NOTHING) and not self.final:
            self._numbers.add(value.symbol)
        return self.resolved(value)

    def element(self, value: Value) -> Value:
        """Returns what any element of a value is."""
        match value.kind:
            case Kind.LIST:
                return value.parts[0] if value.parts else NOTHING
            case Kind.TUPLE:
                return all_joined(value.parts)
            case Kind.TEXT:
                return TEXT
            case Kind.ARRAY:
                return array(f"{self._shape(value.symbol)}[i]")
            case Kind.UNKNOWN if value not in (MIXED, NOTHING) and len(value.symbol) < 200:
                return self.resolved(Value(Kind.UNKNOWN, symbol=f"{value.symbol}[]"))
        return MIXED

    def elementwise(self, values: Sequence[Value]) -> Value:
        """Returns what an operation on each element makes, and notes that the shapes are one."""
        shapes = [self._shape(value.symbol) for value in values if value.kind is Kind.ARRAY]
        if not shapes:
            return REAL
        if not self.final:
            for shape in shapes[1:]:
                if self._shape(shape) != self._shape(shapes[0]):
                    self._shapes[self._shape(shape)] = self._shape(shapes[0])
        return array(self._shape(shapes[0]))

    def _shape(self, symbol: str) -> str:
        while symbol in self._shapes:
            symbol = self._shapes[symbol]
        return symbol

    def arithmetic(self, op: ast.operator, left: Value, right: Value) -> Value:
        """Returns what an operation on two values makes."""
        match op:
            case ast.Sub() | ast.Div() | ast.Pow() | ast.FloorDiv():
                left, right = self.number(left), self.number(right)
            case ast.Mult() | ast.Mod() if left.kind not in (Kind.TEXT, Kind.LIST):
                if right.kind not in (Kind.TEXT, Kind.LIST, Kind.TUPLE, Kind.MAPPING):
                    left, right = self.number(left), self.number(right)
            case ast.Add() if left.numeric:
                right = self.number(right)
            case ast.Add() if right.numeric:
                left = self.number(left)
        for one, other in ((left, right), (right, left)):
            if one.kind in (Kind.TEXT, Kind.LIST):
                return joined(one, other) if isinstance(op, ast.Add) else one
        if not (left.numeric or left == TRUTH) or not (right.numeric or right == TRUTH):
            return left if left == right else MIXED
        if isinstance(op, ast.MatMult):
            return array(f"{left.symbol}@{right.symbol}")
        if Kind.ARRAY in (left.kind, right.kind):
            return self.elementwise((left, right))
        integers = Kind.REAL not in (left.kind, right.kind) and not isinstance(op, ast.Div)
        return INTEGER if integers else REAL

    def attribute(self, base: Value, name: str) -> Value:
        """Returns a value's attribute."""
        if name in ("pi", "e", "inf", "tau", "real"):
            return REAL
        if name == "shape":
            return Value(Kind.LIST, (INTEGER,))
        if name in ("size", "ndim"):
            return INTEGER
        if base.kind is Kind.ARRAY:
            return array(f"{self._shape(base.symbol)}.{name}")
        return Value(Kind.UNKNOWN, symbol=f"{base.symbol or base.kind.name}.{name}")

    def subscript(self, base: Value, index: ast.expr) -> Value:
        """Returns a value's part at an index."""
        match base.kind:
            case Kind.TEXT:
                return TEXT
            case Kind.ARRAY:
                return array(f"{self._shape(base.symbol)}[{_axes(index)}]")
            case Kind.LIST if isinstance(index, ast.Slice):
                return base
            case Kind.UNKNOWN if isinstance(index, ast.Slice) and base not in (MIXED, NOTHING):
                return Value(Kind.UNKNOWN, symbol=f"{base.symbol}[:]")
            case Kind.TUPLE if isinstance(place := number(index), int):
                return base.parts[place] if -len(base.parts) <= place < len(base.parts) else MIXED
        return base.parts[0] if base.kind is Kind.MAPPING and base.parts else self.element(base)


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
