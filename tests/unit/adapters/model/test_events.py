"""Server-sent events, from blocks that end anywhere."""

import json

import pytest

from app.adapters.model.providers.events import Events

VALUES = [{"n": 1, "text": "Grüße 🎈\n"}, {"n": 2}, [3]]


def stream(end: str) -> bytes:
    events = [f": ping{end}{end}", f"event: message{end}id: 7{end}"]
    events += [f"data: {json.dumps(each, ensure_ascii=False)}{end}{end}" for each in VALUES]
    return ("".join(events) + f"data: [DONE]{end}{end}").encode()


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 50, 1000])
def test_events_are_read_however_blocks_and_lines_end(end: str, size: int) -> None:
    events, whole, values = Events(), stream(end), []
    for start in range(0, len(whole), size):
        values += events.read(whole[start : start + size])
    # A line that ends with CR is complete once the next byte is seen.
    values += events.read(b"\n")

    assert values == VALUES
    assert events.done


def test_an_event_of_several_lines_is_one_value() -> None:
    assert Events().read(b'data: {"a":\ndata: 1}\n\ndata:{"b": 2}\n\n') == [{"a": 1}, {"b": 2}]


def test_an_event_that_is_not_complete_has_no_value() -> None:
    events = Events()

    assert events.read(b'data: {"a": 1}\n\ndata: {"b"') == [{"a": 1}]
    assert events.read(b": 2}\n") == []
    assert events.read(b"\n") == [{"b": 2}]
    assert not events.done


def test_nothing_after_the_end_is_read() -> None:
    events = Events()

    assert events.read(b'data: {"a": 1}\n\ndata: [DONE]\n\ndata: no JSON\n\n') == [{"a": 1}]
    assert events.done


@pytest.mark.parametrize(
    "broken", [b"data: {no\n\n", b'data: "\xff"\n\n', b"data: \n\ndata: 1\n\n"]
)
def test_an_event_that_is_no_json_is_an_error(broken: bytes) -> None:
    with pytest.raises(ValueError, match=r"Expecting|utf-8"):
        Events().read(broken)
