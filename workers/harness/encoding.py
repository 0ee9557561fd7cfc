"""Values to frames."""

from __future__ import annotations

import json
import struct
import sys
from array import array
from collections.abc import Callable
from typing import Any

from .wire_limits import (
    ALIGNMENT,
    HEAD,
    INTEGER_HEX_DIGITS,
    MAX_BLOBS,
    MAX_DEPTH,
    MAX_DIMENSIONS,
    MAX_FRAME_BYTES,
    MAX_NODES,
    PLAIN,
    PLAIN_KINDS,
    SIZE_BYTES,
    WORDS,
    WireError,
    too_many_marks,
)  # fmt: skip

_SHORT_TEXT = 256
"""Characters of the longest text in the tree, whose commas count as parts; others are blobs."""
_LONG_LIST = 16
"""Numbers of one kind from which on a list is sent as machine words."""
_MOST_WORD_LISTS = MAX_BLOBS // 2
"""Lists beyond these stay in the tree."""
_DECIMAL_BITS = 13_000
"""A little under 4,300 digits, the most that the interpreter reads."""
_TO_JSON = json.JSONEncoder(allow_nan=False, check_circular=False, separators=(",", ":")).encode

Buffer = bytes | bytearray | memoryview
Export = Callable[[Any], list[Any] | None]
"""Turns an object that cannot cross into a handle, or None to refuse it."""


class _Encoder:
    """Makes the tree of one value.

    Args:
      export: Makes handles of what cannot cross; None refuses it.
      careful: Whether every scalar is looked at.  JSON refuses the few it cannot hold, and then
        the value is encoded again with care.
    """

    def __init__(self, export: Export | None, careful: bool) -> None:
        self._export = export
        self.careful = careful
        self._numpy: Any = sys.modules.get("numpy")
        self._nodes_left = MAX_NODES
        self.blobs: list[Buffer] = []

    def tree(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind is list:
            return self._all(value, depth)
        self._count(1, depth)
        if kind in PLAIN:
            return self._scalar(value, kind) if self.careful else value
        if kind is tuple:
            return {"t": self._all(value, depth)}
        if kind is dict:
            return {"d": self._pairs(value.items(), depth)}
        if kind is set or kind is frozenset:
            return {"s": self._all(list(value), depth)}
        if kind is complex:
            return {"c": [value.real.hex(), value.imag.hex()]}
        if kind is bytes or kind is bytearray:
            return {"b": self._blob(bytes(value))}
        return self._uncommon(value, depth)

    def _count(self, parts: int, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise WireError(f"a value nested deeper than {MAX_DEPTH} levels cannot cross")
        self._nodes_left -= parts
        if self._nodes_left < 0:
            raise WireError(f"a value of more than {MAX_NODES} parts cannot cross")

    def _scalar(self, value: Any, kind: type) -> Any:
        if kind is str and len(value) > _SHORT_TEXT:
            return {"u": self._blob(value.encode("utf-8", "surrogatepass"))}
        if kind is float and not abs(value) < float("inf"):
            return {"f": value.hex()}
        if kind is int and value.bit_length() > _DECIMAL_BITS:
            return {"i": _hex(value)}
        return value

    def _uncommon(self, value: Any, depth: int) -> Any:
        if self._numpy is not None:
            if isinstance(value, self._numpy.ndarray) and value.dtype.kind in PLAIN_KINDS:
                return self._array(value)
            if isinstance(value, self._numpy.generic) and value.dtype.kind in PLAIN_KINDS:
                return {"g": [value.dtype.str, self._blob(value.tobytes())]}
        # The plain type's own methods are used, so that no override changes what is sent.
        if isinstance(value, float):
            return self._scalar(float.__float__(value), float)
        if isinstance(value, int):
            return self._scalar(int.__int__(value), int)
        if isinstance(value, str):
            return self._scalar(str.__str__(value)[:], str)
        if isinstance(value, list):
            return self._all(list(list.__iter__(value)), depth)
        if isinstance(value, tuple):
            return {"t": self._all(list(tuple.__iter__(value)), depth)}
        if isinstance(value, dict):
            return {"d": self._pairs(dict.items(value), depth)}
        handle = self._export(value) if self._export is not None else None
        if handle is None:
            raise WireError(f"a value of type {type(value).__name__} cannot cross")
        return {"h": handle}

    def _all(self, values: Any, depth: int) -> Any:
        """Returns a list's or tuple's parts, the sequence itself where nothing is to be done."""
        kinds = set(map(type, values))
        if len(kinds) == 1 and len(values) >= _LONG_LIST and len(self.blobs) < _MOST_WORD_LISTS:
            words = self._words(WORDS.get(kinds.pop()), values, depth)
            if words is not None:
                return {"l": words}
            kinds = set(map(type, values))
        if not self.careful and kinds <= PLAIN:
            self._count(1 + len(values), depth)
            return values
        self._count(1, depth)
        return [self.tree(value, depth + 1) for value in values]

    def _words(self, code: str | None, values: Any, depth: int) -> list[Any] | None:
        if code is None:
            return None
        try:
            words = array(code, values)
        except OverflowError:
            # An integer has more than 64 bits.
            return None
        self._count(1 + len(words), depth)
        return [code, self._blob(words.tobytes())]

    def _pairs(self, pairs: Any, depth: int) -> list[list[Any]]:
        return [[self.tree(key, depth + 1), self.tree(value, depth + 1)] for key, value in pairs]

    def _array(self, value: Any) -> dict[str, Any]:
        if value.ndim > MAX_DIMENSIONS:
            raise WireError(f"an array of more than {MAX_DIMENSIONS} dimensions cannot cross")
        plain = self._numpy.asarray(self._numpy.ascontiguousarray(value)).reshape(value.shape)
        blob = plain.reshape(-1).view(self._numpy.uint8).data if plain.nbytes else b""
        return {"n": [plain.dtype.str, list(plain.shape), self._blob(blob)]}

    def _blob(self, blob: Any) -> int:
        if len(self.blobs) >= MAX_BLOBS:
            raise WireError(f"a value of more than {MAX_BLOBS} texts and arrays cannot cross")
        self.blobs.append(blob)
        return len(self.blobs) - 1


def encode(value: Any, export: Export | None = None) -> list[Buffer]:
    """Returns the parts of one frame.

    Raises:
      WireError: The value holds something that cannot cross, or is too deep or too large.
    """
    try:
        try:
            return _frame(value, _Encoder(export, careful=False))
        except WireError:
            raise
        except ValueError:
            return _frame(value, _Encoder(export, careful=True))
    except (RuntimeError, TypeError) as error:
        # Another thread has changed a container meanwhile.
        raise WireError(f"the value changed while it was read: {type(error).__name__}") from None


def _frame(value: Any, encoder: _Encoder) -> list[Buffer]:
    tree = _TO_JSON(encoder.tree(value, 0)).encode("ascii")
    blobs = encoder.blobs
    if too_many_marks(tree):
        # Texts full of commas, perhaps: with care they are blobs.
        raise (WireError if encoder.careful else ValueError)("a value of that many parts")
    if not blobs:
        parts: list[Buffer] = [HEAD.pack(len(tree), 0) + tree]
    else:
        head_bytes = HEAD.size + SIZE_BYTES * len(blobs)
        tree += b" " * (-(head_bytes + len(tree)) % ALIGNMENT)
        sizes = struct.pack(f">{len(blobs)}Q", *map(len, blobs))
        parts = [HEAD.pack(len(tree), len(blobs)) + sizes + tree]
        for blob in blobs:
            parts += [blob, b"\0" * (-len(blob) % ALIGNMENT)]
    size = sum(map(len, parts))
    if size > MAX_FRAME_BYTES:
        raise WireError(f"a value of {size} bytes is over the limit of {MAX_FRAME_BYTES}")
    return parts


def _hex(value: int) -> str:
    if value.bit_length() > 4 * (INTEGER_HEX_DIGITS - 3):
        raise WireError("an integer of that many digits cannot cross")
    return hex(value)
