"""Servers of language models on this machine, each asked as the real ones answer."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from app.adapters.model.local_servers import (
    LocalModel,
    LocalServer,
    NoServer,
    local_servers,
    server_at,
)

Answers = Mapping[str, Any]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may keep a server of these tests from answering within two seconds."""
    monkeypatch.setattr("app.adapters.model.local_servers.SECONDS", 60.0)


@contextmanager
def serving(answers: Answers) -> Iterator[str]:
    """Serves JSON by path, and 404 for every other path; yields the address of `/v1`."""

    class Answering(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            found = answers.get(self.path)
            content = found if isinstance(found, bytes) else json.dumps(found).encode()
            self.send_response(200 if found is not None else 404)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = _answer

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()


def listed(*names: str, **fields: Any) -> dict[str, Any]:
    return {"object": "list", "data": [{"id": name, **fields} for name in names]}


VLLM = {"/v1/models": listed("qwen", owned_by="vllm", max_model_len=8192)}
LLAMACPP = {
    "/v1/models": listed("medium", owned_by="llamacpp", meta={"n_ctx_train": 32768}),
    "/props": {"default_generation_settings": {"n_ctx": 6144}, "total_slots": 4},
}
OLLAMA = {
    "/v1/models": listed("nomic-embed-text:latest", "qwen2.5-coder:7b", owned_by="library"),
    "/api/version": {"version": "0.9.0"},
    "/api/ps": {"models": []},
    "/api/show": {"parameters": 'stop "x"\nnum_ctx    16384', "model_info": {}},
}
LM_STUDIO = {
    "/v1/models": listed("a", "b", owned_by="organization_owner"),
    "/api/v0/models": {
        "data": [
            {"id": "e", "type": "embeddings", "state": "loaded", "max_context_length": 2048},
            {"id": "a", "type": "llm", "state": "not-loaded", "max_context_length": 32768},
            {"id": "b", "type": "llm", "state": "loaded", "loaded_context_length": 4096},
        ]
    },
}


@pytest.mark.parametrize(
    ("answers", "kind", "models"),
    [
        (VLLM, "vLLM", [LocalModel("qwen", 8192)]),
        (LLAMACPP, "llama.cpp", [LocalModel("medium", 6144)]),
        (OLLAMA, "Ollama", [LocalModel("qwen2.5-coder:7b", 16384)]),
        (LM_STUDIO, "LM Studio", [LocalModel("b", 4096), LocalModel("a", 32768)]),
        ({"/v1/models": listed("m")}, "OpenAI-compatible", [LocalModel("m")]),
    ],
)
def test_each_server_is_known_by_what_it_answers_with_its_model_and_context(answers, kind, models):
    with serving(answers) as url:
        assert server_at(url) == LocalServer(kind, url, tuple(models))


def test_of_ollama_the_loaded_model_comes_first_with_the_context_it_was_loaded_with():
    loaded = {"/api/ps": {"models": [{"name": "b", "context_length": 4096}]}}
    names = {"/v1/models": listed("a", "b", owned_by="library")}

    with serving({**OLLAMA, **names, **loaded}) as url:
        found = server_at(url)

    assert isinstance(found, LocalServer)
    assert found.models == (LocalModel("b", 4096), LocalModel("a"))


def test_of_ollama_a_model_without_num_ctx_has_the_default_context():
    shown = {"/api/show": {"model_info": {"qwen2.context_length": 32768}}}

    with serving({**OLLAMA, **shown}) as url:
        found = server_at(url)

    assert isinstance(found, LocalServer)
    assert found.models[0].context_tokens == 4096


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ({}, "it answers 404 Not Found"),
        ({"/v1/models": {"object": "list"}}, "it answers, but lists no models"),
        ({"/v1/models": []}, "it answers, but lists no models"),
        ({"/v1/models": b"<html>"}, "it answers, but not with JSON"),
        ({"/v1/models": listed()}, "it answers, and serves no model that writes texts"),
        (
            {"/v1/models": listed("nomic-embed-text")},
            "it answers, and serves no model that writes texts",
        ),
    ],
)
def test_what_offers_no_model_is_no_server_and_says_why(answers, reason):
    with serving(answers) as url:
        assert server_at(url) == NoServer(url, reason)


def test_a_port_on_which_nothing_listens_is_told():
    assert server_at("http://127.0.0.1:9/v1").reason == "nothing listens there"


def test_a_local_server_is_never_asked_through_a_proxy(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)

    with serving(VLLM) as url:
        assert isinstance(server_at(url), LocalServer)


def test_the_servers_that_offer_a_model_are_found_in_the_order_asked():
    with serving(OLLAMA) as one, serving({}) as none, serving(LLAMACPP) as two:
        found, absent = local_servers([one, none, two])

    assert [server.kind for server in found] == ["Ollama", "llama.cpp"]
    assert [each.base_url for each in absent] == [none]
