"""What endpoints really say when they refuse, each in a shape of its own; see `said.py`."""

import json
import logging
import socket
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.adapters.model.providers.attempts import EndpointModel
from app.adapters.model.providers.event_loop import ModelLoop
from app.adapters.model.providers.openai import OpenAIWire
from app.adapters.model.providers.spec import ModelSpec
from app.domain.operator import Prompt
from app.ports.protocols import Misconfigured, PromptTooLong, Unavailable
from tests.integration.test_model_openai import KEY, Reply, conversation, fault, in_turn, said


def json_reply(status: int, document: Any, **headers: str) -> Reply:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, json.dumps(document).encode(), named)


def google(code: int, message: str, **more: Any) -> Reply:
    return json_reply(code, [{"error": {"code": code, "message": message, **more}}])


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (google(404, "models/gemini-9 is not found", status="NOT_FOUND"), "gemini-9 is not found"),
        (json_reply(400, {"detail": "no such adapter"}), "no such adapter"),
        (
            json_reply(422, {"detail": [{"loc": ["body", "messages"], "msg": "Field required"}]}),
            "messages: Field required",
        ),
        (json_reply(400, {"error": "model not loaded"}), "model not loaded"),
        (json_reply(400, {"object": "error", "message": "too long", "code": 400}), "too long"),
        (Reply(403, b"<html>\n <title>Just a moment</title>"), "<title>Just a moment</title>"),
        (
            json_reply(
                400,
                {
                    "error": {
                        "message": "Provider returned error",
                        "metadata": {"raw": "prompt is longer than 8192"},
                    }
                },
            ),
            "prompt is longer than 8192",
        ),
    ],
)
def test_a_refusal_of_any_form_keeps_the_endpoints_words(reply: Reply, says: str) -> None:
    with conversation(in_turn(reply)) as (model, endpoint, _):
        error = fault(model)

    assert isinstance(error, Misconfigured)
    assert says in str(error)
    assert len(endpoint.asked) == 1


@pytest.mark.parametrize(
    "reply",
    [
        google(400, 'Invalid JSON payload received. Unknown name "top_p": Cannot find field.'),
        json_reply(
            422,
            {"detail": [{"loc": ["body", "top_p"], "msg": "Extra inputs are not permitted"}]},
        ),
    ],
)
def test_a_parameter_is_left_out_whatever_the_shape_of_its_refusal(reply: Reply) -> None:
    with conversation(in_turn(reply, said("x")), top_p=0.9) as (model, endpoint, _):
        [answer] = model.complete([Prompt("", "hi")])

    assert answer.text == "x"
    assert ["top_p" in each for each in endpoint.asked] == [True, False]


@pytest.mark.parametrize(
    ("reply", "remedy"),
    [
        (
            google(
                400,
                "API key not valid. Please pass a valid API key.",
                status="INVALID_ARGUMENT",
                details=[{"reason": "API_KEY_INVALID"}],
            ),
            "check the key",
        ),
        (
            json_reply(
                400,
                {
                    "type": "error",
                    "error": {
                        "type": "invalid_request_error",
                        "message": "Your credit balance is too low to access the Anthropic API.",
                    },
                },
            ),
            "no credit left",
        ),
        (
            json_reply(429, {"error": {"message": "no quota", "type": "insufficient_quota"}}),
            "no credit left",
        ),
    ],
)
def test_the_remedy_follows_the_message_and_not_the_status_alone(reply: Reply, remedy: str) -> None:
    with conversation(in_turn(reply)) as (model, endpoint, _):
        error = fault(model)

    assert isinstance(error, Misconfigured)
    assert remedy in str(error)
    assert len(endpoint.asked) == 1


def test_a_transient_failure_keeps_the_endpoints_message() -> None:
    reply = json_reply(503, {"error": {"code": 503, "message": "Loading model"}})
    with conversation(in_turn(reply), retries=1) as (model, _, _):
        error = fault(model)

    assert "HTTP 503, after 2 attempt(s)" in str(error)
    assert "Loading model" in str(error)


def test_an_error_in_the_body_of_a_200_counts_as_its_own_status() -> None:
    poor = json_reply(200, {"error": {"code": 402, "message": "Insufficient credits"}})
    with conversation(in_turn(poor)) as (model, endpoint, _):
        error = fault(model)

    assert isinstance(error, Misconfigured)
    assert "Insufficient credits" in str(error)
    assert len(endpoint.asked) == 1

    busy = json_reply(200, {"error": {"code": 429, "message": "slow down"}})
    with conversation(in_turn(busy, said("x"))) as (model, endpoint, _):
        [answer] = model.complete([Prompt("", "hi")])

    assert (answer.text, len(endpoint.asked)) == ("x", 2)


@pytest.mark.parametrize("named", [{"error": {"code": 502, "message": "overloaded"}}, {}])
def test_an_answer_that_broke_off_upstream_is_requested_again(named: dict[str, Any]) -> None:
    choice = {"message": {"role": "assistant", "content": "def f("}, "finish_reason": "error"}
    broken = json_reply(200, {"choices": [{**choice, **named}]})
    with conversation(in_turn(broken, said("x"))) as (model, _, _):
        [answer] = model.complete([Prompt("", "hi")])

    assert (answer.text, answer.unanswered) == ("x", 1)


def test_an_answer_in_parts_is_the_text_of_its_parts() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "def f():\n"},
        {"type": "text", "text": "    return 1\n"},
    ]
    with conversation(in_turn(said(parts))) as (model, _, _):  # type: ignore[arg-type]  # Mistral's
        [answer] = model.complete([Prompt("", "hi")])

    assert answer.text == "def f():\n    return 1\n"


@pytest.mark.parametrize(
    "written", ["%a %b %d %H:%M:%S %Y", "%a, %d %b %Y %H:%M:%S", "%a, %d %b %Y %H:%M:%S -0000"]
)
def test_a_date_without_a_zone_is_greenwich_time(written: str) -> None:
    then = (datetime.now(UTC) + timedelta(seconds=900)).strftime(written)
    answer = in_turn(json_reply(429, {}, Retry_After=then), said("x"))
    patience = {"retry_delay_seconds": 0.0, "deadline_seconds": 1000.0}
    with conversation(answer, **patience) as (model, _, pauses):
        model.complete([Prompt("", "hi")])

    assert 600.0 <= pauses[0] <= 900.0


def test_a_body_nested_too_deep_is_the_machinerys_fault() -> None:
    with conversation(in_turn(Reply(body=b"[" * 200_000)), retries=0) as (model, _, _):
        error = fault(model)

    assert "not a chat completion" in str(error)


@contextmanager
def bytes_of(answer: bytes) -> Iterator[str]:
    """Yields the address of a server that takes a request, sends these bytes and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        server.shutdown(socket.SHUT_RDWR)


def asked_once(**spec: Any) -> Unavailable:
    model_loop = ModelLoop()
    try:
        return fault(EndpointModel(OpenAIWire(ModelSpec("echo", retries=0, **spec)), model_loop))
    finally:
        model_loop.close()


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\ncont"])
def test_a_connection_that_ends_before_the_answer_may_be_billed(answer: bytes) -> None:
    with bytes_of(answer) as url:
        error = asked_once(base_url=url)

    assert not isinstance(error, Misconfigured)
    assert "cannot be connected to" not in str(error)
    assert error.unanswered == 1


def test_a_connection_that_was_never_made_is_not_billed() -> None:
    error = asked_once(base_url="http://127.0.0.1:1/v1")

    assert "cannot be connected to" in str(error)
    assert error.unanswered == 0


@pytest.mark.parametrize(
    "reply",
    [
        json_reply(401, {"error": {"message": f"no such key: {KEY}"}}),
        json_reply(500, {"error": {"message": f"no such key: {KEY}"}}),
        Reply(body=b"x" * 60 + KEY.encode()),
    ],
)
def test_a_key_that_the_endpoint_repeats_is_in_no_message_and_no_traceback(reply: Reply) -> None:
    with conversation(in_turn(reply), retries=0) as (model, _, _):
        error = fault(model)

    whole = "".join(traceback.format_exception(error))
    assert "sk-test" not in whole


def test_a_key_that_the_endpoint_repeats_is_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    reply = json_reply(400, {"error": {"message": f"{KEY}: unsupported parameter temperature"}})
    with conversation(in_turn(reply, said("x"))) as (model, _, _), caplog.at_level(logging.INFO):
        model.complete([Prompt("", "hi")])

    assert "does not take temperature" in caplog.text
    assert KEY not in caplog.text


def test_a_redirection_that_lost_the_request_is_named() -> None:
    def answer(path: str) -> Callable[[dict[str, Any]], Reply]:
        return in_turn(Reply(301, headers={"location": path}))

    with conversation(answer("/elsewhere/v1/chat/completions")) as (model, endpoint, _):
        error = fault(model)

    assert isinstance(error, Misconfigured)
    assert endpoint.url.replace("/v1", "/elsewhere/v1") in str(error)


def test_a_length_that_an_endpoint_refused_is_not_sent_again() -> None:
    words = "the prompt has 200 tokens, and the context size is 100 tokens"
    refusal = json_reply(400, {"error": {"message": words, "type": "exceed_context_size_error"}})
    long, shorter = Prompt("", "word " * 200, 0), Prompt("", "word " * 30, 1)
    with conversation(in_turn(refusal, said("yes"), said("yes"), said("yes"))) as (model, end, _):
        with pytest.raises(PromptTooLong, match="context size is 100") as caught:
            model.complete([long])
        with pytest.raises(PromptTooLong, match=r"takes prompts of about \d+ tokens"):
            model.complete([long])
        assert len(end.asked) == 1
        assert model.complete([shorter])[0].text == "yes"

        assert model.complete([Prompt("", "word " * 300, 2, shortest=True)])[0].text == "yes"
        assert model.complete([long])[0].text == "yes"
    assert 30 <= caught.value.longest < 200


def test_the_remedy_of_a_reply_that_fills_the_context_is_a_shorter_reply() -> None:
    words = (
        "'max_tokens' or 'max_completion_tokens' is too large: 4096. This model's maximum context "
        "length is 4096 tokens and your request has 904 input tokens (4096 > 4096 - 904)."
    )
    with (
        conversation(in_turn(json_reply(400, {"error": {"message": words}}))) as (model, _, _),
        pytest.raises(PromptTooLong, match=r"set llm\.max_tokens=2872, which leaves room"),
    ):
        model.complete([Prompt("", "hello", 0)])
