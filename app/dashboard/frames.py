"""Frames: what `/ws` sends, typed; their JSON Schema, and TypeScript types made from it.

A frame is one event of a run as the ledger has it, so live bytes and bytes that are read again are
equal.  A frame of moves is no event, has no `seq`, and is sent to who asks for it alone.
"""

import json
from dataclasses import asdict
from functools import cache
from typing import Any, Literal, TypeAlias, get_args

from pydantic import BaseModel, Field, TypeAdapter, create_model

from app.dashboard.games import LiveGame
from app.domain.events import Event, EventKind, Fact

Schema: TypeAlias = dict[str, Any]
"""A JSON Schema, or a part of one."""
_ENCODER = json.JSONEncoder(separators=(",", ":"))


def encode(run: int, event: Event) -> str:
    """Returns the frame of an event: compact JSON, the same text each time."""
    body = {
        "run": run,
        "seq": event.seq,
        "seconds": event.seconds,
        "kind": event.kind,
        "data": event.data,
    }
    return _ENCODER.encode({"event": body})


class MovesFrame(BaseModel):
    """The moves so far of a game that is being played; `/ws` sends it with `moves=true` alone."""

    moves: LiveGame


def encode_moves(game: LiveGame) -> str:
    """Returns the frame of the moves of a game: compact JSON."""
    return _ENCODER.encode({"moves": asdict(game)})


@cache
def adapter() -> TypeAdapter[object]:
    """Returns the type of a frame: a union that `event.kind` discriminates."""
    frames = tuple(_frame(fact) for fact in get_args(Fact))
    union: Any = frames[0]
    for frame in frames[1:]:
        union = union | frame
    return TypeAdapter(union)


def _frame(fact: type[Fact]) -> type[BaseModel]:
    event: Any = create_model(
        f"{fact.__name__}Event",
        __doc__=None,
        run=(int, Field(description="Number of the run.")),
        seq=(int, Field(ge=1, description="1, 2, 3 … within the run, without gaps.")),
        seconds=(float, Field(description="After the run's creation.")),
        kind=(_constant(fact.kind), ...),
        data=(fact, ...),
    )
    return create_model(f"{fact.__name__}Frame", event=(event, ...))


def _constant(kind: EventKind) -> Any:
    return Literal[kind.value]


def json_schema() -> Schema:
    """Returns the JSON Schema of a frame; that of a frame of moves is among its definitions."""
    schema = adapter().json_schema()
    moves = MovesFrame.model_json_schema()
    schema["$defs"] |= moves.pop("$defs")
    schema["$defs"][MovesFrame.__name__] = moves
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Frame",
        **schema,
    }


def typescript() -> str:
    """Returns TypeScript types of the frames, made from the JSON Schema."""
    schema = json_schema()
    lines = ["// Frames of Evoqueue's /ws, made from the JSON Schema at /api/frames.json.", ""]
    for name, definition in sorted(schema["$defs"].items()):
        lines += [f"export type {name} = {_type(definition, '')};", ""]
    lines += [f"export type Frame = {_type({'anyOf': schema['anyOf']}, '')};", ""]
    return "\n".join(lines)


_PLAIN = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
}


def _type(schema: Schema, indent: str) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_type(each, indent) for each in schema["anyOf"]))
    if "type" not in schema:
        return "unknown"
    kind = schema["type"]
    if kind == "array":
        return f"({_type(schema['items'], indent)})[]"
    if kind != "object":
        return _PLAIN[kind]
    if "properties" not in schema:
        values = schema.get("additionalProperties")
        return f"Record<string, {_type(values, indent) if isinstance(values, dict) else 'unknown'}>"
    inner = indent + "  "
    required = schema.get("required", ())
    fields = (
        f"{inner}{name}{'' if name in required else '?'}: {_type(field, inner)};"
        for name, field in schema["properties"].items()
    )
    return "\n".join(["{", *fields, f"{indent}}}"])
