"""Reading config.yaml: syntax, types, unknown keys, and secrets kept out of what is stored."""

import difflib
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from app.adapters.problems.yaml_text import composed, guarded, pairs
from app.config import yaml_values
from app.config.openevolve_keys import KEYS, MODEL_KEYS, Key, Kind
from app.domain.problem import ProblemError
from app.domain.secrets import KEY_NAME, REDACTED, without_keys
from app.domain.setting import LARGEST_INTEGER

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_ALIKE = 0.6
"""Likeness of two names, 0 to 1, from which on one may be a misspelling of the other."""


@dataclass(frozen=True, slots=True)
class Config:
    """A config.yaml whose known keys have the right types.

    Attributes:
      values: Dotted key to value; keys that are absent or null are missing.
      where: The file's name, for messages.
      lines: Dotted key to line, from 1.
      models, judges: Entries of `llm.models` and of `llm.evaluator_models`, with unknown keys left
        out.
      notices: One sentence each: unknown keys, keys without effect.
      unknown: The sentences among `notices` that are about unknown keys.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    models: tuple[Mapping[str, Any], ...] = ()
    judges: tuple[Mapping[str, Any], ...] = ()
    notices: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    where: str = "config.yaml"
    lines: Mapping[str, int] = field(default_factory=dict)

    def place(self, key: str) -> str:
        """Returns `file:line` of a key, or the file where the key is not written out."""
        return f"{self.where}:{self.lines[key]}" if key in self.lines else self.where


def without_secrets(text: str, where: str) -> str:
    """Returns a config.yaml with every literal secret replaced; `${NAME}` stands as it is.

    Raises:
      ProblemError: The text is not YAML.
    """
    starts = {
        token.end_mark.index: token.start_mark.index
        for token in guarded(where, lambda: list(yaml.scan(text, Loader=yaml.SafeLoader)))
        if isinstance(token, yaml.ScalarToken)
    }
    spans = set()
    for pair in pairs(composed(text, where)):
        if KEY_NAME.search(pair.key) and _is_literal(pair.value):
            end = pair.value.end_mark.index
            spans.add((starts[end], end))
    for start, end in sorted(spans, reverse=True):
        # The line break at the end of a block also ends its entry.
        kept = text[len(text[:end].rstrip()) : end]
        text = f'{text[:start]}"{REDACTED}"{kept}{text[end:]}'
    return without_keys(text)


def variable(value: str) -> str | None:
    """Returns NAME for the whole string `${NAME}`, otherwise None."""
    match = _VARIABLE.fullmatch(value.strip())
    return match.group(1) if match else None


def configures_problem(loaded: object) -> bool:
    """Returns whether a parsed YAML file is an OpenEvolve configuration, judged by its keys.

    It is one where at least half of its keys and sections are OpenEvolve's: a misspelt key is no
    reason to refuse it, and one key with a common name is no reason to accept it.
    """
    if not isinstance(loaded, dict) or not loaded:
        return False
    names = {key.name for key in KEYS}
    sections = {name.split(".")[0] for name in names if "." in name}

    def recognised(name: str, value: object) -> bool:
        if name in sections and isinstance(value, dict):
            return any(f"{name}.{inner}" in names for inner in value)
        return name in names or (name in sections and value is None)

    known = [name for name, value in loaded.items() if recognised(str(name), value)]
    return 2 * len(known) >= len(loaded)


def read(text: str, where: str) -> Config:
    """Returns the values of a config.yaml.

    Raises:
      ProblemError: The text is not YAML, or a known key has a value of the wrong type.
    """
    root = composed(text, where)
    lines = {pair.name: pair.line for pair in pairs(root)}
    loaded = guarded(where, lambda: yaml_values.loaded(text))
    if loaded is None:
        return Config()
    if not isinstance(loaded, dict):
        raise ProblemError(
            "the file is not a mapping",
            where=where,
            value=_shown(loaded),
            remedy="Write `key: value` lines.",
        )
    reader = _Reader(where, lines)
    reader.read(loaded)
    return Config(
        values=reader.values,
        models=reader.models.get("llm.models", ()),
        judges=reader.models.get("llm.evaluator_models", ()),
        notices=(*reader.unknown, *_repeated(root, where), *_without_effect(reader.ineffective)),
        unknown=tuple(reader.unknown),
        where=where,
        lines=lines,
    )


def _is_literal(node: yaml.Node) -> bool:
    texts = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
    if not isinstance(node, yaml.ScalarNode) or node.tag not in texts:
        return False
    return node.value not in ("", REDACTED) and variable(node.value) is None


class _Reader:
    """Collects the values of one file; used once."""

    def __init__(self, where: str, lines: Mapping[str, int]) -> None:
        self.where = where
        self.lines = lines
        self.values: dict[str, object] = {}
        self.models: dict[str, tuple[Mapping[str, object], ...]] = {}
        self.unknown: list[str] = []
        self.ineffective: list[Key] = []

    def read(self, loaded: Mapping[object, object]) -> None:
        table = {key.name: key for key in KEYS}
        sections = {name.split(".")[0] for name in table if "." in name}
        for name, value in loaded.items():
            if name not in sections:
                self.values |= self._known({name: value}, "", table)
            elif isinstance(value, dict):
                self.values |= self._known(value, f"{name}.", table)
            elif value is not None:
                raise self._wrong_type(str(name), value, Kind.MAPPING)

    def _known(
        self, entries: Mapping[object, object], prefix: str, table: Mapping[str, Key]
    ) -> dict[str, object]:
        """Returns the entries that the table has with a prefix, by their whole names."""
        values: dict[str, object] = {}
        for raw, value in entries.items():
            name = f"{prefix}{raw}"
            if name not in table:
                self._note_unknown(name, list(table))
                continue
            key = table[name]
            if (checked := self._check(key, name, value)) is not None:
                values[name] = checked
                if key.reason:
                    self.ineffective.append(key)
                if key.kind is Kind.MODELS:
                    models = enumerate(checked)
                    self.models[name] = tuple(self._model(f"{name}.{n}.", m) for n, m in models)
        return values

    def _model(self, prefix: str, entries: Mapping[object, object]) -> dict[str, object]:
        table = {
            f"{prefix}{key.name}": replace(key, name=f"{prefix}{key.name}") for key in MODEL_KEYS
        }
        known = self._known(entries, prefix, table)
        return {name.removeprefix(prefix): value for name, value in known.items()}

    def _check(self, key: Key, name: str, value: object) -> Any:
        if value is None:
            if key.nullable:
                return None
            raise self._wrong_type(name, value, key.kind)
        # A whole number may be written with an exponent.
        if key.kind is Kind.INTEGER and isinstance(value, float) and value.is_integer():
            value = int(value)
        if not _fits(key.kind, value):
            raise self._wrong_type(name, value, key.kind)
        return value

    def _wrong_type(self, name: str, value: object, kind: Kind) -> ProblemError:
        return ProblemError(
            f"`{name}` must be {kind.value}",
            where=self._place(name),
            value=_shown(value),
            remedy="Correct the value, or remove the key to have the default.",
        )

    def _note_unknown(self, name: str, known: Sequence[str]) -> None:
        near = _closest(name, known)
        hint = f"; the closest known key is `{near}`" if near else ""
        self.unknown.append(f"{self._place(name)}: unknown key `{name}` is ignored{hint}.")

    def _place(self, name: str) -> str:
        return f"{self.where}:{self.lines[name]}" if name in self.lines else self.where


def _closest(name: str, known: Sequence[str]) -> str | None:
    """Returns the known name most like `name`; None where none is much like it.

    The same last part in another section wins.
    """
    last = name.rsplit(".", 1)[-1]
    tails = {key.rsplit(".", 1)[-1]: key for key in reversed(known)}
    if last in tails:
        return tails[last]
    tail = difflib.get_close_matches(last, list(tails), n=1, cutoff=0.85)
    if tail and "." not in name:
        return tails[tail[0]]
    whole = difflib.get_close_matches(name, known, n=1, cutoff=_ALIKE)
    return whole[0] if whole else None


def _fits(kind: Kind, value: object) -> bool:
    match kind:
        case Kind.INTEGER:
            return (
                isinstance(value, int)
                and not isinstance(value, bool)
                and -LARGEST_INTEGER <= value <= LARGEST_INTEGER
            )
        case Kind.NUMBER:
            return (
                isinstance(value, int | float)
                and not isinstance(value, bool)
                and abs(value) <= sys.float_info.max
            )
        case Kind.TRUTH:
            return isinstance(value, bool)
        case Kind.TEXT:
            return isinstance(value, str)
        case Kind.NUMBERS:
            return isinstance(value, list) and all(_fits(Kind.NUMBER, part) for part in value)
        case Kind.TEXTS:
            return isinstance(value, list) and all(isinstance(part, str) for part in value)
        case Kind.MODELS:
            return isinstance(value, list) and all(isinstance(part, dict) for part in value)
        case Kind.MAPPING:
            return isinstance(value, dict)
        case Kind.COUNT_OR_COUNTS:
            counts = list(value.values()) if isinstance(value, dict) else [value]
            return all(_fits(Kind.INTEGER, count) for count in counts)
        case Kind.RANGES:
            return isinstance(value, dict) and all(
                isinstance(ends, list)
                # An end that is not finite passes here, and is refused with its axis.
                and all(isinstance(end, float) or _fits(Kind.NUMBER, end) for end in ends)
                for ends in value.values()
            )


def _without_effect(keys: Sequence[Key]) -> list[str]:
    by_reason: dict[str, list[str]] = {}
    for key in keys:
        by_reason.setdefault(key.reason, []).append(f"`{key.name}`")
    return [
        f"{', '.join(names)}: read but without effect here, because {reason}."
        for reason, names in by_reason.items()
    ]


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."


def _repeated(root: yaml.Node | None, where: str) -> list[str]:
    """Returns a sentence for each key that a later one of its mapping overrules."""
    last: dict[str, int] = {}
    notices = []
    for pair in pairs(root):
        if pair.name in last:
            notices.append(
                f"{where}:{pair.line}: `{pair.name}` is given again; what line "
                f"{last[pair.name]} says is ignored."
            )
        last[pair.name] = pair.line
    return notices
