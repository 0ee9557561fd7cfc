"""A provider with another API is its wire form: the rest of asking is the same for each.

The form here is that of Anthropic's messages, as far as these tests need it.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from openai import AsyncOpenAI

from app.adapters.model.choose import WIRES
from app.adapters.model.congestion.circuit_breaker import BreakerRules, CircuitBreaker
from app.adapters.model.congestion.gate import FixedGate
from app.adapters.model.providers.attempts import EndpointModel
from app.adapters.model.providers.error_body import ErrorBody
from app.adapters.model.providers.event_loop import ModelLoop
from app.adapters.model.providers.presets import Api
from app.adapters.model.providers.spec import ModelSpec
from app.adapters.model.providers.streamed_reply import (
    Answer,
    AnswerChoice,
    StreamedReply,
    TokenUsage,
)
from app.adapters.model.providers.wire import WireRequest
from app.domain.operator import Prompt
from app.ports.protocols import Misconfigured, PromptTooLong, Unavailable

KEY = "key-of-this-test"


class MessagesWire:
    """Messages in place of chat completions: one text a request, and events with a type."""

    path = "/messages"
    samples = 1

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec
        self.headers = {"x-api-key": spec.api_key, "anthropic-version": "2023-06-01"}
        self._unsupported: set[str] = set()

    def parameters(self, prompt: Prompt) -> dict[str, object]:
        limits = {"max_tokens": self.spec.max_tokens, "temperature": self.spec.temperature}
        return {"model": self.spec.name, **limits}

    async def request(self, client: AsyncOpenAI, prompts: Sequence[Prompt]) -> WireRequest:
        [prompt] = prompts
        shaping = self.parameters(prompt).items()
        body = {name: value for name, value in shaping if name not in self._unsupported}
        messages = [{"role": "user", "content": prompt.user}]
        system = self.spec.system_of(prompt)
        return WireRequest({**body, "system": system, "messages": messages, "stream": True})

    def add(self, event: object, reply: StreamedReply) -> int:
        match event:
            case {"type": "message_start", "message": {"model": model, "usage": usage}}:
                reply.names["model"] = model
                reply.count(TokenUsage(usage["input_tokens"]), apart=False)
            case {"type": "content_block_delta", "delta": {"text": text}}:
                return reply.write(0, text)
            case {"type": "message_delta", "delta": {"stop_reason": finish}, "usage": usage}:
                reply.finish(0, finish)
                assert reply.usage is not None
                counted = replace(reply.usage, completion=usage["output_tokens"])
                reply.count(counted, apart=False)
            case {"type": "message_stop"}:
                reply.complete = True
            case {"type": "error", "error": error}:
                reply.error = error
        return 0

    def answer(self, document: object) -> Answer | None:
        match document:
            case {"content": [*parts], "stop_reason": finish, "usage": usage, "model": model}:
                text = "".join(part["text"] for part in parts)
                tokens = TokenUsage(usage["input_tokens"], completion=usage["output_tokens"])
                return Answer((AnswerChoice(text, finish),), tokens, (model,))
        return None

    def answered(self, request: WireRequest, answer: Answer) -> Answer:
        return answer

    def adapt(self, request: WireRequest, status: int, error: ErrorBody) -> bool:
        name = error.message.partition(" is not supported")[0]
        adapted = status == 400 and name in request.body
        self._unsupported |= {name} if adapted else set()
        return adapted


@dataclass(frozen=True)
class Reply:
    """An answer of the endpoint: a document, or the events of a stream."""

    status: int = 200
    document: Mapping[str, Any] = field(default_factory=dict)
    events: Sequence[Mapping[str, Any]] = ()

    @property
    def content(self) -> bytes:
        if not self.events:
            return json.dumps(self.document).encode()
        events = (f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in self.events)
        return "".join(events).encode()


def refused(status: int, kind: str, message: str) -> Reply:
    return Reply(status, {"type": "error", "error": {"type": kind, "message": message}})


def written(*texts: str, finish: str = "end_turn", end: bool = True) -> Reply:
    parts = [{"type": "content_block_delta", "delta": {"text": text}} for text in texts]
    message = {"model": "messages-1", "usage": {"input_tokens": 11}}
    delta = {"delta": {"stop_reason": finish}, "usage": {"output_tokens": 3}}
    ending = ({"type": "message_delta", **delta}, {"type": "message_stop"})
    start = {"type": "message_start", "message": message}
    return Reply(events=(start, {"type": "ping"}, *parts, *(ending if end else ())))


class Asked(dict[str, Any]):
    """The body of a request, with its path and its headers."""

    path: str
    headers: Message


@contextmanager
def endpoint(*replies: Reply) -> Iterator[tuple[str, list[Asked]]]:
    """Serves the replies in order, the last one for ever; yields the address and the requests."""
    asked: list[Asked] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = Asked(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            request.path, request.headers = self.path, self.headers
            reply = replies[min(len(asked), len(replies) - 1)]
            asked.append(request)
            self.send_response(reply.status)
            kind = "text/event-stream" if reply.events else "application/json"
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(reply.content)))
            self.end_headers()
            self.wfile.write(reply.content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


Open = Callable[..., EndpointModel]


@pytest.fixture
def opened() -> Iterator[Open]:
    loop = ModelLoop(lambda spec: FixedGate(8))

    def open_model(url: str, breaker: CircuitBreaker | None = None, **spec: Any) -> EndpointModel:
        prices = {"prompt_usd": 1e6, "completion_usd": 2e6}
        fields = {"api_key": KEY, "retry_delay_seconds": 0.0, **prices, **spec}
        asked = ModelSpec("messages", base_url=url, **fields)
        return EndpointModel(MessagesWire(asked), loop, breaker=breaker)

    yield open_model
    loop.close()


def test_every_wire_form_that_a_preset_can_name_has_its_row() -> None:
    assert set(WIRES) == set(Api)


def test_another_wire_form_is_streamed_with_its_usage_and_its_key(opened: Open) -> None:
    with endpoint(written("he", "llo")) as (url, asked):
        model = opened(url)
        [reply] = model.complete([Prompt("rules", "hi")])

    assert (reply.text, reply.finish, reply.revision) == ("hello", "end_turn", "messages-1")
    assert (reply.prompt_tokens, reply.completion_tokens, reply.cost_usd) == (11, 3, 17.0)
    assert reply.parameters == model.parameters(Prompt("rules", "hi"))
    assert reply.parameters["endpoint"] == url.removeprefix("http://")
    [request] = asked
    assert (request["system"], request["stream"]) == ("rules", True)
    assert request["messages"] == [{"role": "user", "content": "hi"}]
    assert request.path == "/v1/messages"
    assert request.headers["x-api-key"] == KEY
    assert "authorization" not in request.headers


def test_an_answer_of_another_wire_form_may_be_a_document(opened: Open) -> None:
    content = {"content": [{"type": "text", "text": "hello"}], "stop_reason": "max_tokens"}
    usage = {"usage": {"input_tokens": 5, "output_tokens": 2}, "model": "messages"}
    with endpoint(Reply(document={**content, **usage})) as (url, _):
        [reply] = opened(url).complete([Prompt("", "hi")])

    assert (reply.text, reply.finish) == ("hello", "max_tokens")
    assert (reply.prompt_tokens, reply.completion_tokens) == (5, 2)


def test_samples_are_requests_of_their_own_where_one_request_has_one_text(opened: Open) -> None:
    with endpoint(written("x")) as (url, asked):
        replies = opened(url).complete([Prompt("", "hi", sample=n) for n in range(3)])

    assert [reply.text for reply in replies] == ["x"] * 3
    assert len(asked) == 3


def test_what_breaks_off_is_asked_again_and_counted_as_unanswered(opened: Open) -> None:
    overloaded = Reply(events=[{"type": "error", "error": {"type": "overloaded_error"}}])
    replies = (
        refused(529, "overloaded_error", "Overloaded"),
        overloaded,
        written("half", end=False),
        written("whole"),
    )
    with endpoint(*replies) as (url, asked):
        [reply] = opened(url).complete([Prompt("", "hi")])

    assert (reply.text, reply.unanswered, len(asked)) == ("whole", 2, 4)


def test_an_endpoint_that_stays_down_is_reported_to_its_breaker(opened: Open) -> None:
    breaker = CircuitBreaker(BreakerRules(failures=2))
    with (
        endpoint(refused(500, "api_error", "Internal")) as (url, asked),
        pytest.raises(Unavailable, match=r"HTTP 500, after 2 attempt\(s\): Internal"),
    ):
        opened(url, breaker).complete([Prompt("", "hi")])

    assert breaker.open
    assert len(asked) == 2


def test_a_parameter_that_is_refused_is_left_out_from_then_on(opened: Open) -> None:
    refusal = refused(400, "invalid_request_error", "temperature is not supported")
    with endpoint(refusal, written("x")) as (url, asked):
        model = opened(url)
        for _ in range(2):
            model.complete([Prompt("", "hi")])

    assert ["temperature" in request for request in asked] == [True, False, False]


def test_a_refused_key_names_its_variable_and_is_not_asked_again(opened: Open) -> None:
    refusal = refused(401, "authentication_error", f"invalid x-api-key {KEY}")
    with (
        endpoint(refusal) as (url, asked),
        pytest.raises(Misconfigured, match="check the key in the variable") as caught,
    ):
        opened(url).complete([Prompt("", "hi")])

    assert KEY not in str(caught.value)
    assert len(asked) == 1


def test_a_prompt_that_is_too_long_is_refused_as_such(opened: Open) -> None:
    words = "prompt is too long: 210000 tokens > 200000 maximum"
    with (
        endpoint(refused(400, "invalid_request_error", words)) as (url, _),
        pytest.raises(PromptTooLong, match="prompt is too long"),
    ):
        opened(url).complete([Prompt("", "hi")])
