"""Values of a program as far as its text shows them, and what is known of one of two values."""

import ast
import enum
from collections.abc import Sequence
from dataclasses import dataclass

# Most types inside types: a list can be appended to itself.
DEPTH = 12


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
NOTHING = Value(Kind.UNKNOWN, symbol="None")
MIXED = Value(Kind.UNKNOWN, symbol="mixed")


def constant(value: object) -> Value:
    """Returns the value of a literal."""
    match value:
        case bool():
            return TRUTH
        case int():
            return INTEGER
        case float():
            return REAL
        case str() | bytes():
            return TEXT
    return NOTHING


def annotated(annotation: ast.expr | None, otherwise: Value) -> Value:
    """Returns the value that an annotation promises."""
    match annotation:
        case ast.Constant(value=str() as text) if text.isidentifier():
            return annotated(ast.Name(text, ast.Load()), otherwise)
        case ast.Name(id=name):
            plain = {"int": INTEGER, "float": REAL, "bool": TRUTH, "str": TEXT}
            return plain.get(name, otherwise)
        case ast.Subscript(value=ast.Name(id="dict" | "Mapping"), slice=ast.Tuple(elts=[_, part])):
            return Value(Kind.MAPPING, (annotated(part, MIXED),))
        case ast.Subscript(
            value=ast.Name(id="tuple"), slice=ast.Tuple(elts=[part, ast.Constant(value=e)])
        ) if e is ...:
            return Value(Kind.LIST, (annotated(part, MIXED),))
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=parts)):
            return Value(Kind.TUPLE, tuple(annotated(part, MIXED) for part in parts))
        case ast.Subscript(value=ast.Name(id="list" | "Sequence" | "Iterable" | "set"), slice=part):
            return Value(Kind.LIST, (annotated(part, MIXED),))
        case ast.Attribute(attr="ndarray"):
            return array(otherwise.symbol)
    return otherwise


def array(shape: str) -> Value:
    """Returns an array of a shape."""
    return Value(Kind.ARRAY, symbol=shape[:200])


def bounded(kind: Kind, parts: tuple[Value, ...]) -> Value:
    """Returns a value with parts, unless they hold parts too deeply."""
    return Value(kind, parts) if all(_depth(part) < DEPTH for part in parts) else MIXED


def _depth(value: Value) -> int:
    return 1 + max(map(_depth, value.parts), default=0)


def joined(one: Value, other: Value) -> Value:
    """Returns what is known of a value that is one of two."""
    if one == other or other == NOTHING:
        return one
    if one == NOTHING:
        return other
    if one.scalar and other.scalar:
        return REAL
    if one.kind is other.kind and one.kind in (Kind.LIST, Kind.MAPPING):
        if not one.parts or not other.parts:
            return one if one.parts else other
        return bounded(one.kind, (joined(one.parts[0], other.parts[0]),))
    if one.kind is other.kind is Kind.TUPLE and len(one.parts) == len(other.parts):
        return Value(Kind.TUPLE, tuple(map(joined, one.parts, other.parts)))
    for shaped, number in ((one, other), (other, one)):
        if shaped.kind is Kind.ARRAY and number.scalar:
            return shaped
    return MIXED


def all_joined(values: Sequence[Value]) -> Value:
    """Returns what is known of a value that is one of several."""
    found = NOTHING
    for value in values:
        found = joined(found, value)
    return found
