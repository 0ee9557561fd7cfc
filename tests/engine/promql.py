"""Evaluates the expressions of rules and dashboards against what was scraped.

The part of PromQL that they use, with Prometheus's rules of matching: an operation between vectors
that Prometheus refuses, or one whose sides never find each other, shows here too.  A rate is the
difference between the first and the last scrape of its range, without extrapolation.
"""

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from prometheus_client.parser import text_string_to_metric_families

Labels: TypeAlias = dict[str, str]
Vector: TypeAlias = list[tuple[Labels, float]]
Samples: TypeAlias = dict[str, Vector]
Key: TypeAlias = frozenset[tuple[str, str]]

_TOKEN = re.compile(r'"[^"]*"|[A-Za-z_]\w*|\d+(?:\.\d+)?[smh]?|=~|!~|[<>=!]=|\S')
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_LEVELS = (
    {"or"},
    {"and", "unless"},
    {"==", "!=", "<", ">", "<=", ">="},
    {"+", "-"},
    {"*", "/"},
)
"""Binary operators, the loosest first."""
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}
_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda left, right: left / right if right else math.nan,
}
_AGGREGATES: dict[str, Callable[[list[float]], float]] = {"sum": sum, "max": max, "min": min}
_OVER_TIME: dict[str, Callable[[list[float], float], float]] = {
    "rate": lambda values, seconds: (values[-1] - values[0]) / seconds,
    "increase": lambda values, seconds: values[-1] - values[0],
    "delta": lambda values, seconds: values[-1] - values[0],
    "avg_over_time": lambda values, seconds: sum(values) / len(values),
}
_MATCHES: dict[str, Callable[[str, str], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "=~": lambda value, pattern: re.fullmatch(pattern, value) is not None,
    "!~": lambda value, pattern: re.fullmatch(pattern, value) is None,
}


def samples(text: bytes, **labels: str) -> Samples:
    """Returns scraped samples by name, with the labels that Prometheus adds for the target."""
    found: Samples = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(({**sample.labels, **labels}, sample.value))
    return found


def evaluate(expression: str, *scrapes: tuple[float, Samples]) -> Vector:
    """Returns what an expression gives at the time of the last scrape.

    Args:
      expression: In PromQL.
      scrapes: Their times in seconds, and what they found; oldest first.

    Raises:
      ValueError: It is not of the part that is known, or asks for what Prometheus refuses.
    """
    parser = _Parser(_TOKEN.findall(expression), scrapes)
    found = parser.operation()
    if parser.rest or isinstance(found, float):
        raise ValueError(f"{expression!r} is no vector: {parser.rest}")
    return found


@dataclass(frozen=True)
class _Matching:
    """By which labels samples belong together."""

    names: frozenset[str] = frozenset()
    on: bool = False
    many: bool = False

    def key(self, labels: Mapping[str, str]) -> Key:
        return frozenset((n, value) for n, value in labels.items() if (n in self.names) is self.on)


class _Parser:
    """Evaluates an expression while it reads it."""

    def __init__(self, tokens: list[str], scrapes: Sequence[tuple[float, Samples]]) -> None:
        self.rest = tokens
        self._scrapes = scrapes

    def operation(self, level: int = 0) -> Vector | float:
        """Reads an operation of this level, or of one that binds closer."""
        if level == len(_LEVELS):
            return self._operand()
        left = self.operation(level + 1)
        while self.rest and self.rest[0] in _LEVELS[level]:
            name, matching = self._take(), self._matching()
            left = _combined(name, left, self.operation(level + 1), matching)
        return left

    def _operand(self) -> Vector | float:
        token = self._take()
        if token[0].isdigit():
            return float(token)
        if token in _AGGREGATES:
            matching = _Matching(on=True)
            if self.rest[0] in ("by", "without"):
                matching = _Matching(on=self._take() == "by", names=self._names())
            return _grouped(self._bracketed(self._vector), matching, _AGGREGATES[token])
        if token in _OVER_TIME:
            return self._bracketed(lambda: self._over_time(_OVER_TIME[token]))
        if token == "histogram_quantile":
            return self._bracketed(self._quantile)
        if token == "(":
            self.rest.insert(0, token)
            return self._bracketed(self.operation)
        return self._selected(token, self._matchers(), self._scrapes[-1][1])

    def _bracketed(self, read: Callable[[], Vector | float]) -> Vector | float:
        self._take("(")
        found = read()
        self._take(")")
        return found

    def _vector(self) -> Vector:
        found = self.operation()
        if isinstance(found, float):
            raise ValueError(f"a vector is wanted, not {found}")
        return found

    def _quantile(self) -> Vector:
        share = float(self._take())
        self._take(",")
        return _quantile(share, self._vector())

    def _over_time(self, function: Callable[[list[float], float], float]) -> Vector:
        name, matchers = self._take(), self._matchers()
        self._take("[")
        length = self._take()
        self._take("]")
        end = self._scrapes[-1][0]
        series: dict[Key, list[tuple[float, float]]] = {}
        for at, found in self._scrapes:
            if end - at <= float(length[:-1]) * _SECONDS[length[-1]]:
                for labels, value in self._selected(name, matchers, found):
                    series.setdefault(frozenset(labels.items()), []).append((at, value))
        return [
            (dict(key), function([value for _, value in points], points[-1][0] - points[0][0]))
            for key, points in series.items()
            if len(points) > 1
        ]

    def _matchers(self) -> list[tuple[str, str, str]]:
        found = []
        while self.rest and self.rest[0] in ("{", ","):
            self._take()
            found.append((self._take(), self._take(), self._take().strip('"')))
            if self.rest[0] == "}":
                self._take()
                break
        return found

    @staticmethod
    def _selected(name: str, matchers: list[tuple[str, str, str]], found: Samples) -> Vector:
        return [
            (labels, value)
            for labels, value in found.get(name, ())
            if all(_MATCHES[sign](labels.get(label, ""), text) for label, sign, text in matchers)
        ]

    def _matching(self) -> _Matching:
        if self.rest[0] not in ("on", "ignoring"):
            return _Matching()
        on, names = self._take() == "on", self._names()
        many = self.rest[0] == "group_left"
        if many:
            self._take()
        return _Matching(names, on, many)

    def _names(self) -> frozenset[str]:
        self._take("(")
        end = self.rest.index(")")
        names = frozenset(self.rest[:end]) - {","}
        del self.rest[: end + 1]
        return names

    def _take(self, wanted: str = "") -> str:
        token = self.rest.pop(0) if self.rest else "the end"
        if wanted not in ("", token):
            raise ValueError(f"{wanted!r} is wanted, not {token!r}")
        return token


def _grouped(
    found: Vector | float, matching: _Matching, aggregate: Callable[[list[float]], float]
) -> Vector:
    assert not isinstance(found, float)
    groups: dict[Key, list[float]] = {}
    for labels, value in found:
        groups.setdefault(matching.key(labels), []).append(value)
    return [(dict(key), aggregate(values)) for key, values in groups.items()]


def _combined(
    name: str, left: Vector | float, right: Vector | float, matching: _Matching
) -> Vector | float:
    if isinstance(left, float) and isinstance(right, float):
        return _ARITHMETIC[name](left, right)
    if isinstance(right, float):
        assert not isinstance(left, float)
        return _by_value(name, [(labels, value, right) for labels, value in left], None)
    if isinstance(left, float):
        raise ValueError("a number on the left of a vector is not known here")
    partners: dict[Key, Vector] = {}
    for labels, value in right:
        partners.setdefault(matching.key(labels), []).append((labels, value))
    if name in ("and", "unless"):
        return [each for each in left if (matching.key(each[0]) in partners) == (name == "and")]
    if name == "or":
        known = {matching.key(labels) for labels, _ in left}
        return left + [each for each in right if matching.key(each[0]) not in known]
    keys = [matching.key(labels) for labels, _ in left]
    if any(len(found) > 1 for key, found in partners.items() if key in keys) or (
        not matching.many and len(set(keys) & set(partners)) < sum(key in partners for key in keys)
    ):
        raise ValueError(f"several samples match one at {name!r}")
    pairs = [
        (labels, value, partners[key][0][1])
        for (labels, value), key in zip(left, keys, strict=True)
        if key in partners
    ]
    return _by_value(name, pairs, None if matching.many else matching)


def _by_value(
    name: str, pairs: list[tuple[Labels, float, float]], matching: _Matching | None
) -> Vector:
    if name in _COMPARISONS:
        return [(labels, value) for labels, value, by in pairs if _COMPARISONS[name](value, by)]
    return [
        (dict(matching.key(labels)) if matching else labels, _ARITHMETIC[name](value, by))
        for labels, value, by in pairs
    ]


def _quantile(share: float, buckets: Vector) -> Vector:
    """Returns the upper end of the bucket that holds the quantile of each histogram."""
    series: dict[Key, list[tuple[float, float]]] = {}
    for labels, count in buckets:
        rest = {name: value for name, value in labels.items() if name != "le"}
        series.setdefault(frozenset(rest.items()), []).append((float(labels["le"]), count))
    return [
        (dict(key), next(end for end, count in sorted(of) if count >= share * max(of)[1]))
        for key, of in series.items()
    ]
