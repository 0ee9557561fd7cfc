"""Embeddings of texts from an OpenAI-compatible endpoint, a simulated one here."""

import json
import math
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from typing import Any

import pytest

from app.adapters.model.providers.embedder import OpenAIEmbedder
from app.adapters.model.providers.event_loop import ModelLoop
from app.adapters.model.providers.presets import PRESETS
from app.adapters.model.providers.spec import ModelSpec
from app.config.models import Provider
from app.domain.source.similarity import cosine
from app.ports.protocols import Misconfigured, Unavailable
from tests.integration.mock_llm import fetch, mock_llm
from tests.integration.test_model_openai import Endpoint, Reply, refused

PROGRAM = "def f(x):\n    return 0.5 + 0.3 * x\n"


@pytest.fixture
def model_loop() -> Iterator[ModelLoop]:
    model_loop = ModelLoop()
    yield model_loop
    model_loop.close()


def spec(base_url: str) -> ModelSpec:
    return ModelSpec(
        name="mock",
        base_url=base_url,
        api_key="",
        key_variable="OPENAI_API_KEY",
        preset=PRESETS[Provider.OPENAI],
        timeout_seconds=10.0,
    )


def test_texts_have_vectors_in_their_order_and_known_ones_are_not_asked_for(model_loop: ModelLoop):
    texts = [PROGRAM, PROGRAM.replace("0.3", "0.4"), "import os\n"]
    with mock_llm() as mock:
        embedder = OpenAIEmbedder(spec(mock.base_url), model_loop)
        one, near, far = embedder.embed(texts)
        again = OpenAIEmbedder(spec(mock.base_url), model_loop).embed([texts[2], texts[0]])

    assert again == [far, one]
    assert embedder.embed([texts[1], texts[1], texts[0]]) == [near, near, one]
    assert cosine(one, one) == pytest.approx(1.0)
    assert cosine(one, far) < 0.5 < 0.9 < cosine(one, near) < 1.0
    assert math.hypot(*far) == pytest.approx(1.0)
    with pytest.raises(Unavailable, match="embedding model 'mock' at http"):
        embedder.embed(["a text that the endpoint, which is gone, has not seen"])


def test_further_fields_go_with_each_request_of_the_embedder(model_loop: ModelLoop):
    with mock_llm() as mock:
        own = replace(spec(mock.base_url), extra_body={"input": [1]})
        with pytest.raises(Misconfigured, match="HTTP 400"):
            OpenAIEmbedder(own, model_loop).embed([PROGRAM])


def test_vectors_are_waited_for_as_long_as_the_setting_says():
    waited: list[float] = []

    class Loop:
        def run(self, work: Coroutine[Any, Any, Any], seconds: float) -> dict[str, Any]:
            work.close()
            waited.append(seconds)
            return {PROGRAM: (1.0,)}

    loop: Any = Loop()
    patient = replace(spec("http://h/v1"), timeout_seconds=7.0)

    assert OpenAIEmbedder(patient, loop).embed([PROGRAM]) == [(1.0,)]
    assert waited == [7.0]


def test_an_endpoint_without_embeddings_is_a_matter_of_settings(model_loop: ModelLoop):
    with mock_llm() as mock:
        wrong = replace(spec(mock.base_url), base_url=mock.base_url + "/none")
        with pytest.raises(Misconfigured, match="HTTP 404"):
            OpenAIEmbedder(wrong, model_loop).embed([PROGRAM])
        for body in ({"model": "mock"}, {"model": "mock", "input": [1]}, []):
            refused = fetch(f"{mock.base_url}/embeddings", json.dumps(body).encode())
            assert refused.status == 400


def test_a_text_that_is_too_long_has_the_vector_of_its_beginning(model_loop: ModelLoop):
    def answer(body: dict[str, Any]) -> Reply:
        if max(map(len, body["input"])) > 2_000:
            return refused(400, "the input length exceeds the context length")
        rows = [{"index": n, "embedding": [len(text), 1]} for n, text in enumerate(body["input"])]
        return Reply(200, json.dumps({"data": rows}).encode())

    endpoint = Endpoint(answer)
    try:
        vectors = OpenAIEmbedder(spec(endpoint.url), model_loop).embed(["x" * 5_000, "y" * 100])
    finally:
        endpoint.close()

    assert [len(vector) for vector in vectors] == [2, 2]
    assert [max(map(len, asked["input"])) for asked in endpoint.asked] == [5_000, 2_500, 1_250]
