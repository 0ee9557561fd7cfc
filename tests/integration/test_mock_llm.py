"""`evoq mock-llm` over its socket, with a plain client and with this project's."""

import http.client
import json
import re
import socket
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from app.cli.application import status_of
from mock_llm.server import LARGEST_BODY_BYTES
from tests.integration.cli import Evoq, problem_folder
from tests.integration.mock_llm import Fetched, Mock, fetch, mock_llm, until

PROMPT = "# Current program\n```python\nx = 1.5\ny = 2.5\n```\n"


@pytest.fixture(scope="module")
def mock() -> Iterator[Mock]:
    with mock_llm("--latency", "0.01", "--model", "small") as running:
        yield running


def ask(mock: Mock, text: str = PROMPT, **options: object) -> Any:
    """Returns the completion of a prompt, as JSON."""
    body = {"model": "small", "messages": [{"role": "user", "content": text}], **options}
    answer = fetch(mock.base_url + "/chat/completions", json.dumps(body).encode())
    assert answer.status == 200, answer.text
    return answer.json


def texts_of(answer: Any) -> list[str]:
    return [choice["message"]["content"] for choice in answer["choices"]]


def test_every_answer_names_the_simulation(mock: Mock):
    answer = ask(mock)
    root = mock.base_url.removesuffix("/v1")
    metrics = fetch(root + "/metrics").text

    assert "SIMULATED" in mock.first_line
    assert answer["object"] == "chat.completion"
    assert answer["model"] == "simulated/small"
    assert "SIMULATION" in answer["system_fingerprint"]
    models = fetch(mock.base_url + "/models").json["data"]
    assert [model["id"] for model in models] == ["simulated/small"]
    assert "SIMULATION" in fetch(root + "/health").text
    assert metrics.startswith("# SIMULATION")
    assert 'model_name="simulated/small"' in metrics
    assert "simulation" in fetch(root + "/nowhere").text
    assert "simulation" in fetch(root + "/health").headers["server"]


def test_n_choices_differ_and_the_same_seed_repeats_them(mock: Mock):
    first, again, other = (ask(mock, n=8, seed=seed) for seed in (1, 1, 2))

    texts = texts_of(first)
    assert [choice["index"] for choice in first["choices"]] == list(range(8))
    assert len(set(texts)) > 4
    assert texts == texts_of(again)
    assert texts != texts_of(other)


def test_usage_counts_all_choices_and_cached_prompt_tokens(mock: Mock):
    long = "a fixed task, described at length, " * 30 + PROMPT
    ask(mock, long)
    usage = ask(mock, long, n=2)["usage"]

    assert usage["prompt_tokens"] == pytest.approx(len(long) / 4, abs=1)
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens_details"]["cached_tokens"] > 200
    assert mock.gauge("vllm:prefix_cache_hits_total") > 200


def test_a_completion_is_cut_at_its_limit(mock: Mock):
    [choice] = ask(mock, max_tokens=2)["choices"]

    assert choice["finish_reason"] == "length"
    assert choice["message"]["role"] == "assistant"
    assert len(choice["message"]["content"]) == 8


def stream_of(mock: Mock, text: str = PROMPT, **options: object) -> list[Any]:
    """Returns the events of a streamed completion; the last is the end of the stream."""
    body = {"model": "small", "messages": [{"role": "user", "content": text}], "stream": True}
    answer = fetch(mock.base_url + "/chat/completions", json.dumps({**body, **options}).encode())
    assert answer.status == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    *events, end = answer.text.removesuffix("\n\n").split("\n\n")
    assert end == "data: [DONE]"
    return [json.loads(event.removeprefix("data: ")) for event in events]


def streamed_texts(events: list[Any], n: int) -> list[str]:
    parts = [choice for event in events for choice in event["choices"]]
    return [
        "".join(part["delta"].get("content", "") for part in parts if part["index"] == index)
        for index in range(n)
    ]


@pytest.mark.parametrize("speed", [(), ("--tokens-per-second", "200")])
def test_a_stream_has_the_texts_of_the_answer_in_one_piece(speed: tuple[str, ...]):
    with mock_llm("--latency", "0.01", *speed) as either:
        whole = ask(either, n=3, seed=4)
        counted = stream_of(either, n=3, seed=4, stream_options={"include_usage": True})
        uncounted = stream_of(either, n=3, seed=4)

    assert streamed_texts(counted, 3) == texts_of(whole)
    assert counted[0]["choices"][0]["delta"]["role"] == "assistant"
    finishes = [choice["finish_reason"] for event in counted for choice in event["choices"]]
    assert finishes[-3:] == ["stop"] * 3
    assert not any(finishes[:-3])
    assert counted[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
    assert counted[-1]["choices"] == []
    assert all(event["choices"] for event in uncounted)
    assert not any("usage" in event for event in uncounted)
    assert all(event["model"] == "simulated/small" for event in counted)


def pieces_of_a_stream(mock: Mock) -> list[bytes]:
    """Returns the parts in which a streamed completion is sent."""
    line = http.client.HTTPConnection(urlsplit(mock.base_url).netloc)
    body = {**json.loads(chat()), "stream": True}
    line.request("POST", "/v1/chat/completions", json.dumps(body))
    answer, pieces = line.getresponse(), []
    while piece := answer.read1(65536):
        pieces.append(piece)
    line.close()
    return pieces


def test_a_stream_is_sent_at_the_simulated_speed():
    speed = ("--latency", "0.1", "--tokens-per-second", "20", "--completion-tokens", "20")
    with mock_llm(*speed) as slow:
        # What is due after a stall is sent at once.
        streams = (pieces_of_a_stream(slow) for _ in range(3))
        pieces = next((each for each in streams if len(each) >= 5), None)

    assert pieces is not None, "no stream came in five pieces"
    assert pieces[-1].endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"stream": "yes"}, 400, "stream"),
        ({"stream_options": {"include_usage": True}}, 400, "stream_options"),
        ({"stream": True, "stream_options": "usage"}, 400, "stream_options"),
        ({"model": "large"}, 404, "model"),
        ({"messages": []}, 400, "messages"),
        ({"messages": ["hello"]}, 400, "messages"),
        ({"n": 0}, 400, "n"),
        ({"n": 1.5}, 400, "n"),
        ({"temperature": 3}, 400, "temperature"),
        ({"max_tokens": 0}, 400, "max_tokens"),
        ("{", 400, None),
    ],
)
def test_errors_have_openais_shape(mock: Mock, body: object, status: int, param: str | None):
    sound = {"model": "small", "messages": [{"role": "user", "content": "hello"}]}
    content = body if isinstance(body, str) else json.dumps({**sound, **body})  # type: ignore[dict-item]

    answer = fetch(mock.base_url + "/chat/completions", content.encode())

    assert answer.status == status
    assert set(answer.json["error"]) == {"message", "type", "param", "code"}
    assert answer.json["error"]["param"] == param


def test_a_body_that_is_too_large_is_refused_in_openais_shape(mock: Mock):
    answer = fetch(mock.base_url + "/chat/completions", bytes(LARGEST_BODY_BYTES + 1))

    assert answer.status == 413
    assert str(LARGEST_BODY_BYTES) in answer.json["error"]["message"]


def test_a_path_refuses_another_method_in_openais_shape(mock: Mock):
    read = fetch(mock.base_url + "/chat/completions")
    written = fetch(mock.base_url.removesuffix("/v1") + "/metrics", b"{}")

    assert (read.status, written.status) == (405, 405)
    assert "GET /v1/chat/completions" in read.json["error"]["message"]
    assert written.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    "options", [("--latency", "600"), ("--latency", "0", "--tokens-per-second", "0.1")]
)
@pytest.mark.parametrize("streamed", [False, True])
def test_a_closed_connection_withdraws_its_sequence(options: tuple[str, ...], streamed: bool):
    with mock_llm(*options) as slow:
        line = http.client.HTTPConnection(urlsplit(slow.base_url).netloc)
        body = {**json.loads(chat()), "stream": streamed}
        line.request("POST", "/v1/chat/completions", json.dumps(body))
        until(lambda: slow.gauge("vllm:num_requests_running") == 1, "its sequence runs")
        line.close()
        until(lambda: slow.gauge("vllm:num_requests_running") == 0, "no sequence runs")


def chat(n: int = 1) -> bytes:
    return json.dumps(
        {"model": "m", "messages": [{"role": "user", "content": PROMPT}], "n": n}
    ).encode()


def answered(mock: Mock, body: bytes) -> Fetched | None:
    """Requests a completion; None: the connection was cut."""
    try:
        return fetch(mock.base_url + "/chat/completions", body, timeout=200.0)
    except OSError:
        return None


def test_above_its_queue_it_answers_503_at_once_without_retry_after():
    with (
        ThreadPoolExecutor(20) as pool,
        mock_llm("--latency", "600", "--max-num-seqs", "4", "--max-num-queued-reqs", "10") as small,
    ):
        held = pool.submit(answered, small, chat(n=10))
        until(lambda: small.gauge("vllm:num_requests_waiting") == 6, "ten are in its queue")
        answers = [pool.submit(answered, small, chat()) for _ in range(19)]
        refused = [answer.result() for answer in answers]

        assert [answer.status for answer in refused if answer] == [503] * 19
        assert not held.done()
        assert "retry-after" not in refused[0].headers
        assert "currently busy" in refused[0].json["error"]["message"]
        assert small.gauge("vllm:admission_rejections_total") == 19
        assert small.gauge("vllm:num_requests_running") == 4


def test_sequences_above_the_batch_size_wait_for_a_free_slot():
    with mock_llm("--latency", "0.5", "--max-num-seqs", "4") as small:
        answer = answered(small, chat(n=8))

        assert answer is not None
        assert len(answer.json["choices"]) == 8
        assert small.gauge("evoq_mock_llm_peak_running") == 4
        assert small.gauge("vllm:request_queue_time_seconds_sum") > 0.4


def test_faults_are_injected_at_the_given_rates():
    rates = ("--rate-429", "0.2", "--retry-after", "1.5", "--rate-5xx", "0.2")
    rates += ("--rate-hang", "0.1", "--rate-garbage", "0.1", "--seed", "4")
    with ThreadPoolExecutor(200) as pool, mock_llm("--latency", "0", *rates) as faulty:
        requests = [pool.submit(answered, faulty, chat()) for _ in range(200)]
        until(
            lambda: sum(request.done() for request in requests) + hanging(faulty) == 200,
            "every request that does not hang is answered",
        )
        injected = faulty.gauge("evoq_mock_llm_injected_faults_total")

    answers = [request.result() for request in requests]
    hung = answers.count(None)
    statuses = Counter(answer.status for answer in answers if answer)
    limited = next(answer for answer in answers if answer and answer.status == 429)
    assert limited.headers["retry-after"] == "1.5"
    assert statuses[429] == pytest.approx(40, abs=15)
    assert sum(statuses[status] for status in (500, 502, 503)) == pytest.approx(40, abs=15)
    assert hung == pytest.approx(20, abs=12)
    garbage = [answer for answer in answers if answer and answer.status == 200]
    broken = [answer for answer in garbage if b"simulated/m" not in answer.content]
    assert len(broken) == pytest.approx(20, abs=12)
    assert injected == statuses.total() - len(garbage) + len(broken) + hung


def hanging(mock: Mock) -> int:
    metrics = fetch(mock.base_url.removesuffix("/v1") + "/metrics").text
    [count] = re.findall(r'injected_faults_total\{.*fault="hang"\} (\d+)', metrics)
    return int(count)


def test_a_script_is_answered_in_order(tmp_path: Path):
    script = tmp_path / "replies.jsonl"
    script.write_text('"one"\n"two"\n')
    with mock_llm("--latency", "0", "--replies", script) as scripted:
        texts = [texts_of(ask(scripted))[0] for _ in range(3)]

    assert texts == ["one", "two", "one"]


@pytest.mark.usefixtures("servers")
def test_a_run_evolves_against_it(evoq: Evoq, tmp_path: Path):
    folder = problem_folder(tmp_path / "problem")
    with mock_llm("--latency", "0.01") as mock:
        model = ("--set", "llm.model=mock", "--set", f"llm.base_url={mock.base_url}")
        mix = ("--set", "search.operators={complete: 1, function: 1}")
        command = ("run", folder, "--iterations", 12, "--reproducible", "--json")
        result = evoq(*command, *model, *mix)
        finished = mock.gauge("vllm:request_success_total")

    assert result.code == 0, result.err
    assert result.json["state"] == "finished"
    assert 12 <= finished <= 24, "a duplicate is asked for once more"
    assert result.json["best"]["fitness"] > -6.5, result.json["best"]  # the seed's fitness


def test_the_error_of_a_taken_port_names_the_remedy(capsys: pytest.CaptureFixture[str]):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code = status_of(["mock-llm", "--port", str(taken.getsockname()[1])])

    assert code == 2
    assert "--port 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--latency", "fast"], "lognormal"),
        (["--rate-429", "0.9", "--rate-hang", "0.9"], "1.8"),
        (["--rate-5xx", "-1"], "0 to 1"),
        (["--replies", "nowhere.jsonl"], "nowhere.jsonl"),
        (["--host", "192.0.2.1"], "address"),
        (["--latency", "lognormal:1,11"], "--latency"),
        (["--latency", "lognormal:1"], "--latency"),
        (["--latency", "lognormal:x"], "--latency"),
        (["--tokens-per-second", "inf"], "--tokens-per-second"),
        (["--batch-slowdown", "inf"], "--batch-slowdown"),
        (["--rate-429", "0.1", "--retry-after", "nan"], "--retry-after"),
        (["--rate-429", "0.1", "--retry-after", "-1"], "--retry-after"),
        (["--retry-after", "1"], "--rate-429"),
        (["--model", ""], "--model"),
    ],
)
def test_the_errors_of_wrong_options_name_the_remedy(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
):
    assert status_of(["mock-llm", *options]) == 2
    assert message in capsys.readouterr().err
