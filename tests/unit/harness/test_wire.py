"""The format in which values cross between evaluator and program."""

import contextlib
import json
import math
import socket
import struct
import tracemalloc
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.harness import wire
from workers.harness.wire_limits import MAX_DEPTH, MAX_NODES

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
    | st.binary() | st.complex_numbers(allow_nan=False)
)  # fmt: skip
KEYS = st.none() | st.booleans() | st.integers() | st.text() | st.binary()
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.sets(KEYS, max_size=4)
    ),
    max_leaves=20,
)


def frame(value: Any, **keywords: Any) -> bytearray:
    return bytearray(b"".join(bytes(part) for part in wire.encode(value, **keywords)))


def handmade(tree: bytes, *blobs: bytes) -> bytearray:
    """A frame whose tree may say anything."""
    sizes = struct.pack(f">{len(blobs)}Q", *map(len, blobs))
    padded = b"".join(blob + b"\0" * (-len(blob) % 16) for blob in blobs)
    return bytearray(struct.pack(">II", len(tree), len(blobs)) + sizes + tree + padded)


def crossed(value: Any) -> Any:
    return wire.decode(frame(value))


@given(VALUES)
def test_plain_values_cross_unchanged(value: Any) -> None:
    back = crossed(value)
    assert back == value
    assert type(back) is type(value)


@given(st.binary(max_size=300))
def test_no_bytes_make_the_decoder_raise_anything_but_its_own_error(noise: bytes) -> None:
    with contextlib.suppress(wire.WireError):
        wire.decode(bytearray(noise))


@given(VALUES, st.integers(min_value=0), st.integers(min_value=0, max_value=255))
def test_a_damaged_frame_is_a_value_or_an_error(value: Any, position: int, byte: int) -> None:
    damaged = frame(value)
    damaged[position % len(damaged)] = byte
    with contextlib.suppress(wire.WireError):
        wire.decode(damaged)


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from("tdslngbucfih") | st.text(max_size=2), inner, max_size=2)
    ),
    max_leaves=20,
)


@given(TREES, st.lists(st.binary(max_size=40), max_size=3))
def test_no_tree_makes_the_decoder_raise_anything_but_its_own_error(
    tree: Any, blobs: list[bytes]
) -> None:
    text = json.dumps(tree).encode()
    with contextlib.suppress(wire.WireError):
        wire.decode(handmade(text, *blobs), resolve=lambda kind, number: (kind, number))


@given(st.integers(min_value=0, max_value=2**32 - 1), st.integers(0, 2**32 - 1), st.binary())
def test_no_head_makes_the_decoder_build_more_than_was_sent(
    tree: int, blobs: int, rest: bytes
) -> None:
    with contextlib.suppress(wire.WireError):
        wire.decode(bytearray(struct.pack(">II", tree, blobs) + rest))


@pytest.mark.parametrize("part", [b"[]", b"{}", b"0", b'"ab"', b'{"s":[]}'])
def test_a_tree_of_millions_of_parts_is_refused_before_it_is_built(part: bytes) -> None:
    marks = len(b"," + part) - len((b"," + part).translate(None, b",[{"))
    bomb = handmade(b"[" + b",".join([part] * (3 * MAX_NODES // marks + 1)) + b"]")
    tracemalloc.start()
    with pytest.raises(wire.WireError, match="parts"):
        wire.decode(bomb)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * len(bomb)


@given(
    st.lists(st.integers() | st.floats(allow_nan=False) | st.text() | st.booleans(), min_size=16)
)
def test_long_lists_of_scalars_cross_unchanged(value: list[Any]) -> None:
    assert crossed(value) == value
    assert [type(part) for part in crossed((value, value))[1]] == [type(part) for part in value]


@given(st.lists(st.floats(), min_size=16))
def test_long_lists_of_numbers_cross_with_every_bit(value: list[float]) -> None:
    assert struct.pack(f"{len(value)}d", *crossed(value)) == struct.pack(f"{len(value)}d", *value)


@pytest.mark.parametrize(
    "value",
    [
        [2**63] * 20, [-(2**63)] * 20, [True] * 20, [10**4000, 1.5], [math.inf, "x", 10**5000],
        "," * 10_000_000, ["," * 300] * 30_000, "\ud800" * 1000, [[0.5] * 16] * 60_000,
    ],
    ids=range(9),
)  # fmt: skip
def test_unusual_plain_values_cross_unchanged(value: Any) -> None:
    assert crossed(value) == value


def test_characters_that_do_not_exist_are_refused() -> None:
    with pytest.raises(wire.WireError, match="characters"):
        wire.decode(handmade(b'{"n": ["<U2", [1], 0]}', b"\xff" * 8))


def test_an_array_arrives_aligned() -> None:
    array = numpy.arange(5.0)
    for name in ("a", "ab", "abc", "abcdefghijklm"):
        back = crossed({name: array, "next": [b"123", array]})
        assert back[name].flags.aligned
        assert back["next"][1].flags.aligned


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_infinities_cross(value: float) -> None:
    assert crossed(value) == value


def test_nan_crosses() -> None:
    assert math.isnan(crossed(math.nan))


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint64", "float16", "float64", "complex128", "U5", "S3"]
)
def test_arrays_cross_with_shape_and_kind(dtype: str) -> None:
    array = numpy.arange(6).reshape(2, 3).astype(dtype)
    back = crossed({"a": array})["a"]
    assert back.dtype == array.dtype
    assert (back == array).all()
    back[0, 0] = back[1, 1]


@pytest.mark.parametrize("shape", [(0,), (), (3, 0, 2)])
def test_empty_and_zero_dimensional_arrays_cross(shape: tuple[int, ...]) -> None:
    assert crossed(numpy.zeros(shape)).shape == shape


def test_an_array_of_objects_does_not_cross() -> None:
    with pytest.raises(wire.WireError):
        wire.encode(numpy.array([object()]))


def test_a_subclass_crosses_as_its_plain_type() -> None:
    class Sly(float):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]  # as a program might

    assert type(crossed(Sly(2.5))) is float
    assert crossed(Sly(2.5)) == 2.5


def test_an_object_crosses_only_as_a_handle() -> None:
    thing = object()
    with pytest.raises(wire.WireError, match="object"):
        wire.encode(thing)
    sent = frame([thing], export=lambda _: ["object", 7])
    assert wire.decode(sent, resolve=lambda kind, number: (kind, number)) == [("object", 7)]
    with pytest.raises(wire.WireError):
        wire.decode(sent)


def test_a_value_nested_too_deep_does_not_cross() -> None:
    value: list[Any] = []
    for _ in range(MAX_DEPTH + 5):
        value = [value]
    with pytest.raises(wire.WireError, match="nested"):
        wire.encode(value)


@pytest.mark.parametrize(
    "tree",
    [
        b'{"n": ["|O8", [1], 0]}',
        b'{"n": ["<f8", [-1], 0]}',
        b'{"n": ["<f8", [1000000000000], 0]}',
        b'{"n": ["<f8", [true], 0]}',
        b'{"n": ["V8", [1], 0]}',
        b'{"b": -1}',
        b'{"b": 99}',
        b'{"i": "zz"}',
        b'{"x": 1}',
        b'{"t": 1, "s": 2}',
        b'{"s": [[1]]}',
        b'{"h": ["object", 1]}',
        b'{"l": ["d", 7]}',
        b'{"l": ["w", 0]}',
        b'{"l": "d"}',
        b'{"t": {"l": ["q", 0], "t": 1}}',
        b'{"u": 9}',
        b'{"n": ["<f8", ' + b"[" + b"1," * 40 + b"1], 0]}",
        b'{"n": ["<f8", [' + b"9" * 4000 + b"], 0]}",
        b"9" * 5000,
        b'{"d": [[[1], 2]]}',
        b"[" * 100_000,
    ],
)
def test_a_malformed_tree_is_refused(tree: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.decode(handmade(tree, b"\0" * 8))


def test_invalid_boolean_bytes_become_booleans() -> None:
    tree = b'{"n": ["|b1", [2], 0]}'
    assert wire.decode(handmade(tree, b"\x07\x00")).view("uint8").tolist() == [1, 0]


def test_a_frame_longer_than_the_limit_is_not_read() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(struct.pack(">I", 2**32 - 1))
        with pytest.raises(wire.WireError, match="limit"):
            wire.receive_frame(ours)


def test_a_closed_peer_ends_the_stream() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        theirs.sendall(b"\0\0")
        theirs.close()
        with pytest.raises(EOFError):
            wire.receive_frame(ours)
