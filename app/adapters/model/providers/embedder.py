"""An embedding model behind an OpenAI-compatible endpoint."""

import asyncio
import math
import threading
from collections.abc import Sequence
from typing import Any

import aiohttp

from app.adapters.model.providers import error_body, refusals
from app.adapters.model.providers.event_loop import ModelLoop
from app.adapters.model.providers.http_session import post_json
from app.adapters.model.providers.overflow import overflow
from app.adapters.model.providers.proxies import answered_by_proxy, environment_proxy
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
        address = spec.base_url.rstrip("/") + "/embeddings"
        body = {"model": spec.name, "input": texts, "encoding_format": "float"}
        try:
            async with asyncio.timeout(spec.timeout_seconds):
                session = self._model_loop.session(spec)
                response = await post_json(session, address, body | dict(spec.extra_body))
        except aiohttp.ClientError as error:
            raise self._unavailable(refusals.broken(spec, error).reason) from error
        except TimeoutError as error:
            raise self._unavailable(f"{type(error).__name__}: {error}") from error
        proxy = environment_proxy(spec.base_url)
        if not 200 <= response.status < 300:
            if proxy and answered_by_proxy(response.status, response.headers, response.text):
                failure = refusals.refused_by_proxy(spec, proxy, response.status)
                raise self._unavailable(failure.reason)
            refused = error_body.read(response.text)
            long = max(map(len, texts)) > _LEAST_CHARS
            if long and overflow(response.status, refused, 0) is not None:
                return None
            if refusals.transient(response.status, refused.kinds):
                raise self._unavailable(f"HTTP {response.status}")
            raise Misconfigured(refusals.refusal(spec, response.status, refused))
        vectors = _vectors(error_body.document(response.content))
        if len(vectors) != len(texts) or len({len(vector) for vector in vectors}) != 1:
            raise self._unavailable("the answer does not have a vector for each text")
        return vectors

    def _unavailable(self, why: str) -> Unavailable:
        return Unavailable(f"embedding model {self._spec.name!r} at {self._spec.base_url}: {why}")


def _vectors(answer: Any) -> list[tuple[float, ...]]:
    """Returns the vectors of an answer, in the order of the texts; fewer where one is unusable."""
    match answer:
        case {"data": [*rows]} if all(isinstance(row, dict) for row in rows):
            ordered = sorted(rows, key=lambda row: row.get("index", 0))
            vectors = (_unit(row.get("embedding")) for row in ordered)
            return [vector for vector in vectors if vector]
    return []


def _unit(vector: Any) -> tuple[float, ...]:
    """Returns a vector of length 1 and of the same direction; () where there is none."""
    if not isinstance(vector, list) or not all(isinstance(each, int | float) for each in vector):
        return ()
    length = math.hypot(*vector)
    return tuple(each / length for each in vector) if 0 < length < math.inf else ()
