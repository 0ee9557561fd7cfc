"""Simulated embeddings: texts of equal tokens have equal vectors, similar texts near ones."""

import itertools
import json
import re
import zlib
from typing import Any

from mock_llm.chat_request import ErrorReply

DIMENSIONS = 256
_TOKEN = re.compile(r"\w+|[^\w\s]")


def vector(text: str) -> list[float]:
    """Returns the counts of a text's tokens and of its pairs of tokens, hashed to dimensions."""
    tokens = _TOKEN.findall(text)
    counts = [0.0] * DIMENSIONS
    for feature in [
        *tokens,
        *(f"{one} {two}" for one, two in itertools.pairwise(tokens)),
    ]:
        counts[zlib.crc32(feature.encode("utf-8", "surrogatepass")) % DIMENSIONS] += 1.0
    return counts


def answer(body: bytes) -> dict[str, Any] | ErrorReply:
    """Returns the answer to a request for embeddings, or the error in the request."""
    try:
        match json.loads(body):
            case {"model": str(model), "input": str() | list() as given}:
                texts = [given] if isinstance(given, str) else given
            case _:
                return ErrorReply(400, "a request has a `model` and an `input`")
    except ValueError as error:
        return ErrorReply(400, f"not JSON: {error}")
    if not all(isinstance(text, str) for text in texts):
        return ErrorReply(400, "`input` is a text or a list of texts")
    rows = [
        {"object": "embedding", "index": n, "embedding": vector(text)}
        for n, text in enumerate(texts)
    ]
    tokens = sum(len(_TOKEN.findall(text)) for text in texts)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": rows, "model": model, "usage": usage}
