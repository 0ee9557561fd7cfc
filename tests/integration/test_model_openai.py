"""The OpenAI adapter against a real HTTP server on the loopback interface."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from app.adapters.model.chat import ModelSpec
from app.adapters.model.openai import OpenAIModel
from app.adapters.model.presets import openai
from app.adapters.model.scripted import ScriptedModel
from app.domain.operator import Prompt
from app.ports import Misconfigured, Unavailable
from tests.contracts.language_model import LanguageModelContract, Serve

KEY = "sk-test-0123456789abcdef"


@dataclass(frozen=True)
class Reply:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    hang_seconds: float = 0.0


def said(text: str | None, finish: str = "stop", **more: Any) -> Reply:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}}
    body = {"id": "1", "object": "chat.completion", "model": "echo-1", **more}
    return Reply(
        body=json.dumps({**body, "choices": [{**choice, "finish_reason": finish}]}).encode()
    )


def refused(status: int, message: str = "no", code: str | None = None, **headers: str) -> Reply:
    body = json.dumps({"error": {"message": message, "code": code, "type": "x"}}).encode()
    return Reply(status, body, {name.replace("_", "-"): value for name, value in headers.items()})


class Endpoint:
    """Answers each request with what a function makes of its decoded body."""

    def __init__(self, answer: Callable[[dict[str, Any]], Reply]) -> None:
        self.asked: list[dict[str, Any]] = []
        self.paths: list[str] = []
        released = self.released = threading.Event()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                body = json.loads(self.rfile.read(length))
                endpoint.paths.append(self.path)
                endpoint.asked.append(body)
                reply = answer(body)
                if reply.hang_seconds:
                    released.wait(reply.hang_seconds)
                    self.close_connection = True
                    return
                self.send_response(reply.status)
                for name, value in {"content-type": "application/json", **reply.headers}.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def conversation(
    answer: Callable[[dict[str, Any]], Reply], **spec: Any
) -> Iterator[tuple[OpenAIModel, Endpoint, list[float]]]:
    """Yields a model, the endpoint behind it, and the pauses it made."""
    endpoint, pauses = Endpoint(answer), list[float]()
    values = {"name": "echo", "base_url": endpoint.url, "api_key": KEY, "retry_delay_seconds": 0.5}
    model = OpenAIModel(
        [ModelSpec(**{**values, "deadline_seconds": 20.0, **spec})], sleep=pauses.append
    )
    try:
        yield model, endpoint, pauses
    finally:
        model.close()
        endpoint.close()


def fault(model: OpenAIModel) -> Unavailable:
    with pytest.raises(Unavailable) as caught:
        model.complete([Prompt("", "hi")])
    return caught.value


def in_turn(*replies: Reply) -> Callable[[dict[str, Any]], Reply]:
    left = list(replies)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


class TestOpenAIModel(LanguageModelContract):
    @pytest.fixture
    def serve(self) -> Iterator[Serve]:
        opened: list[tuple[OpenAIModel, Endpoint]] = []

        def serve(answer: Callable[[str], str]) -> OpenAIModel:
            endpoint = Endpoint(lambda body: said(answer(body["messages"][-1]["content"])))
            model = OpenAIModel([ModelSpec("echo", base_url=endpoint.url, api_key=KEY)])
            opened.append((model, endpoint))
            return model

        yield serve
        for model, endpoint in opened:
            model.close()
            endpoint.close()


class TestScriptedModel(LanguageModelContract):
    @pytest.fixture
    def serve(self) -> Serve:
        return lambda answer: ScriptedModel(lambda prompt: answer(prompt.user))


def test_a_completion_carries_usage_latency_price_and_finish() -> None:
    usage = {"prompt_tokens": 1000, "completion_tokens": 200, "total_tokens": 1200}
    answer = in_turn(said("hello", "length", usage=usage, system_fingerprint="fp_1"))
    with conversation(answer, prompt_usd=2.0, completion_usd=10.0) as (model, _, _):
        [reply] = model.complete([Prompt("be brief", "hi")])

    assert (reply.text, reply.finish) == ("hello", "length")
    assert (reply.model, reply.revision) == ("echo", "echo-1@fp_1")
    assert (reply.prompt_tokens, reply.completion_tokens) == (1000, 200)
    assert reply.cost_usd == pytest.approx(0.004)
    assert 0.0 < reply.latency_seconds < 10.0


@pytest.mark.parametrize(
    "told", [{"prompt_tokens_details": {"cached_tokens": 600}}, {"prompt_cache_hit_tokens": 600}]
)
def test_cached_prompt_tokens_have_a_price_of_their_own(told: dict[str, Any]) -> None:
    answer = in_turn(said("x", usage={"prompt_tokens": 1000, "completion_tokens": 100, **told}))
    with conversation(answer, prompt_usd=2.0, cached_usd=0.5, completion_usd=10.0) as (model, _, _):
        [reply] = model.complete([Prompt("", "hi")])

    assert reply.cached_tokens == 600
    assert reply.cost_usd == pytest.approx((400 * 2.0 + 600 * 0.5 + 100 * 10.0) / 1e6)


def test_without_prices_the_cost_is_not_known_and_not_nothing() -> None:
    with conversation(in_turn(said("x", usage={"prompt_tokens": 10}))) as (model, _, _):
        [reply] = model.complete([Prompt("", "hi")])

    assert reply.cost_usd is None


def test_a_plain_model_is_asked_with_its_temperature_and_a_seed() -> None:
    with conversation(in_turn(said("x")), temperature=0.3, top_p=0.9, max_tokens=77) as (m, e, _):
        m.complete([Prompt("system text", "user text", sample=1)])
        m.complete([Prompt("system text", "user text", sample=2)])

    first, second = e.asked
    assert e.paths[0] == "/v1/chat/completions"
    assert [message["role"] for message in first["messages"]] == ["system", "user"]
    assert (first["temperature"], first["top_p"], first["max_tokens"]) == (0.3, 0.9, 77)
    assert first["seed"] != second["seed"]


@pytest.mark.parametrize("name", ["o3-mini", "gpt-5", "openai/GPT-OSS-20b"])
def test_a_reasoning_model_gets_no_temperature_and_its_own_token_limit(name: str) -> None:
    with conversation(in_turn(said("x")), name=name, reasoning_effort="low") as (
        model,
        endpoint,
        _,
    ):
        model.complete([Prompt("", "user text")])

    [asked] = endpoint.asked
    assert asked["max_completion_tokens"] == 4096
    assert asked["reasoning_effort"] == "low"
    assert not {"temperature", "top_p", "max_tokens"} & set(asked)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_a_refusal_that_no_retry_helps_is_made_once_and_says_what_to_do(status: int) -> None:
    with conversation(in_turn(refused(status, f"bad key {KEY}"))) as (model, endpoint, pauses):
        error = fault(model)

    assert len(endpoint.asked) == 1
    assert pauses == []
    assert isinstance(error, Misconfigured)
    message = str(error)
    assert f"HTTP {status}" in message
    assert "'echo'" in message
    assert endpoint.url in message
    assert KEY not in message


def test_an_account_without_quota_is_not_asked_again() -> None:
    reply = refused(429, "quota", "insufficient_quota")
    with conversation(in_turn(reply)) as (model, endpoint, _):
        error = fault(model)

    assert isinstance(error, Misconfigured)
    assert "credit" in str(error)
    assert len(endpoint.asked) == 1


def test_openai_without_a_key_is_refused_before_anything_is_sent() -> None:
    model = OpenAIModel([ModelSpec("gpt-4o", key_variable="MY_KEY", preset=openai.PRESET)])

    with pytest.raises(Misconfigured, match="MY_KEY"):
        model.complete([Prompt("", "hi")])


def test_a_rate_limit_is_waited_out_as_long_as_it_asks() -> None:
    answer = in_turn(refused(429, Retry_After="3"), said("late"))
    with conversation(answer) as (model, endpoint, pauses):
        [reply] = model.complete([Prompt("", "hi")])

    assert reply.text == "late"
    assert len(endpoint.asked) == 2
    assert len(pauses) == 1
    assert 3.0 <= pauses[0] <= 3.5


def test_a_rate_limit_longer_than_the_deadline_is_left_to_a_later_step() -> None:
    answer = in_turn(refused(429, Retry_After="3600"))
    with conversation(answer) as (model, endpoint, pauses):
        error = fault(model)

    assert "HTTP 429" in str(error)
    assert len(endpoint.asked) == 1
    assert pauses == []


def test_server_errors_are_retried_with_growing_pauses_and_then_given_up() -> None:
    with conversation(in_turn(refused(500)), retries=3) as (model, endpoint, pauses):
        error = fault(model)

    assert not isinstance(error, Misconfigured)
    assert "HTTP 500, after 4 attempt" in str(error)
    assert len(endpoint.asked) == 4
    assert all(0.0 <= pause <= 0.5 * 2**n for n, pause in enumerate(pauses))


@pytest.mark.parametrize(
    "body",
    [b"<html>busy</html>", b"\xff\xfe", b"", b"[]", b"{}", b'{"choices": []}', b'{"choices": [1]}'],
)
def test_an_answer_that_is_no_completion_is_the_machinerys_fault(body: bytes) -> None:
    with conversation(in_turn(Reply(body=body)), retries=1) as (model, endpoint, _):
        error = fault(model)

    assert "not a chat completion" in str(error)
    assert len(endpoint.asked) == 2


def test_a_completion_without_a_text_is_an_empty_answer() -> None:
    with conversation(in_turn(said(None))) as (model, endpoint, _):
        [reply] = model.complete([Prompt("", "hi")])

    assert reply.text == ""
    assert len(endpoint.asked) == 1


def test_a_withheld_prompt_is_an_answer_and_not_a_fault() -> None:
    with conversation(in_turn(refused(400, "policy", "content_filter"))) as (model, _, _):
        [reply] = model.complete([Prompt("", "hi")])

    assert (reply.text, reply.finish) == ("", "content_filter")


def test_an_endpoint_that_never_answers_is_given_up_in_time() -> None:
    started = time.monotonic()
    with (
        conversation(in_turn(Reply(hang_seconds=30.0)), timeout_seconds=0.3, retries=1) as (
            m,
            e,
            _,
        ),
        pytest.raises(Unavailable, match=r"no answer within 0\.3 s, after 2 attempt"),
    ):
        m.complete([Prompt("", "hi")])

    assert len(e.asked) == 2
    assert time.monotonic() - started < 10.0


def test_the_deadline_bounds_all_attempts_together() -> None:
    hangs = in_turn(Reply(hang_seconds=30.0))
    with conversation(hangs, timeout_seconds=60.0, retries=50, deadline_seconds=0.5) as (m, e, _):
        fault(m)

    assert len(e.asked) == 1


def test_an_endpoint_that_is_not_there_is_unavailable_and_named() -> None:
    with conversation(in_turn(said("x"))) as (_, endpoint, _):
        url = endpoint.url
    model = OpenAIModel([ModelSpec("echo", base_url=url, retries=0)])

    with pytest.raises(Unavailable, match=r"127\.0\.0\.1"):
        model.complete([Prompt("", "hi")])
    model.close()


def test_models_are_drawn_by_weight_and_the_same_way_each_time() -> None:
    endpoint = Endpoint(lambda body: said(body["model"], model=body["model"]))
    specs = [
        ModelSpec("often", 0.8, endpoint.url),
        ModelSpec("seldom", 0.2, endpoint.url),
        ModelSpec("never", 0.0, endpoint.url),
    ]
    prompts = [Prompt("", "hi", sample=n) for n in range(100)]
    model = OpenAIModel(specs, seed=3)

    once = [reply.model for reply in model.complete(prompts)]
    again = [reply.model for reply in model.complete(prompts)]
    model.close()
    endpoint.close()

    assert once == again
    assert 65 <= once.count("often") <= 92
    assert set(once) == {"often", "seldom"}


def test_the_key_is_not_shown_with_the_model() -> None:
    assert KEY not in repr(ModelSpec("echo", api_key=KEY))
