"""The HTTP session of an endpoint: proxies of the environment, and what is sent."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from app.adapters.model.providers.event_loop import ModelLoop
from app.adapters.model.providers.http_session import environment_proxy
from app.adapters.model.providers.openai import OpenAIModel
from app.adapters.model.providers.spec import ModelSpec
from app.domain.operator import Prompt
from app.ports.protocols import Misconfigured
from tests.integration.test_model_openai import KEY, said

_VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@contextmanager
def server() -> Iterator[tuple[str, list[tuple[str, dict[str, str]]]]]:
    """Yields HOST:PORT of a server, and the path and headers of each request that it receives."""
    received: list[tuple[str, dict[str, str]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            received.append((self.path, {k.lower(): v for k, v in self.headers.items()}))
            reply = said("x")
            self.send_response(reply.status)
            self.send_header("content-length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    opened = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=opened.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"127.0.0.1:{opened.server_address[1]}", received
    finally:
        opened.shutdown()
        thread.join()
        opened.server_close()


def completed(base_url: str, key: str = "") -> str:
    model_loop = ModelLoop()
    spec = ModelSpec("echo", base_url=base_url, api_key=key, retries=0)
    try:
        return OpenAIModel(spec, model_loop).complete([Prompt("", "hi")])[0].text
    finally:
        model_loop.close()


def test_a_request_takes_the_proxy_of_the_environment_with_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with server() as (address, received):
        monkeypatch.setenv("http_proxy", f"http://user:word@{address}")

        assert completed("http://model.invalid/v1", KEY) == "x"

    [(path, headers)] = received
    assert path == "http://model.invalid/v1/chat/completions"
    assert headers["proxy-authorization"] == "Basic dXNlcjp3b3Jk"
    assert headers["authorization"] == f"Bearer {KEY}"


def test_a_host_of_no_proxy_is_asked_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    with server() as (address, received):
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        monkeypatch.setenv("no_proxy", "127.0.0.1")

        assert completed(f"http://{address}/v1/") == "x"

    [(path, headers)] = received
    assert path == "/v1/chat/completions"
    assert "authorization" not in headers, "there is no key"


@pytest.mark.parametrize(
    ("variables", "proxy"),
    [
        ({}, None),
        ({"https_proxy": "http://p:1"}, "http://p:1"),
        ({"http_proxy": "http://p:1"}, None),
        ({"all_proxy": "p:1"}, "http://p:1"),
        ({"https_proxy": "http://p:1", "no_proxy": "example.org"}, None),
        ({"https_proxy": "http://p:1", "no_proxy": "*"}, None),
    ],
)
def test_the_proxy_of_an_address(
    variables: dict[str, str], proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert environment_proxy("https://models.example.org/v1") == proxy


def test_a_proxy_of_another_protocol_is_refused_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("all_proxy", "socks5://user:word@127.0.0.1:1")

    with pytest.raises(Misconfigured, match="NO_PROXY") as caught:
        completed("http://model.invalid/v1")

    assert "socks5" in str(caught.value)
    assert "word" not in str(caught.value)
