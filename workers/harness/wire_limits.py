"""What may cross between evaluator and program, and in which shape: shared by both directions."""

from __future__ import annotations

import struct

MAX_FRAME_BYTES = 64 << 20
MAX_DEPTH = 64
MAX_NODES = 2_000_000
MAX_BLOBS = 100_000
MAX_DIMENSIONS = 32
INTEGER_HEX_DIGITS = 20_000
PRINTED_HEX_DIGITS = 3_500
"""Of the longest integer of a player: Python refuses to print more than 4,300 decimal digits, and a
referee that prints a move must not fail of it."""
PLAIN_KINDS = "biufcSU"

PLAIN = frozenset({type(None), bool, int, float, str})
WORDS = {float: "d", int: "q"}
"""Numbers that travel as an array of machine words where a list holds many of one kind."""

HEAD = struct.Struct(">II")
SIZE_BYTES = 8
ALIGNMENT = 16
"""Arrays are used where they arrive, and compiled code wants them aligned."""
SMALL_TREE_BYTES = 1 << 16

_MOST_MARKS = 3 * MAX_NODES
"""A part has at most a comma, a bracket and the marks of its tag."""


class WireError(ValueError):
    """A value cannot cross, or what arrived is not a well-formed value."""


def too_many_marks(tree: bytes | bytearray) -> bool:
    """Returns whether a tree may have more parts than are allowed, without parsing it."""
    if len(tree) < SMALL_TREE_BYTES:
        return False
    return tree.count(b",") + tree.count(b"[") + tree.count(b"{") > _MOST_MARKS
