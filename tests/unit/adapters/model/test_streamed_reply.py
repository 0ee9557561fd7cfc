"""Parts of a streamed answer: how tokens are counted."""

from typing import Any

import pytest

from app.adapters.model.providers.openai import OpenAIWire
from app.adapters.model.providers.spec import ModelSpec
from app.adapters.model.providers.streamed_reply import StreamedReply, TokenUsage


def part(index: int, text: str) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": {"content": text}}]}


def counted(completion: int, choices: list[object]) -> dict[str, Any]:
    usage = {
        "prompt_tokens": 35,
        "completion_tokens": completion,
        "total_tokens": 35 + completion,
        "prompt_tokens_details": {"cached_tokens": 4},
    }
    return {"choices": choices, "usage": usage}


@pytest.mark.parametrize(
    ("counts", "completion"),
    [
        ([counted(7, [])], 7),
        ([counted(2, []), counted(2, []), counted(3, [])], 7),
        ([counted(1, part(0, "a")["choices"]), counted(7, part(0, "b")["choices"])], 7),
        ([counted(5, part(0, "a")["choices"]), counted(7, [])], 7),
    ],
    ids=["OpenAI", "llama.cpp with n", "vLLM, so far", "vLLM, so far and at the end"],
)
def test_the_tokens_of_several_choices_are_counted_once(
    counts: list[dict[str, Any]], completion: int
) -> None:
    reply, wire = StreamedReply(100), OpenAIWire(ModelSpec("m"))
    for event in (part(0, "Yes"), part(1, "No"), *counts):
        wire.add(event, reply)

    assert reply.usage == TokenUsage(prompt=35, cached=4, completion=completion)
