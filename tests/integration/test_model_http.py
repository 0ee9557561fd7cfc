"""The HTTP session of an endpoint: proxies of the environment, and what is sent."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from app.adapters.model.providers.attempts import EndpointModel
from app.adapters.model.providers.event_loop import ModelLoop
from app.adapters.model.providers.openai import OpenAIWire
from app.adapters.model.providers.spec import ModelSpec
from app.adapters.proxies import proxy_of
from app.domain.operator import Prompt
from app.ports.protocols import Misconfigured, Unavailable
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
        return EndpointModel(OpenAIWire(spec), model_loop).complete([Prompt("", "hi")])[0].text
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

    found = proxy_of("https://models.example.org/v1")

    assert (None if found is None else found.url) == proxy


def test_a_proxy_of_another_protocol_is_refused_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("all_proxy", "socks5://user:word@127.0.0.1:1")

    with pytest.raises(Misconfigured, match="NO_PROXY") as caught:
        completed("http://model.invalid/v1")

    assert "socks5" in str(caught.value)
    assert "word" not in str(caught.value)


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST", "api.localhost", "127.0.0.1", "127.8.9.1", "[::1]"]
)
@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY", "all_proxy"])
def test_no_loopback_address_goes_through_a_proxy(
    host: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "http://p:1")

    assert proxy_of(f"http://{host}:8000/v1") is None
    assert proxy_of("http://localhost.example.org/v1") is not None
    assert proxy_of("http://128.0.0.1/v1") is not None


@pytest.mark.parametrize(
    ("exceptions", "url", "direct"),
    [
        ("example.org", "http://models.example.org/v1", True),
        (".example.org", "http://models.example.org/v1", True),
        ("*.example.org", "http://models.example.org/v1", True),
        ("example.org", "http://badexample.org/v1", False),
        ("other, EXAMPLE.org", "http://example.org/v1", True),
        ("example.org:8000", "http://example.org:8000/v1", True),
        ("example.org:8000", "http://example.org:9000/v1", False),
        ("10.0.0.0/8", "http://10.1.2.3:8000/v1", True),
        ("10.0.0.0/8", "http://11.1.2.3:8000/v1", False),
        ("192.168.1.7", "http://192.168.1.7/v1", True),
        ("fd00::/8", "http://[fd12::1]:8000/v1", True),
        ("*", "http://anything/v1", True),
        ("", "http://anything/v1", False),
    ],
)
def test_hosts_that_no_proxy_names(
    exceptions: str, url: str, direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://p:1")
    monkeypatch.setenv("no_proxy", exceptions)

    assert (proxy_of(url) is None) is direct


@contextmanager
def refusing_proxy(status: int) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            page = b"<html><title>Access denied</title></html>"
            self.send_response(status)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def do_CONNECT(self) -> None:
            self.send_error(status)

        def log_message(self, format: str, *args: object) -> None:
            pass

    opened = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=opened.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"127.0.0.1:{opened.server_address[1]}"
    finally:
        opened.shutdown()
        thread.join()
        opened.server_close()


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("status", [403, 407, 502])
def test_the_answer_of_a_proxy_is_named_as_the_proxys_without_its_password(
    scheme: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with refusing_proxy(status) as address:
        monkeypatch.setenv(f"{scheme.upper()}_PROXY", f"http://user:secretword@{address}")
        with pytest.raises(Unavailable) as caught:
            completed(f"{scheme}://model.invalid/v1", KEY)

    message = str(caught.value)
    assert f"the proxy http://{address} of {scheme.upper()}_PROXY answered HTTP {status}" in message
    assert "NO_PROXY" in message
    assert "secretword" not in message


def test_a_proxy_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://user:secretword@127.0.0.1:1")

    with pytest.raises(Unavailable, match="of http_proxy cannot be connected to") as caught:
        completed("http://model.invalid/v1")

    assert "the proxy http://127.0.0.1:1 of" in str(caught.value)
    assert "secretword" not in str(caught.value)
