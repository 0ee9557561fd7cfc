"""The data-only format in which values cross between evaluator and program.

Never pickle.  Decoding can build nothing but None, bool, int, float, complex, str, bytes, list,
tuple, dict, set, NumPy arrays and scalars of plain kinds, and whatever the caller's `resolve` makes
of a numbered handle.  Subclasses are flattened to their plain type, so that nothing a program
returns carries behaviour of its own.

An encoded value is a JSON tree in which one-key objects are tags, followed by binary blobs.
"""

from __future__ import annotations

import json
import re
import socket
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any

MAX_FRAME_BYTES = 64 << 20
MAX_DEPTH = 64
MAX_NODES = 2_000_000
MAX_BLOBS = 100_000

_EXACT_FLOAT_INTEGER = 2**53
_INTEGER_HEX_DIGITS = 20_000
_JOIN_BELOW_BYTES = 65_536
_PLAIN_KINDS = "biufcSU"
_DTYPE = re.compile(r"[<>|=][biufcSU][0-9]{1,7}")
_HEAD = struct.Struct(">II")
_BLOB = struct.Struct(">Q")
_FRAME = struct.Struct(">I")

Buffer = bytes | bytearray | memoryview
Export = Callable[[Any], list[Any] | None]
"""Turns an object that cannot cross into a handle, or None to refuse it."""
Resolve = Callable[..., Any]
"""Turns a handle's parts back into an object; raises WireError for one it did not give out."""


class WireError(ValueError):
    """A value cannot cross, or what arrived is not a well-formed value."""


def send_frame(sock: socket.socket, parts: Sequence[Buffer]) -> None:
    views = [memoryview(part).cast("B") for part in parts if len(part)]
    total = sum(len(view) for view in views)
    prefix = _FRAME.pack(total)
    if total < _JOIN_BELOW_BYTES:
        sock.sendall(prefix + b"".join(views))
        return
    sock.sendall(prefix)
    for view in views:
        sock.sendall(view)


def receive_frame(sock: socket.socket, limit_bytes: int = MAX_FRAME_BYTES) -> bytearray:
    """Returns one frame's contents.

    Raises:
      EOFError: The peer is gone.
      WireError: The frame is larger than `limit_bytes`.
    """
    (size,) = _FRAME.unpack(_receive(sock, _FRAME.size))
    if size > limit_bytes:
        raise WireError(f"a value of {size} bytes is over the limit of {limit_bytes}")
    return _receive(sock, size)


def _receive(sock: socket.socket, size: int) -> bytearray:
    buffer = bytearray(size)
    view, done = memoryview(buffer), 0
    while done < size:
        count = sock.recv_into(view[done:], min(size - done, 1 << 20))
        if not count:
            raise EOFError("the peer is gone")
        done += count
    return buffer


class _Encoder:
    def __init__(self, export: Export | None) -> None:
        self._export = export
        self._numpy: Any = sys.modules.get("numpy")
        self._nodes_left = MAX_NODES
        self.blobs: list[Buffer] = []

    def tree(self, value: Any, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise WireError(f"a value nested deeper than {MAX_DEPTH} levels cannot cross")
        self._nodes_left -= 1
        if self._nodes_left < 0:
            raise WireError(f"a value of more than {MAX_NODES} parts cannot cross")
        kind = type(value)
        if value is None or kind is bool or kind is str:
            return value
        if kind is float:
            return value if abs(value) < float("inf") else {"f": value.hex()}
        if kind is int:
            small = -_EXACT_FLOAT_INTEGER < value < _EXACT_FLOAT_INTEGER
            return value if small else {"i": _hex(value)}
        if kind is list:
            return self._all(value, depth)
        if kind is tuple:
            return {"t": self._all(value, depth)}
        if kind is dict:
            return {"d": self._pairs(value.items(), depth)}
        if kind is set or kind is frozenset:
            return {"s": self._all(value, depth)}
        if kind is complex:
            return {"c": [value.real.hex(), value.imag.hex()]}
        if kind is bytes or kind is bytearray:
            return {"b": self._blob(bytes(value))}
        return self._uncommon(value, depth)

    def _uncommon(self, value: Any, depth: int) -> Any:
        if self._numpy is not None:
            if isinstance(value, self._numpy.ndarray) and value.dtype.kind in _PLAIN_KINDS:
                return self._array(value)
            if isinstance(value, self._numpy.generic) and value.dtype.kind in _PLAIN_KINDS:
                return {"g": [value.dtype.str, self._blob(value.tobytes())]}
        # The plain type's own methods are used, so that an override has no say in what crosses.
        if isinstance(value, float):
            return self.tree(float.__float__(value), depth)
        if isinstance(value, int):
            return self.tree(int.__int__(value), depth)
        if isinstance(value, str):
            return str.__str__(value) if type(str.__str__(value)) is str else str.__add__(value, "")
        if isinstance(value, list):
            return self._all(list.__iter__(value), depth)
        if isinstance(value, tuple):
            return {"t": self._all(tuple.__iter__(value), depth)}
        if isinstance(value, dict):
            return {"d": self._pairs(dict.items(value), depth)}
        handle = self._export(value) if self._export is not None else None
        if handle is None:
            raise WireError(f"a value of type {type(value).__name__} cannot cross")
        return {"h": handle}

    def _all(self, values: Any, depth: int) -> list[Any]:
        return [self.tree(value, depth + 1) for value in values]

    def _pairs(self, pairs: Any, depth: int) -> list[list[Any]]:
        return [[self.tree(key, depth + 1), self.tree(value, depth + 1)] for key, value in pairs]

    def _array(self, value: Any) -> dict[str, Any]:
        array = self._numpy.asarray(self._numpy.ascontiguousarray(value)).reshape(value.shape)
        blob = array.reshape(-1).view(self._numpy.uint8) if array.nbytes else b""
        return {"n": [array.dtype.str, list(array.shape), self._blob(blob)]}

    def _blob(self, blob: Any) -> int:
        self.blobs.append(blob)
        return len(self.blobs) - 1


def encode(value: Any, export: Export | None = None) -> list[Buffer]:
    """Returns the parts of one frame.

    Raises:
      WireError: The value holds something that cannot cross, or is too deep or too large.
    """
    encoder = _Encoder(export)
    try:
        text = json.dumps(encoder.tree(value, 0), allow_nan=False, separators=(",", ":"))
    except RuntimeError as error:  # a container that another thread changes meanwhile
        raise WireError(f"the value changed while it was read: {type(error).__name__}") from None
    head = text.encode("utf-8", "surrogatepass")
    parts: list[Buffer] = [_HEAD.pack(len(head), len(encoder.blobs)), head]
    for blob in encoder.blobs:
        parts += [_BLOB.pack(len(blob)), blob]
    size = sum(len(part) for part in parts)
    if size > MAX_FRAME_BYTES:
        raise WireError(f"a value of {size} bytes is over the limit of {MAX_FRAME_BYTES}")
    return parts


class _Decoder:
    def __init__(self, blobs: list[memoryview], resolve: Resolve | None) -> None:
        self._blobs = blobs
        self._resolve = resolve
        self._nodes_left = MAX_NODES

    def value(self, tree: Any, depth: int) -> Any:
        self._nodes_left -= 1
        if depth > MAX_DEPTH + 2 or self._nodes_left < 0:
            raise WireError("the value is too deep or has too many parts")
        if tree is None or isinstance(tree, (bool, str, int, float)):
            return tree
        if isinstance(tree, list):
            return [self.value(part, depth + 1) for part in tree]
        if len(tree) != 1:
            raise WireError("a tag has exactly one key")
        ((tag, body),) = tree.items()
        if tag == "t":
            return tuple(self.value(part, depth + 1) for part in body)
        if tag == "d":
            return {self.value(key, depth + 1): self.value(part, depth + 1) for key, part in body}
        if tag == "s":
            return {self.value(part, depth + 1) for part in body}
        if tag == "n":
            return self._array(*body)
        if tag == "g":
            return self._array(body[0], [1], body[1])[0]
        if tag == "h" and self._resolve is not None and isinstance(body, list):
            return self._resolve(*body)
        return self._scalar(tag, body)

    def _scalar(self, tag: str, body: Any) -> Any:
        if tag == "b":
            return bytes(self._blobs[_index(body)])
        if tag == "f":
            return float.fromhex(body)
        if tag == "c":
            return complex(float.fromhex(body[0]), float.fromhex(body[1]))
        if tag == "i" and len(body) <= _INTEGER_HEX_DIGITS:
            return int(body, 16)
        raise WireError("an unknown tag")

    def _array(self, dtype_name: str, shape: list[int], blob_index: int) -> Any:
        import numpy

        if not _DTYPE.fullmatch(dtype_name):
            raise WireError("an array of a kind that cannot cross")
        dtype = numpy.dtype(dtype_name)
        blob, count = self._blobs[_index(blob_index)], 1
        for length in shape:
            count *= _index(length)
        if count * dtype.itemsize != len(blob):
            raise WireError("an array's shape does not fit its bytes")
        if dtype.kind == "b":  # any byte may come; only 0 and 1 are valid inside a bool array
            return (numpy.frombuffer(blob, dtype=numpy.uint8) != 0).reshape(shape)
        if not count or not dtype.itemsize:
            return numpy.zeros(shape, dtype=dtype)
        return numpy.frombuffer(blob, dtype=dtype).reshape(shape)


def decode(frame: bytearray, resolve: Resolve | None = None) -> Any:
    """Returns the value of a frame; its arrays share the frame's memory and are writable.

    Raises:
      WireError: The frame is not well-formed.  Nothing else is raised, whatever the bytes.
    """
    try:
        view = memoryview(frame)
        head_bytes, blob_count = _HEAD.unpack(view[: _HEAD.size])
        position = _HEAD.size + head_bytes
        if position > len(view) or blob_count > MAX_BLOBS:
            raise WireError("the head does not fit the frame")
        tree = json.loads(bytes(view[_HEAD.size : position]).decode("utf-8", "surrogatepass"))
        blobs: list[memoryview] = []
        for _ in range(blob_count):
            (size,) = _BLOB.unpack(view[position : position + _BLOB.size])
            position += _BLOB.size
            if position + size > len(view):
                raise WireError("a blob does not fit the frame")
            blobs.append(view[position : position + size])
            position += size
        return _Decoder(blobs, resolve).value(tree, 0)
    except WireError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, struct.error) as error:
        raise WireError(f"a malformed value: {type(error).__name__}") from None
    except (RecursionError, OverflowError, MemoryError, ImportError) as error:
        raise WireError(f"a malformed value: {type(error).__name__}") from None


def _hex(value: int) -> str:
    if value.bit_length() > 4 * (_INTEGER_HEX_DIGITS - 3):
        raise WireError("an integer of that many digits cannot cross")
    return hex(value)


def _index(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise WireError("not an index")
    return value
