"""Frames between worker and sandbox: a JSON header and raw bytes, both length-prefixed.

The raw part is read into and written from buffers that can be overwritten afterwards, so that no
copy of a program or a result stays in the memory that later programs are forked from.
"""

from __future__ import annotations

import base64
import json
import os
import struct
import zlib
from collections.abc import Sequence
from typing import Any

_LENGTHS = struct.Struct(">IQ")
HEADER_BYTES = _LENGTHS.size
_CHUNK = 1 << 20
LINE = b"@@EVOQ"
"""Begins a frame that is a line of a log: the mark follows, then the compressed frame in base64."""

_lines: dict[int, bytes] = {}
"""Descriptors of logs, with the beginning of each line."""


def pack_lengths(header: bytes, raw_bytes: int) -> bytes:
    return _LENGTHS.pack(len(header), raw_bytes)


def unpack_lengths(prefix: bytes) -> tuple[int, int]:
    """Returns the lengths in bytes of a frame's header and of its raw part."""
    header, raw = _LENGTHS.unpack(prefix)
    return header, raw


def fill(fd: int, buffer: bytearray) -> bool:
    """Fills `buffer` from `fd`; returns False if the other end is closed."""
    with memoryview(buffer) as view:
        done = 0
        while done < len(view):
            count = os.readv(fd, [view[done : done + _CHUNK]])
            if not count:
                return False
            done += count
    return True


def read_header(fd: int) -> tuple[dict[str, Any], int] | None:
    """Returns a frame's header and the length of its raw part; None if the other end is closed."""
    prefix = bytearray(HEADER_BYTES)
    if not fill(fd, prefix):
        return None
    header_bytes, raw_bytes = unpack_lengths(bytes(prefix))
    header = bytearray(header_bytes)
    if not fill(fd, header):
        return None
    return json.loads(header), raw_bytes


def write_as_lines(fd: int, mark: str) -> None:
    """Has every later frame of a descriptor written as a line of text."""
    _lines[fd] = b"%s %s " % (LINE, mark.encode())


def write_frame(fd: int, header: dict[str, Any], raw: Sequence[memoryview] = ()) -> None:
    text = json.dumps(header).encode()
    if fd in _lines:
        frame = pack_lengths(text, sum(len(part) for part in raw)) + text + b"".join(raw)
        line = base64.b64encode(zlib.compress(frame, 1))
        write_all(fd, memoryview(b"%s%s\n" % (_lines[fd], line)))
        return
    write_all(fd, memoryview(pack_lengths(text, sum(len(part) for part in raw)) + text))
    for part in raw:
        write_all(fd, part)


def write_all(fd: int, view: memoryview) -> None:
    while len(view):
        view = view[os.write(fd, view) :]


def wipe(buffer: bytearray) -> None:
    """Overwrites `buffer` with zeros in place."""
    with memoryview(buffer) as view:
        for start in range(0, len(view), _CHUNK):
            view[start : start + _CHUNK] = bytes(len(view[start : start + _CHUNK]))
