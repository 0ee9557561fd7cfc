"""The advice about a refusal of an endpoint is carried out, and the endpoint answers."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from app.adapters.model.providers.attempts import EndpointModel
from app.adapters.model.providers.event_loop import ModelLoop
from app.adapters.model.providers.openai import OpenAIWire
from app.adapters.model.providers.spec import ModelSpec
from app.domain.operator import Prompt
from app.ports.protocols import Misconfigured
from tests.integration.test_model_openai import KEY, Endpoint, Reply, refused, said

REFUSALS = {
    "absent": refused(404, "no such model"),
    "dear": refused(402, "no credit"),
    "closed": refused(403, "not for this key"),
}


@contextmanager
def particular() -> Iterator[Endpoint]:
    """Yields an endpoint that knows one key, some models and a path, and has moved from `/old`."""

    def answer(body: dict[str, Any]) -> Reply:
        if endpoint.paths[-1].startswith("/old"):
            return Reply(301, headers={"location": f"{endpoint.url}/chat/completions"})
        if not endpoint.paths[-1].startswith("/v1/"):
            return refused(404, "no such path")
        if "top_k" in body:
            return refused(400, "top_k is a whole number")
        return REFUSALS.get(body["model"], said("x"))

    endpoint = Endpoint(answer, key=KEY)
    try:
        yield endpoint
    finally:
        endpoint.close()


@dataclass(frozen=True, slots=True)
class Row:
    """A model that is refused, the words of the advice, and models that it leads to.

    Attributes:
      given: Fields of a ModelSpec; an address is relative to the endpoint's host.
    """

    given: Mapping[str, Any]
    advice: str
    carried_out: Sequence[Mapping[str, Any]]


ROWS = [
    Row(
        {"extra_body": {"top_k": "all"}},
        "check the model's name and parameters",
        [{}],
    ),
    Row(
        {"api_key": "another"},
        "check the key in the variable that its api_key_variable names (OPENAI_API_KEY, which is",
        [{}],
    ),
    Row(
        {"name": "dear"},
        "the account has no credit left: pay, or choose another model",
        [{"name": "m"}],
    ),
    Row(
        {"name": "closed"},
        "this key may not use this model: choose another model or another key",
        [{"name": "m"}],
    ),
    Row(
        {"name": "absent"},
        "check its base_url (it usually ends in /v1) and the model's name",
        [{"name": "m"}],
    ),
    Row(
        {"base_url": ""},
        "check its base_url (it usually ends in /v1) and the model's name",
        [{"base_url": "/v1"}],
    ),
    Row(
        {"base_url": "/old/v1"},
        "and the request is lost on the way: set its base_url to where it is",
        [{"base_url": "/v1"}],
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.advice[:40])
def test_an_endpoint_answers_once_the_advice_about_its_refusal_was_carried_out(row: Row) -> None:
    loop = ModelLoop()

    def ask(endpoint: Endpoint, fields: Mapping[str, Any]) -> str:
        host = endpoint.url.removesuffix("/v1")
        address = {"base_url": f"{host}{fields.get('base_url', '/v1')}"}
        spec = ModelSpec(**{"name": "m", "api_key": KEY, **fields, **address})
        [completion] = EndpointModel(OpenAIWire(spec), loop).complete([Prompt("", "hi")])
        return completion.text

    with particular() as endpoint:
        try:
            with pytest.raises(Misconfigured) as caught:
                ask(endpoint, row.given)
            assert row.advice in str(caught.value)
            for fields in row.carried_out:
                assert ask(endpoint, fields) == "x"
        finally:
            loop.close()
