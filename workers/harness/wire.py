"""The data-only format in which values cross between evaluator and program.

Never pickle.  Decoding can build nothing but None, bool, int, float, complex, str, bytes, list,
tuple, dict, set, NumPy arrays and scalars of plain kinds, and whatever the caller's `resolve` makes
of a numbered handle.  Subclasses are flattened to their plain type, so that nothing a program
returns carries behaviour of its own.

A frame is a table of sizes, a JSON tree in which one-key objects are tags, and binary blobs.  A
list of plain scalars is the same in the tree as in memory, so that the interpreter's own JSON code
reads and writes it whole; every bound is checked before anything is built.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Sequence

from .decoding import Resolve, decode
from .encoding import Buffer, Export, encode
from .wire_limits import MAX_FRAME_BYTES, WireError

__all__ = [
    "Buffer",
    "Export",
    "Resolve",
    "WireError",
    "decode",
    "encode",
    "receive_frame",
    "send_frame",
]

_JOIN_BELOW_BYTES = 65_536
_FRAME = struct.Struct(">I")


def send_frame(sock: socket.socket, parts: Sequence[Buffer]) -> None:
    """Sends one frame.

    Raises:
      OSError: The peer is gone.
    """
    total = sum(map(len, parts))
    prefix = _FRAME.pack(total)
    if total < _JOIN_BELOW_BYTES:
        sock.sendall(b"".join((prefix, *parts)), socket.MSG_NOSIGNAL)
        return
    for part in (prefix, *parts):
        if len(part):
            sock.sendall(part, socket.MSG_NOSIGNAL)


def receive_frame(
    sock: socket.socket,
    limit_bytes: int = MAX_FRAME_BYTES,
    left_seconds: Callable[[], float] | None = None,
) -> bytearray:
    """Returns one frame's contents.

    Args:
      sock: Where it comes from.
      limit_bytes: Largest frame.
      left_seconds: Returns the time that the peer has left, above 0; None for one without a clock.

    Raises:
      EOFError: The peer is gone.
      TimeoutError: The peer has used its time.
      WireError: The frame is larger than `limit_bytes`.
    """
    (size,) = _FRAME.unpack(_receive(sock, _FRAME.size, left_seconds))
    if size > limit_bytes:
        raise WireError(f"a value of {size} bytes is over the limit of {limit_bytes}")
    return _receive(sock, size, left_seconds)


def _receive(sock: socket.socket, size: int, left_seconds: Callable[[], float] | None) -> bytearray:
    buffer = bytearray(size)
    view, done = memoryview(buffer), 0
    while done < size:
        if left_seconds is not None:
            sock.settimeout(left_seconds())
        count = sock.recv_into(view[done:], min(size - done, 1 << 20))
        if not count:
            raise EOFError("the peer is gone")
        done += count
    return buffer
