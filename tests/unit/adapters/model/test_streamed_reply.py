"""Parts of a streamed answer: how tokens are counted."""

from typing import Any

import pytest

from app.adapters.model.providers.streamed_reply import StreamedReply


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
    reply = StreamedReply(100)
    for event in (part(0, "Yes"), part(1, "No"), *counts):
        reply.add(event)

    assert reply.usage is not None
    assert reply.usage["prompt_tokens"] == 35
    assert reply.usage["completion_tokens"] == completion
    assert reply.usage["total_tokens"] == 35 + completion
    assert reply.usage["prompt_tokens_details"] == {"cached_tokens": 4}
