"""The OpenAI adapter against a real HTTP server on the loopback interface."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from app.adapters.model.congestion.gate import Ended, FixedGate, RequestResult
from app.adapters.model.providers.attempts import EndpointModel
from app.adapters.model.providers.event_loop import ModelLoop
from app.adapters.model.providers.openai import OpenAIWire
from app.adapters.model.providers.presets import PRESETS
from app.adapters.model.providers.scripted import ScriptedModel
from app.adapters.model.providers.spec import ModelSpec
from app.adapters.store.leases import Withdrawal
from app.config.models import Provider
from app.domain.operator import Prompt
from app.ports.protocols import Misconfigured, Stopped, Unavailable
from tests.contracts.language_model import PartialAnswersContract, Serve

KEY = "sk-test-0123456789abcdef"


@dataclass(frozen=True)
class Reply:
    """What an endpoint answers.

    Attributes:
      hang_seconds: Above 0 there is no answer, and so much time passes for who waits for it.
    """

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

    def __init__(
        self, answer: Callable[[dict[str, Any]], Reply], *, key: str | None = None
    ) -> None:
        self.asked: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.waits: ModelLoop | None = None
        released = self.released = threading.Event()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                body = json.loads(self.rfile.read(length))
                endpoint.paths.append(self.path)
                endpoint.asked.append(body)
                known = key is None or self.headers["authorization"] == f"Bearer {key}"
                reply = answer(body) if known else refused(401, "invalid x-api-key")
                if reply.hang_seconds:
                    if endpoint.waits is not None:
                        put_forward(endpoint.waits, reply.hang_seconds)
                    released.wait(120.0)
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


def put_forward(model_loop: ModelLoop, seconds: float) -> None:
    """Has so much time pass on the loop of an model_loop, at once.

    So a test need not find a time-out that is short, and yet longer than any answer takes on a
    crowded machine.
    """
    loop = model_loop._started()
    now = loop.time
    loop.call_soon_threadsafe(setattr, loop, "time", lambda: now() + seconds)


class Pauses(list[float]):
    """Takes note of pauses and makes none."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


@contextmanager
def conversation(
    answer: Callable[[dict[str, Any]], Reply], **spec: Any
) -> Iterator[tuple[EndpointModel, Endpoint, list[float]]]:
    """Yields a model, the endpoint behind it, and the pauses it made."""
    endpoint, pauses, model_loop = Endpoint(answer), Pauses(), ModelLoop()
    endpoint.waits = model_loop
    values = {"name": "echo", "base_url": endpoint.url, "api_key": KEY, "retry_delay_seconds": 0.5}
    asked = ModelSpec(**{**values, "deadline_seconds": 20.0, **spec})
    try:
        yield EndpointModel(OpenAIWire(asked), model_loop, sleep=pauses), endpoint, pauses
    finally:
        model_loop.close()
        endpoint.close()


def fault(model: EndpointModel) -> Unavailable:
    with pytest.raises(Unavailable) as caught:
        model.complete([Prompt("", "hi")])
    return caught.value


def in_turn(*replies: Reply) -> Callable[[dict[str, Any]], Reply]:
    left = list(replies)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


def _spoken(answer: Callable[[str], str], body: dict[str, Any]) -> Reply:
    try:
        return said(answer(body["messages"][-1]["content"]))
    except Unavailable:
        return refused(400)


class TestOpenAIModel(PartialAnswersContract):
    @pytest.fixture
    def serve(self) -> Iterator[Serve]:
        opened: list[Endpoint] = []
        model_loop = ModelLoop()

        def serve(answer: Callable[[str], str]) -> EndpointModel:
            endpoint = Endpoint(partial(_spoken, answer))
            opened.append(endpoint)
            return EndpointModel(
                OpenAIWire(ModelSpec("echo", base_url=endpoint.url, api_key=KEY)), model_loop
            )

        yield serve
        model_loop.close()
        for endpoint in opened:
            endpoint.close()


class TestScriptedModel(PartialAnswersContract):
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
    assert 0.0 < reply.latency_seconds < 60.0


@pytest.mark.parametrize(
    "details", [{"prompt_tokens_details": {"cached_tokens": 600}}, {"prompt_cache_hit_tokens": 600}]
)
def test_cached_prompt_tokens_have_a_price_of_their_own(details: dict[str, Any]) -> None:
    answer = in_turn(said("x", usage={"prompt_tokens": 1000, "completion_tokens": 100, **details}))
    with conversation(answer, prompt_usd=2.0, cached_usd=0.5, completion_usd=10.0) as (model, _, _):
        [reply] = model.complete([Prompt("", "hi")])

    assert reply.cached_tokens == 600
    assert reply.cost_usd == pytest.approx((400 * 2.0 + 600 * 0.5 + 100 * 10.0) / 1e6)


def test_without_prices_the_cost_is_not_known_and_not_nothing() -> None:
    with conversation(in_turn(said("x", usage={"prompt_tokens": 10}))) as (model, _, _):
        [reply] = model.complete([Prompt("", "hi")])

    assert reply.cost_usd is None


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": None}, {"prompt_tokens": 10**30}])
def test_without_usage_the_cost_is_not_known_and_not_nothing(usage: Any) -> None:
    answer = in_turn(said("x", usage=usage))
    with conversation(answer, prompt_usd=2.0, completion_usd=10.0) as (model, _, _):
        [reply] = model.complete([Prompt("", "hi")])

    assert reply.cost_usd is None
    assert (reply.prompt_tokens, reply.completion_tokens) == (0, 0)


def test_tokens_that_are_written_as_fractions_count() -> None:
    answer = in_turn(said("x", usage={"prompt_tokens": 10.0, "completion_tokens": 5.0}))
    with conversation(answer, prompt_usd=2.0, completion_usd=10.0) as (model, _, _):
        [reply] = model.complete([Prompt("", "hi")])

    assert (reply.prompt_tokens, reply.completion_tokens) == (10, 5)
    assert reply.cost_usd == pytest.approx(70e-6)


def test_a_plain_model_is_asked_with_its_temperature_and_a_seed() -> None:
    with conversation(
        in_turn(said("x")), temperature=0.3, top_p=0.9, max_tokens=77, seeded=True
    ) as (m, e, _):
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
def test_a_permanent_refusal_is_not_retried_and_names_the_remedy(status: int) -> None:
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


def test_a_request_without_quota_is_not_retried() -> None:
    reply = refused(429, "quota", "insufficient_quota")
    with conversation(in_turn(reply)) as (model, endpoint, _):
        error = fault(model)

    assert isinstance(error, Misconfigured)
    assert "credit" in str(error)
    assert len(endpoint.asked) == 1


def test_openai_without_a_key_is_refused_before_anything_is_sent() -> None:
    spec = ModelSpec("gpt-4o", key_variable="MY_KEY", preset=PRESETS[Provider.OPENAI])
    model = EndpointModel(OpenAIWire(spec), ModelLoop())

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
    with conversation(in_turn(refused(500)), retries=3, retry_delay_seconds=0) as (m, _, none):
        fault(m)
    assert none == [0.0] * 3


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
    hangs = in_turn(Reply(hang_seconds=150.0))
    with (
        conversation(hangs, timeout_seconds=20.0, retries=1, deadline_seconds=500.0) as (m, e, _),
        pytest.raises(Unavailable, match=r"no answer within 15\d\.\d s, after 2 attempt"),
    ):
        m.complete([Prompt("", "hi")])

    assert len(e.asked) == 2


def test_requests_that_may_be_billed_are_counted_with_and_without_an_answer() -> None:
    answer = in_turn(Reply(hang_seconds=150.0), refused(500), Reply(body=b"{}"), said("x"))
    patience = {"timeout_seconds": 20.0, "deadline_seconds": 500.0}
    with conversation(answer, **patience) as (model, _, _):
        [reply] = model.complete([Prompt("", "hi")])
    assert (reply.text, reply.unanswered) == ("x", 2)

    with conversation(in_turn(Reply(hang_seconds=150.0)), retries=1, **patience) as results:
        assert fault(results[0]).unanswered == 2


def test_the_deadline_bounds_all_attempts_together() -> None:
    hangs = in_turn(Reply(hang_seconds=150.0))
    with conversation(hangs, timeout_seconds=60.0, retries=50, deadline_seconds=20.0) as (m, e, _):
        fault(m)

    assert len(e.asked) == 1


def test_an_endpoint_that_is_not_there_is_unavailable_and_named() -> None:
    with conversation(in_turn(said("x"))) as (_, endpoint, _):
        url = endpoint.url
    model_loop = ModelLoop()
    model = EndpointModel(OpenAIWire(ModelSpec("echo", base_url=url, retries=0)), model_loop)

    with pytest.raises(Unavailable, match=r"127\.0\.0\.1.*: cannot be connected to"):
        model.complete([Prompt("", "hi")])
    model_loop.close()


def choices(body: dict[str, Any], most: int = 8) -> Reply:
    """Answers with as many choices as were asked for, up to `most`."""
    count = min(most, body.get("n", 1))
    choices = [{"index": n, "message": {"content": f"answer {n}"}} for n in range(count)]
    usage = {"prompt_tokens": 50, "completion_tokens": 10 * count + 1}
    return Reply(body=json.dumps({"model": "echo", "choices": choices, "usage": usage}).encode())


def alike(count: int) -> list[Prompt]:
    return [Prompt("s", "same", sample=n) for n in range(count)]


def test_samples_of_one_text_are_one_request_whose_tokens_add_up() -> None:
    with conversation(choices, prompt_usd=1.0, completion_usd=1.0) as (model, endpoint, _):
        replies = model.complete([*alike(3), Prompt("s", "other", sample=3)])

    assert [reply.text for reply in replies] == ["answer 0", "answer 1", "answer 2", "answer 0"]
    assert sorted(body.get("n", 1) for body in endpoint.asked) == [1, 3]
    assert sum(reply.prompt_tokens for reply in replies) == 100
    assert sum(reply.completion_tokens for reply in replies) == 31 + 11
    assert sum(reply.cost_usd or 0.0 for reply in replies) == pytest.approx(142e-6)


def test_more_samples_than_endpoints_allow_are_several_requests() -> None:
    with conversation(choices) as (model, endpoint, _):
        assert len(model.complete(alike(18))) == 18

    assert sorted(body["n"] for body in endpoint.asked) == [2, 8, 8]


def test_an_endpoint_that_ignores_n_gets_single_requests_from_then_on() -> None:
    with conversation(lambda body: choices(body, most=1)) as (model, endpoint, _):
        assert len(model.complete(alike(3))) == 3
        assert len(model.complete(alike(3))) == 3

    assert [body.get("n", 1) for body in endpoint.asked] == [3, 1, 1, 1, 1, 1]


def test_an_endpoint_that_refuses_n_gets_single_requests_from_then_on() -> None:
    def answer(body: dict[str, Any]) -> Reply:
        return refused(400, "n: must be exactly 1") if "n" in body else choices(body)

    with conversation(answer) as (model, endpoint, pauses):
        assert len(model.complete(alike(3))) == 3
        assert len(model.complete(alike(2))) == 2

    assert [body.get("n", 1) for body in endpoint.asked] == [3, 1, 1, 1, 1, 1]
    assert pauses == []


@pytest.mark.parametrize(
    ("parameter", "message"),
    [
        ("temperature", "Unsupported value: 'temperature' does not support 0.7 with this model."),
        ("seed", 'Invalid JSON payload received. Unknown name "seed": Cannot find field.'),
        ("max_tokens", "Unsupported parameter: 'max_tokens' is not supported with this model."),
    ],
)
def test_a_parameter_the_model_does_not_take_is_left_out_from_then_on(
    parameter: str, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(body: dict[str, Any]) -> Reply:
        return refused(400, message) if parameter in body else said("fine")

    with conversation(answer, seeded=True) as (model, endpoint, _):
        texts = [model.complete([Prompt("", "hi", sample=n)])[0].text for n in range(3)]

    assert texts == ["fine"] * 3
    assert [parameter in body for body in endpoint.asked] == [True, False, False, False]
    assert endpoint.asked[-1].get("max_completion_tokens") == (
        4096 if parameter == "max_tokens" else None
    )
    assert [parameter in record.message for record in caplog.records] == [True]


def test_no_more_requests_are_in_flight_than_there_are_slots() -> None:
    lock, now, most = threading.Lock(), 0, 0
    three = threading.Barrier(3, timeout=60)
    meeting = iter([True] * 3)

    def answer(body: dict[str, Any]) -> Reply:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
            meets = next(meeting, False)
        if meets:
            three.wait()
        time.sleep(0.02)
        with lock:
            now -= 1
        return said("x")

    with conversation(answer, max_in_flight=3) as (model, _, _):
        model.complete([Prompt("", f"prompt {n}") for n in range(20)])

    assert most == 3


def test_the_gate_receives_the_result_of_every_request() -> None:
    results: list[RequestResult] = []

    class Note(FixedGate):
        async def release(self, outcome: RequestResult) -> None:
            results.append(outcome)
            await super().release(outcome)

    answer = in_turn(
        refused(503),
        refused(429, Retry_After="1"),
        refused(500),
        Reply(hang_seconds=150.0),
        Reply(body=b"{}"),
        said("x"),
        refused(404),
    )
    endpoint, model_loop = Endpoint(answer), ModelLoop(lambda spec: Note(1))
    endpoint.waits = model_loop
    patience = {"timeout_seconds": 20.0, "deadline_seconds": 500.0}
    spec = ModelSpec("echo", base_url=endpoint.url, retries=9, **patience)
    model = EndpointModel(OpenAIWire(spec), model_loop, sleep=Pauses())

    model.complete([Prompt("", "hi")])
    with pytest.raises(Misconfigured):
        model.complete([Prompt("", "hi")])
    model_loop.close()
    endpoint.close()

    assert [each.ended for each in results] == [
        Ended.BUSY,
        Ended.BUSY,
        Ended.FAILED,
        Ended.TIMED_OUT,
        Ended.FAILED,
        Ended.ANSWERED,
        Ended.REFUSED,
    ]
    assert results[1].retry_after_seconds == 1.0
    assert results[3].latency_seconds >= 100.0


def test_a_slot_that_never_becomes_free_is_unavailable_in_time() -> None:
    class Shut(FixedGate):
        async def acquire(self, samples: int = 1, *, again: bool = False) -> None:
            await asyncio.Event().wait()

    model_loop = ModelLoop(lambda spec: Shut(1))
    model = EndpointModel(
        OpenAIWire(ModelSpec("echo", "http://x", deadline_seconds=0.2)), model_loop
    )

    with pytest.raises(Unavailable, match="max_in_flight"):
        model.complete([Prompt("", "hi")])
    model_loop.close()


def test_a_closed_exchange_leaves_no_caller_behind_and_opens_again() -> None:
    endpoint, model_loop = Endpoint(in_turn(Reply(hang_seconds=150.0), said("x"))), ModelLoop()
    model = EndpointModel(OpenAIWire(ModelSpec("echo", base_url=endpoint.url)), model_loop)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(model.complete, [Prompt("", "hi")])
        while not endpoint.asked:
            time.sleep(0.01)
        model_loop.close()
        with pytest.raises(Unavailable, match="closed"):
            asked.result(60)

    assert model.complete([Prompt("", "hi")])[0].text == "x"
    model_loop.close()
    endpoint.close()


def test_the_key_is_not_shown_with_the_model() -> None:
    assert KEY not in repr(ModelSpec("echo", api_key=KEY))


def test_a_stopped_call_keeps_its_answers_and_gives_its_place_back() -> None:
    withdrawal = Withdrawal()

    def answer(body: dict[str, Any]) -> Reply:
        if body["messages"][-1]["content"] != "endless":
            return said("x")
        withdrawal.ask()
        return Reply(hang_seconds=1e-6)

    with conversation(answer, max_in_flight=1) as (model, endpoint, _):
        with pytest.raises(Stopped) as stopped:
            model.complete([Prompt("", "short"), Prompt("", "endless")], withdrawal)
        assert {place: reply.text for place, reply in stopped.value.answered.items()} == {0: "x"}
        assert stopped.value.unanswered == 1, "the request that was dropped may be billed"
        assert [reply.text for reply in model.complete([Prompt("", "short")])] == ["x"]
    assert len(endpoint.asked) == 3
