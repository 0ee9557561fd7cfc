"""The frames' types are a contract: what is generated is what docs/ shows to other programs."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from app.dashboard import frames
from app.domain.events import Event, Fact, Finished, Improved


def test_the_typescript_types_in_the_documentation_are_the_generated_ones(repository: Path):
    kept = (repository / "docs/frames.ts").read_text()

    assert kept == frames.typescript(), "`make frames` writes them anew"


def test_the_schema_in_the_documentation_is_the_generated_one(repository: Path):
    kept = json.loads((repository / "docs/frames.schema.json").read_text())

    assert kept == frames.json_schema(), "`make frames` writes it anew"


def test_every_kind_of_event_has_a_frame():
    schema = frames.json_schema()
    kinds = {
        definition["properties"]["kind"]["const"]
        for name, definition in schema["$defs"].items()
        if name.endswith("Event")
    }

    assert kinds == {fact.kind.value for fact in get_args(Fact)}


def frame(fact: Fact) -> Any:
    return json.loads(frames.encode(7, Event(3, 1.25, fact)))


def test_an_encoded_event_is_a_frame_of_its_type():
    fact = Improved(program="a" * 64, fitness=0.1 + 0.2, settled=4)

    read = frames.adapter().validate_python(frame(fact))

    assert (read.event.run, read.event.seq, read.event.kind) == (7, 3, "improved")
    assert read.event.data == fact


def test_a_frame_of_an_unknown_kind_is_refused():
    document = frame(Finished(proposals=1, reason="x"))
    document["event"]["kind"] = "exploded"

    with pytest.raises(ValidationError):
        frames.adapter().validate_python(document)
