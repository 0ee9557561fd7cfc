"""Frames to values: bounds first, and nothing is built that the format does not name."""

from __future__ import annotations

import json
import re
import struct
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
    MAX_NODES,
    PLAIN,
    SIZE_BYTES,
    WORDS,
    WireError,
    too_many_marks,
)  # fmt: skip

_DTYPE = re.compile(r"[<>|=][biufcSU][0-9]{1,7}")
_FROM_JSON = json.JSONDecoder().decode

Resolve = Callable[..., Any]
"""Turns a handle's parts back into an object; raises WireError for an unknown handle."""


class _Decoder:
    def __init__(
        self, blobs: list[memoryview], resolve: Resolve | None, integer_hex_digits: int
    ) -> None:
        self._blobs = blobs
        self._resolve = resolve
        self._integer_hex_digits = integer_hex_digits
        self._nodes_left = MAX_NODES

    def value(self, tree: Any, depth: int) -> Any:
        kind = type(tree)
        if kind is list:
            return self._all(tree, depth)
        self._count(1, depth)
        if kind is not dict:
            return tree
        if len(tree) != 1:
            raise WireError("a tag has exactly one key")
        ((tag, body),) = tree.items()
        if tag == "t":
            return tuple(self._all(body, depth))
        if tag == "d":
            return {self.value(key, depth + 1): self.value(part, depth + 1) for key, part in body}
        if tag == "l":
            return self._words(body, depth)
        if tag == "s":
            return set(self._all(body, depth))
        if tag == "n":
            return self._array(*body)
        if tag == "g":
            return self._array(body[0], [1], body[1])[0]
        if tag == "h" and self._resolve is not None and isinstance(body, list):
            return self._resolve(*body)
        return self._scalar(tag, body)

    def _count(self, parts: int, depth: int) -> None:
        self._nodes_left -= parts
        if depth > MAX_DEPTH + 2 or self._nodes_left < 0:
            raise WireError("the value is too deep or has too many parts")

    def _all(self, trees: Any, depth: int) -> list[Any]:
        if type(trees) is dict and len(trees) == 1 and "l" in trees:
            return self._words(trees["l"], depth)
        if type(trees) is not list:
            raise WireError("not a list of parts")
        if set(map(type, trees)) <= PLAIN:
            self._count(1 + len(trees), depth)
            return trees
        self._count(1, depth)
        return [self.value(part, depth + 1) for part in trees]

    def _words(self, body: Any, depth: int) -> list[Any]:
        code, blob_index = body
        if code not in WORDS.values():
            raise WireError("a list of a kind that cannot cross")
        words: array[Any] = array(code)
        blob = self._blobs[_index(blob_index)]
        self._count(1 + len(blob) // words.itemsize, depth)
        words.frombytes(blob)
        return words.tolist()

    def _scalar(self, tag: str, body: Any) -> Any:
        if tag == "u":
            return bytes(self._blobs[_index(body)]).decode("utf-8", "surrogatepass")
        if tag == "b":
            return bytes(self._blobs[_index(body)])
        if tag == "f":
            return float.fromhex(body)
        if tag == "c":
            return complex(float.fromhex(body[0]), float.fromhex(body[1]))
        if tag == "i" and len(body) <= self._integer_hex_digits:
            return int(body, 16)
        raise WireError("an unknown tag")

    def _array(self, dtype_name: str, shape: list[int], blob_index: int) -> Any:
        import numpy

        if not _DTYPE.fullmatch(dtype_name):
            raise WireError("an array of a kind that cannot cross")
        if type(shape) is not list or len(shape) > MAX_DIMENSIONS:
            raise WireError("an array of too many dimensions")
        dtype = numpy.dtype(dtype_name)
        blob, count = self._blobs[_index(blob_index)], 1
        for length in shape:
            count *= _index(length)
        if count * dtype.itemsize != len(blob):
            raise WireError("an array's shape does not fit its bytes")
        # Any byte may come; only 0 and 1 are valid inside a bool array.
        if dtype.kind == "b":
            return (numpy.frombuffer(blob, dtype=numpy.uint8) != 0).reshape(shape)
        if not count or not dtype.itemsize:
            return numpy.zeros(shape, dtype=dtype)
        if dtype.kind == "U" and (numpy.frombuffer(blob, f"{dtype.byteorder}u4") > 0x10FFFF).any():
            raise WireError("an array of texts with characters that do not exist")
        return numpy.frombuffer(blob, dtype=dtype).reshape(shape)


def decode(
    frame: bytearray,
    resolve: Resolve | None = None,
    integer_hex_digits: int = INTEGER_HEX_DIGITS,
) -> Any:
    """Returns the value of a frame; its arrays share the frame's memory and are writable.

    Args:
      frame: As it arrived.
      resolve: For the handles in it; None where none may be.
      integer_hex_digits: Of the longest integer.

    Raises:
      WireError: The frame is not well-formed.  Nothing else is raised, whatever the bytes.
    """
    try:
        tree_bytes, blob_count = HEAD.unpack_from(frame)
        start = HEAD.size + SIZE_BYTES * blob_count
        position = start + tree_bytes
        if position > len(frame) or blob_count > MAX_BLOBS:
            raise WireError("the head does not fit the frame")
        raw = frame[start:position]
        if too_many_marks(raw):
            raise WireError("the value has too many parts")
        tree = _FROM_JSON(raw.decode("ascii"))
        blobs: list[memoryview] = []
        view = memoryview(frame)
        for size in struct.unpack_from(f">{blob_count}Q", frame, HEAD.size):
            if position + size > len(view):
                raise WireError("a blob does not fit the frame")
            blobs.append(view[position : position + size])
            position += size + -size % ALIGNMENT
        return _Decoder(blobs, resolve, integer_hex_digits).value(tree, 0)
    except WireError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, struct.error) as error:
        raise WireError(f"a malformed value: {type(error).__name__}") from None
    except (RecursionError, OverflowError, MemoryError, ImportError) as error:
        raise WireError(f"a malformed value: {type(error).__name__}") from None


def _index(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise WireError("not an index")
    return value
