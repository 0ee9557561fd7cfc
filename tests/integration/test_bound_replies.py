"""Bound replies: the model goes on from the header, where its endpoint says that it can."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from app.adapters.model.congestion.gate import FixedGate
from app.adapters.model.providers.attempts import EndpointModel
from app.adapters.model.providers.event_loop import ModelLoop
from app.adapters.model.providers.openai import OpenAIWire
from app.adapters.model.providers.spec import ModelSpec
from app.domain.operator import Prompt, ReplyForm

FORM = ReplyForm("```python\ndef f(x):\n", ("\n```",), "\n```\n")
PROMPT = Prompt("", "Write f.", form=FORM)
LLAMACPP = {"/props": {"chat_template": "{{ messages }}"}}
THINKING = {"/props": {"chat_template": "{% if enable_thinking %}<think>{% endif %}"}}
FIELDS = {"messages": {}, "continue_final_message": {}, "add_generation_prompt": {}}


def schema(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"components": {"schemas": {"ChatCompletionRequest": {"properties": fields}}}}


VLLM = {"/openapi.json": schema(FIELDS)}
Answer = Callable[[dict[str, Any]], dict[str, Any]]


def goes_on(body: dict[str, Any]) -> dict[str, Any]:
    bound = body["messages"][-1]["role"] == "assistant"
    return said("    return x" if bound else "Here it is:\n```python\ndef f(x):\n    pass\n```\n")


def said(text: str, finish: str = "stop", **more: Any) -> dict[str, Any]:
    choice = {"message": {"content": text, **more}, "finish_reason": finish}
    return {"choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": 3}}


class Described:
    """An endpoint that describes itself, and answers every request."""

    def __init__(self, documents: Mapping[str, Any], answer: Answer) -> None:
        self.asked: list[dict[str, Any]] = []
        self.read: list[str] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                endpoint.read.append(self.path)
                self.reply(200 if self.path in documents else 404, documents.get(self.path, {}))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                endpoint.asked.append(body)
                value = answer(body)
                self.reply(value.pop("status", 200), value)

            def reply(self, status: int, value: Any) -> None:
                content = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def described(
    documents: Mapping[str, Any], answer: Answer = goes_on, **spec: Any
) -> Iterator[tuple[EndpointModel, Described]]:
    endpoint, loop = Described(documents, answer), ModelLoop(lambda each: FixedGate(8))
    try:
        yield (
            EndpointModel(OpenAIWire(ModelSpec("m", base_url=endpoint.url, **spec)), loop),
            endpoint,
        )
    finally:
        loop.close()
        endpoint.close()


def text(model: EndpointModel, prompt: Prompt = PROMPT) -> str:
    [reply] = model.complete([prompt])
    return reply.text


def test_llamacpp_goes_on_from_the_header_and_the_reply_is_whole() -> None:
    with described(LLAMACPP) as (model, endpoint):
        reply = text(model)

    [body] = endpoint.asked
    assert body["messages"][-1] == {"role": "assistant", "content": FORM.opening}
    assert body["stop"] == ["\n```"]
    assert reply == "```python\ndef f(x):\n    return x\n```\n"


def test_vllm_is_told_to_go_on_once_a_free_reply_had_no_thoughts() -> None:
    with described(VLLM) as (model, endpoint):
        text(model)
        reply = text(model)

    free, bound = endpoint.asked
    assert free["messages"][-1]["role"] == "user"
    assert "continue_final_message" not in free
    assert bound["continue_final_message"] is True
    assert bound["add_generation_prompt"] is False
    assert reply == "```python\ndef f(x):\n    return x\n```\n"


def test_a_grammar_is_sent_in_the_field_that_the_endpoint_has() -> None:
    form = ReplyForm(grammar='root ::= "a"\n')
    prompt = Prompt("", "Edit f.", form=form)
    with_grammar = {"/openapi.json": schema({**FIELDS, "structured_outputs": {}})}

    with described(LLAMACPP) as (model, llamacpp):
        text(model, prompt)
    with described(with_grammar) as (model, vllm):
        text(model, prompt)
        text(model, prompt)
    with described(VLLM) as (model, without):
        text(model, prompt)
        text(model, prompt)

    assert llamacpp.asked[0]["grammar"] == form.grammar
    assert vllm.asked[1]["structured_outputs"] == {"grammar": form.grammar}
    for body in (*llamacpp.asked, *vllm.asked, *without.asked):
        assert body["messages"][-1]["role"] == "user"
        assert "continue_final_message" not in body
    assert not {"grammar", "structured_outputs"} & without.asked[1].keys()


@pytest.mark.parametrize(
    ("documents", "answer"),
    [
        (THINKING, goes_on),
        (VLLM, lambda body: said("def f(x): pass", reasoning_content="Let me see.")),
        (VLLM, lambda body: said("<think>Let me see.</think>def f(x): pass")),
        ({}, goes_on),
    ],
    ids=["template", "thoughts apart", "thoughts in the text", "an unknown endpoint"],
)
def test_a_model_that_thinks_and_an_endpoint_that_says_nothing_reply_freely(
    documents: Mapping[str, Any], answer: Answer
) -> None:
    with described(documents, answer) as (model, endpoint):
        for _ in range(3):
            text(model)

    assert [body["messages"][-1]["role"] for body in endpoint.asked] == ["user"] * 3


def test_an_endpoint_describes_itself_once() -> None:
    with described(LLAMACPP) as (model, endpoint):
        for _ in range(3):
            text(model)

    assert endpoint.read == ["/props"]


def test_a_free_prompt_and_a_run_without_bound_replies_ask_for_no_description() -> None:
    with described(LLAMACPP, bind_replies=False) as (model, endpoint):
        text(model)
    with described(LLAMACPP) as (other, second):
        text(other, Prompt("", "Write."))

    assert endpoint.read == second.read == []


def test_an_opening_that_is_refused_is_left_out_and_the_prompt_asked_again() -> None:
    def refuses(body: dict[str, Any]) -> dict[str, Any]:
        if body["messages"][-1]["role"] == "assistant":
            return {"status": 400, "error": {"message": "Assistant response prefill is off."}}
        return said("free")

    with described(LLAMACPP, refuses) as (model, endpoint):
        replies = [text(model), text(model)]

    assert replies == ["free", "free"]
    assert [body["messages"][-1]["role"] for body in endpoint.asked] == [
        "assistant",
        "user",
        "user",
    ]


def test_a_reply_that_was_cut_off_gets_no_ending() -> None:
    with described(LLAMACPP, lambda body: said("    return", "length")) as (model, _):
        assert text(model) == "```python\ndef f(x):\n    return"


def test_an_opening_that_the_endpoint_repeats_stands_in_the_reply_once() -> None:
    with described(LLAMACPP, lambda body: said(FORM.opening + "    return x")) as (model, _):
        assert text(model) == "```python\ndef f(x):\n    return x\n```\n"


def test_more_samples_than_llamacpp_has_slots_are_asked_for_one_by_one() -> None:
    def at_most_two(body: dict[str, Any]) -> dict[str, Any]:
        if body.get("n", 1) <= 2:
            return said("    return x")
        message = "Field 'n': Value must be between 1 <= value <= 2, but got 3"
        return {"status": 400, "error": {"code": 400, "message": message, "type": "invalid"}}

    with described(LLAMACPP, at_most_two) as (model, endpoint):
        replies = model.complete([replace(PROMPT, sample=n) for n in range(3)])

    assert [body.get("n") for body in endpoint.asked] == [3, None, None, None]
    assert [reply.text for reply in replies] == ["```python\ndef f(x):\n    return x\n```\n"] * 3
