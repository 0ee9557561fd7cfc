"""An embedding model behind an OpenAI-compatible endpoint."""

import asyncio
import math
import threading
from collections.abc import Sequence
from contextlib import aclosing

import openai

from app.adapters.model.providers import error_body, refusals
from app.adapters.model.providers.event_loop import ModelLoop
from app.adapters.model.providers.http_client import post, text_of
from app.adapters.model.providers.overflow import overflow
from app.adapters.model.providers.spec import ModelSpec
from app.ports.protocols import Misconfigured, Unavailable

MOST_KEPT = 4096
"""Vectors that are kept: the fittest programs are compared with every child."""

_LEAST_CHARS = 200
"""A text that is not longer is not cut where the model refuses it."""


class OpenAIEmbedder:
    """Asks one embedding model, with all texts that it has not seen in one request.

    Safe to share between threads.  It makes one attempt: the step that asks is repeated.
    """

    def __init__(self, spec: ModelSpec, model_loop: ModelLoop) -> None:
        """Connects to nothing.

        Args:
          spec: The model.
          model_loop: The process's; not closed here.
        """
        self._spec = spec
        self._model_loop = model_loop
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[float, ...]] = {}

    def embed(self, texts: Sequence[str]) -> list[Sequence[float]]:
        """See `Embedder.embed`."""
        with self._lock:
            vectors = {text: self._kept[text] for text in texts if text in self._kept}
        if new := [text for text in dict.fromkeys(texts) if text not in vectors]:
            asked = self._ask(new)
            vectors |= self._model_loop.run(asked, self._spec.timeout_seconds)
            with self._lock:
                self._kept |= vectors
                for oldest in list(self._kept)[: max(0, len(self._kept) - MOST_KEPT)]:
                    del self._kept[oldest]
        return [vectors[text] for text in texts]

    async def _ask(self, texts: Sequence[str]) -> dict[str, tuple[float, ...]]:
        """Returns the vector of each text; of one that is too long, that of its beginning."""
        beginnings = list(texts)
        while True:
            vectors = await self._vectors_of(beginnings)
            if vectors is not None:
                return dict(zip(texts, vectors, strict=True))
            longest = max(map(len, beginnings))
            beginnings = [text[: longest // 2] for text in beginnings]

    async def _vectors_of(self, texts: Sequence[str]) -> list[tuple[float, ...]] | None:
        """Returns a vector for each text; None where a text is too long, and can be cut."""
        spec = self._spec
        body = {"model": spec.name, "input": texts, "encoding_format": "float"}
        client = self._model_loop.client(spec)
        try:
            async with (
                asyncio.timeout(spec.timeout_seconds),
                aclosing(await post(client, "/embeddings", body | dict(spec.extra_body))) as answer,
            ):
                content = await answer.aread()
        except openai.APIStatusError as error:
            response, status = error.response, error.status_code
            refused = error_body.read(text_of(response))
            if via := refusals.by_proxy(spec, response, status):
                raise self._unavailable(via) from error
            long = max(map(len, texts)) > _LEAST_CHARS
            if long and overflow(status, refused, 0) is not None:
                return None
            if refusals.transient(status, refused.kinds):
                raise self._unavailable(f"HTTP {status}") from error
            raise Misconfigured(refusals.refusal(spec, status, refused)) from None
        except refusals.BROKEN as error:
            raise self._unavailable(refusals.broken(error, spec.base_url).reason) from error
        except TimeoutError as error:
            raise self._unavailable(f"no answer within {spec.timeout_seconds:g} s") from error
        vectors = _vectors(error_body.document(content))
        if len(vectors) != len(texts) or len({len(vector) for vector in vectors}) != 1:
            raise self._unavailable("the answer does not have a vector for each text")
        return vectors

    def _unavailable(self, why: str) -> Unavailable:
        return Unavailable(f"embedding {self._spec}: {why}")


def _vectors(answer: object) -> list[tuple[float, ...]]:
    """Returns the vectors of an answer, in the order of the texts; fewer where one is unusable."""
    match answer:
        case {"data": [*rows]} if all(isinstance(row, dict) for row in rows):
            ordered = sorted(rows, key=lambda row: row.get("index", 0))
            vectors = (_unit(row.get("embedding")) for row in ordered)
            return [vector for vector in vectors if vector]
    return []


def _unit(vector: object) -> tuple[float, ...]:
    """Returns a vector of length 1 and of the same direction; () where there is none."""
    if not isinstance(vector, list) or not all(isinstance(each, int | float) for each in vector):
        return ()
    length = math.hypot(*vector)
    return tuple(each / length for each in vector) if 0 < length < math.inf else ()
