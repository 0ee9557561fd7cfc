"""Results of calls of functions that are not the program's own, inferred from their names."""

import ast
from collections.abc import Sequence

from app.domain.source.kinds.symbols import Symbols
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
    bounded,
)
from app.domain.source.syntax import called_name

_REAL_CALLS = frozenset(
    ("float", "uniform", "gauss", "normalvariate", "betavariate", "expovariate")
)
_INTEGER_CALLS = frozenset(("int", "len", "ord", "hash", "randint", "randrange"))
_TEXT_CALLS = frozenset(("str", "chr", "repr", "format", "hex", "bin"))
_TRUTH_CALLS = frozenset(("bool", "isinstance", "any", "all", "callable", "hasattr"))
LISTING = frozenset(("list", "sorted", "set", "tuple", "reversed", "frozenset", "deque", "iter"))
"""Calls that make a list of the elements of their argument."""
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


def of_builtin(symbols: Symbols, name: str, arguments: Sequence[Value]) -> Value:
    """Returns the result of a built-in function, or of one that is imported by its name."""
    first = arguments[0] if arguments else NOTHING
    match name:
        case "abs" | "pow":
            return symbols.number(first)
        case "round":
            return INTEGER if len(arguments) == 1 else REAL
        case "min" | "max" if len(arguments) > 1:
            if any(part.numeric for part in arguments):
                arguments = [symbols.number(part) for part in arguments]
            return all_joined(arguments)
        case "min" | "max":
            return symbols.element(first)
        case "sum":
            found = symbols.number(symbols.element(first))
            return found if found.numeric else REAL
        case "range":
            return Value(Kind.LIST, (INTEGER,))
        case "zip":
            return Value(Kind.LIST, (bounded(Kind.TUPLE, tuple(map(symbols.element, arguments))),))
        case "enumerate":
            return Value(Kind.LIST, (bounded(Kind.TUPLE, (INTEGER, symbols.element(first))),))
        case "divmod":
            return Value(Kind.TUPLE, (symbols.number(first),) * 2)
        case "dict":
            return Value(Kind.MAPPING)
    if name in LISTING:
        return bounded(Kind.LIST, (symbols.element(first),)) if arguments else Value(Kind.LIST)
    return _of_name(name) or Value(Kind.UNKNOWN, symbol=f"{name}()")


def of_math(symbols: Symbols, name: str, arguments: Sequence[Value]) -> Value:
    """Returns the result of a function of `math`."""
    numbers = [symbols.number(part) for part in arguments]
    if name.startswith("is") and name != "isqrt":
        return TRUTH
    return INTEGER if name in _INTEGERS_OF_MATH and numbers else REAL


def of_numpy(symbols: Symbols, node: ast.Call, name: str, arguments: Sequence[Value]) -> Value:
    """Returns the result of a function of numpy."""
    reduced = not any(keyword.arg == "axis" for keyword in node.keywords) and len(arguments) < 2
    if name in _ELEMENTWISE:
        shaped = arguments[:1] if name == "interp" else arguments
        numbers = [symbols.number(part) for part in shaped if part.kind is not Kind.TRUTH]
        if not all(part.numeric for part in numbers):
            return array(_fresh(node))
        return symbols.elementwise(numbers)
    if name in _REDUCTIONS and reduced:
        return REAL
    if name == "argsort":
        return Value(Kind.LIST, (INTEGER,))
    if name in ("argmin", "argmax") and reduced:
        return INTEGER
    if name in _LIKE and arguments and symbols.number(arguments[0]).kind is Kind.ARRAY:
        return symbols.number(arguments[0])
    return array(_fresh(node))


def of_method(
    symbols: Symbols, node: ast.Call, base: Value, name: str, arguments: Sequence[Value]
) -> Value:
    """Returns the result of a method of a value, or of a function of a module."""
    first = arguments[0] if arguments else NOTHING
    whole = not arguments and not node.keywords
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
                return all_joined([base.parts[0], *arguments[1:2]])
            case "values":
                return base
            case "items":
                return Value(Kind.LIST, (Value(Kind.TUPLE, (MIXED, *base.parts)),))
    if base.kind is Kind.LIST and name in ("pop", "copy"):
        return base if name == "copy" else symbols.element(base)
    if base.kind is Kind.ARRAY:
        if name in _REDUCTIONS and whole:
            return REAL
        return base if name in ("copy", "astype", "clip") else array(_fresh(node))
    if name in _REDUCTIONS and whole and symbols.numpy:
        return REAL
    if name in ("choice", "random"):
        return symbols.element(first) if name == "choice" and arguments else REAL
    known = _of_name(name) if base.kind is Kind.UNKNOWN else None
    return known or Value(Kind.UNKNOWN, symbol=f"{base.symbol or base.kind.name}.{name}()")


def _of_name(name: str) -> Value | None:
    """Returns the result of a call, inferred from its name."""
    for names, value in (
        (_REAL_CALLS, REAL),
        (_INTEGER_CALLS, INTEGER),
        (_TEXT_CALLS, TEXT),
        (_TRUTH_CALLS, TRUTH),
    ):
        if name in names:
            return value
    return None


def _fresh(node: ast.Call) -> str:
    """Returns the name of a shape that only one place of a program makes."""
    return f"{called_name(node)}@{node.lineno}:{node.col_offset}"
