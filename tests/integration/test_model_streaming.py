"""Streamed replies: what counts as silence, what ends a reply, and what is paid."""

import asyncio
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from app.adapters.model.congestion.gate import FixedGate
from app.adapters.model.providers.attempts import EndpointModel
from app.adapters.model.providers.event_loop import ModelLoop
from app.adapters.model.providers.openai import OpenAIWire
from app.adapters.model.providers.spec import ModelSpec
from app.adapters.store.leases import Withdrawal
from app.domain.operator import Prompt
from app.ports.protocols import Stopped, Unavailable
from tests.integration.test_model_openai import put_forward

SILENCE = 40.0
"""By the clock of the client, which the endpoint puts forward: no machine stands still so long."""
USAGE = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5}}
Step = dict[str, Any] | str | float | None
"""An event, raw text, seconds that pass for the client, or None: nothing more until it leaves."""


def part(text: str = "", finish: str | None = None, index: int = 0, **more: Any) -> dict[str, Any]:
    delta = {"content": text, **more}
    return {"model": "m", "choices": [{"index": index, "delta": delta, "finish_reason": finish}]}


END: Sequence[Step] = (part(finish="stop"), USAGE, "data: [DONE]\n\n")


class Writer:
    """An endpoint that writes the steps of a script for each request, the last one for ever."""

    def __init__(
        self,
        client: ModelLoop,
        gate: FixedGate,
        *scripts: Callable[[], Iterator[Step]] | Sequence[Step],
    ) -> None:
        """Serves at once.

        Args:
          client: Where the client's time passes.
          gate: That of the client.
          scripts: Of the requests.
        """
        self.asked: list[dict[str, Any]] = []
        self.left = threading.Event()
        """Set where a client has closed its connection before the end."""
        writer, lock = self, threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with lock:
                    script = scripts[min(len(writer.asked), len(scripts) - 1)]
                    writer.asked.append(body)
                self.send_response(200)
                self.send_header("content-type", "text/event-stream; charset=utf-8")
                self.send_header("connection", "close")
                self.end_headers()
                self.close_connection = True
                self.sent = 0
                try:
                    for step in script() if callable(script) else script:
                        self.write(step)
                except OSError:
                    writer.left.set()

            def write(self, step: Step) -> None:
                if step is None:
                    self.rfile.read(1)
                    raise BrokenPipeError("the client has left")
                if isinstance(step, float):
                    self.pause(step)
                    return
                text = step if isinstance(step, str) else f"data: {json.dumps(step)}\n\n"
                self.sent += self.wfile.write(text.encode())
                self.wfile.flush()

            def pause(self, seconds: float) -> None:
                """Lets time pass for the client once it has read what was written."""
                while writer.read() < self.sent:
                    self.require_client()
                    time.sleep(0.005)
                self.require_client()
                put_forward(client, seconds)
                # It looks at the time, and at what it has read, before the next step.
                client.run(asyncio.sleep(0.001), 60.0)

            def require_client(self) -> None:
                with suppress(BlockingIOError):
                    if not self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                        raise BrokenPipeError("the client has left")

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._gate = gate
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def read(self) -> int:
        """Returns how many bytes of a reply the client has read."""
        return max((each.received() for each in tuple(self._gate.replies._open)), default=0)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def writer(
    *scripts: Callable[[], Iterator[Step]] | Sequence[Step],
    gate: FixedGate | None = None,
    **spec: Any,
) -> Iterator[tuple[EndpointModel, Writer]]:
    opened = gate or FixedGate(8)
    model_loop = ModelLoop(lambda _: opened)
    endpoint = Writer(model_loop, opened, *scripts)
    values = {"timeout_seconds": SILENCE, "retry_delay_seconds": 0.01, "deadline_seconds": 3000.0}
    asked = ModelSpec("m", base_url=endpoint.url, **{**values, **spec})
    try:
        yield EndpointModel(OpenAIWire(asked), model_loop), endpoint
    finally:
        model_loop.close()
        endpoint.close()


def one(model: EndpointModel) -> Any:
    [reply] = model.complete([Prompt("", "write")])
    return reply


def test_a_reply_is_streamed_with_its_usage_and_its_finish() -> None:
    with writer([part("he"), part("llo"), *END]) as (model, endpoint):
        reply = one(model)

    assert (reply.text, reply.finish) == ("hello", "stop")
    assert (reply.prompt_tokens, reply.completion_tokens) == (7, 5)
    [body] = endpoint.asked
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}
    assert "stream" not in reply.parameters, "it shapes no answer"


def test_a_reply_that_is_written_for_longer_than_the_silence_is_no_fault() -> None:
    words = [step for n in range(12) for step in (part(f"{n} "), SILENCE / 2)]
    with writer([*words, *END], deadline_seconds=100.0) as (model, endpoint):
        reply = one(model)

    assert reply.text.split() == [str(n) for n in range(12)]
    assert reply.latency_seconds > 5 * SILENCE
    assert (len(endpoint.asked), reply.unanswered) == (1, 0)


@pytest.mark.parametrize("while_thinking", [[], [": ping\n\n"], [part()]])
def test_an_endpoint_may_think_long_before_its_first_token(while_thinking: list[Step]) -> None:
    thinks = [*while_thinking, SILENCE * 3]
    with writer([*thinks, part("x"), *END]) as (model, endpoint):
        assert one(model).text == "x"

    assert len(endpoint.asked) == 1


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_is_no_silence_and_no_part_of_the_text(field: str) -> None:
    thoughts = [step for _ in range(6) for step in (part(**{field: "hm "}), SILENCE / 2)]
    with writer([*thoughts, part("x"), *END]) as (model, endpoint):
        assert one(model).text == "x"

    assert len(endpoint.asked) == 1


def test_comments_keep_a_reply_alive_between_two_tokens() -> None:
    pings = [step for _ in range(6) for step in (": PROCESSING\n\n", SILENCE / 2)]
    with writer([part("a"), *pings, part("b"), *END]) as (model, endpoint):
        assert one(model).text == "ab"

    assert len(endpoint.asked) == 1


def test_comments_without_a_token_do_not_keep_a_request_for_ever() -> None:
    def pings() -> Iterator[Step]:
        while True:
            yield ": ping\n\n"
            yield 30.0

    with (
        writer(pings, deadline_seconds=150.0, retries=0) as (model, _),
        pytest.raises(Unavailable, match=r"no answer within 1[5-9]\d\.\d s"),
    ):
        one(model)


def test_a_reply_that_falls_silent_is_asked_again_and_what_it_cost_is_counted() -> None:
    silent = [part("half a"), part(" reply"), SILENCE / 4, SILENCE, None]
    with writer(silent, [part("whole"), *END]) as (model, endpoint):
        reply = one(model)

    assert (reply.text, reply.unanswered) == ("whole", 1)
    assert len(endpoint.asked) == 2
    reason = r"silent for [4-9]\d\.\d s after 2 tokens of a reply"
    with writer(silent, retries=0) as (model, _), pytest.raises(Unavailable, match=reason) as fault:
        one(model)
    assert fault.value.unanswered == 1


def test_a_connection_that_ends_in_the_middle_is_asked_again_with_its_cause() -> None:
    with (
        writer([part("half")], retries=0) as (model, _),
        pytest.raises(Unavailable, match="ended after 1 tokens of a reply") as fault,
    ):
        one(model)
    assert fault.value.unanswered == 1


@pytest.mark.parametrize("where", ["content", "reasoning_content"])
def test_a_reply_that_repeats_itself_is_ended_early_and_kept(where: str) -> None:
    def endless() -> Iterator[Step]:
        yield part("begin\n")
        while True:
            yield part(**{where: "    total += weights[n] * values[n]\n"})

    def script() -> Iterator[Step]:
        for step in endless():
            if isinstance(step, dict) and where == "content":
                step["choices"][0]["delta"].setdefault("content", "")
            yield step

    with writer(script) as (model, endpoint):
        reply = one(model)
        assert endpoint.left.wait(60), "the connection is closed"

    assert reply.finish == "repetition"
    assert reply.text.startswith("begin\n")
    assert reply.completion_tokens > 100, "estimated, because the endpoint has not counted"
    assert (len(endpoint.asked), reply.unanswered) == (1, 0)


def test_a_reply_that_ignores_its_limit_of_tokens_is_ended() -> None:
    def endless() -> Iterator[Step]:
        for n in range(10**9):
            yield part(f"line {n}\n")

    with writer(endless, max_tokens=200) as (model, endpoint):
        reply = one(model)

    assert reply.finish == "length"
    assert len(endpoint.asked) == 1


def test_a_stream_without_usage_is_estimated_and_said_once(caplog: Any) -> None:
    caplog.set_level(logging.WARNING)
    script = [part("def f(x):\n    return x\n"), part(finish="stop"), "data: [DONE]\n\n"]
    with writer(script, prompt_usd=1.0, completion_usd=1.0) as (model, _):
        first, second = one(model), one(model)

    assert first.prompt_tokens > 0
    assert 4 < first.completion_tokens < 20
    assert first.cost_usd is not None
    assert second.completion_tokens == first.completion_tokens
    assert sum("estimated" in record.message for record in caplog.records) == 1


def test_a_stream_without_a_finish_reason_is_whole_where_the_endpoint_says_done() -> None:
    with writer([part("x"), "data: [DONE]\n\n"]) as (model, _):
        assert one(model).text == "x"


def test_choices_of_one_stream_are_put_together_by_their_number() -> None:
    pieces = [part("a", index=0), part("b", index=1), part("A", index=0), part("B", index=1)]
    ends = [part(finish="stop", index=0), part(finish="length", index=1), USAGE]
    with writer([*pieces, *ends, "data: [DONE]\n\n"]) as (model, endpoint):
        replies = model.complete([Prompt("", "same", sample=n) for n in range(2)])

    assert [(each.text, each.finish) for each in replies] == [("aA", "stop"), ("bB", "length")]
    assert sum(each.completion_tokens for each in replies) == 5
    assert len(endpoint.asked) == 1


def test_an_error_in_a_stream_is_read_as_its_status() -> None:
    error = {"error": {"message": "the vendor is overloaded", "code": 503}}
    with writer([part("ha"), error], [part("x"), *END]) as (model, _):
        reply = one(model)

    assert (reply.text, reply.unanswered) == ("x", 1)


def test_a_dropped_reply_closes_its_connection_and_is_counted() -> None:
    withdrawal = Withdrawal()

    def endless() -> Iterator[Step]:
        for n in range(10**9):
            yield part(f"{n} ")
            if n == 5:
                withdrawal.ask()
            time.sleep(0.02)

    with writer(endless) as (model, endpoint):
        with pytest.raises(Stopped) as stopped:
            model.complete([Prompt("", "write")], withdrawal)
        assert endpoint.left.wait(60), "the connection is closed"
    assert stopped.value.unanswered == 1


def test_replies_in_progress_are_seen_with_their_age_and_speed() -> None:
    gate, seen = FixedGate(8), []

    def script() -> Iterator[Step]:
        for n in range(20):
            yield part(f"{n} ")
            seen.append(gate.replies.writing)
            time.sleep(0.05)
        yield from END

    with writer(script, gate=gate) as (model, _):
        one(model)

    last = seen[-1]
    assert last.replies == 1
    assert 0.5 < last.longest_seconds < 20.0
    assert 1.0 < last.tokens_per_second < 25.0
    assert last.silent_seconds < 20.0
    assert gate.replies.writing.replies == 0


def test_a_refused_stream_option_is_left_out_and_a_refused_stream_too() -> None:
    from tests.integration.test_model_openai import conversation, refused, said

    def answer(body: dict[str, Any]) -> Any:
        if "stream_options" in body:
            return refused(400, "Unrecognized request argument supplied: stream_options")
        if "stream" in body:
            return refused(400, "Streaming is not supported by this model")
        return said("plain")

    with conversation(answer) as (model, endpoint, pauses):
        assert [one(model).text for _ in range(2)] == ["plain"] * 2

    assert ["stream" in body for body in endpoint.asked] == [True, True, False, False]
    assert pauses == []
