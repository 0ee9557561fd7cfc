"""The HTTP session of an endpoint: proxies of the environment, and what is sent."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from app.adapters.model.providers.event_loop import ModelLoop
from app.adapters.model.providers.openai import OpenAIModel
from app.adapters.model.providers.proxies import environment_proxy, is_loopback
from app.adapters.model.providers.spec import ModelSpec
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


def test_an_address_of_this_machine_is_asked_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    with server() as (address, received):
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")

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
        ({"https_proxy": "http://p:1", "no_proxy": "a.org, .example.org"}, None),
        ({"https_proxy": "http://p:1", "no_proxy": "*.example.org"}, None),
        ({"https_proxy": "http://p:1", "no_proxy": "ample.org"}, "http://p:1"),
        ({"https_proxy": "http://p:1", "no_proxy": "example.org:8443"}, "http://p:1"),
    ],
)
def test_the_proxy_of_an_address(
    variables: dict[str, str], proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    found = environment_proxy("https://models.example.org/v1")

    assert (found.url if found else None) == proxy


def test_a_proxy_of_another_protocol_is_refused_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("all_proxy", "socks5://user:word@127.0.0.1:1")

    with pytest.raises(Misconfigured, match="NO_PROXY") as caught:
        completed("http://model.invalid/v1")

    assert "socks5" in str(caught.value)
    assert "word" not in str(caught.value)


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST", "box.localhost", "127.0.0.1", "127.8.9.10", "::1", "0.0.0.0"],
)
def test_loopback_hosts(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["localhost.example.org", "128.0.0.1", "notlocalhost", ""])
def test_other_hosts(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("url", "no_proxy", "direct"),
    [
        ("http://[::1]:8000/v1", "", True),
        ("http://localhost.:8000/v1", "", True),
        ("http://10.1.2.3:8000/v1", "10.0.0.0/8", True),
        ("http://10.1.2.3:8000/v1", "10.1.2.3:8000", True),
        ("http://10.1.2.3:8000/v1", "10.1.2.3:9", False),
        ("http://10.1.2.3:8000/v1", "192.168.0.0/16,10.1.2.3", True),
        ("http://[fd00::5]:8000/v1", "fd00::/8", True),
        ("http://11.1.2.3:8000/v1", "10.0.0.0/8", False),
        ("http://Gpu.Lan:8000/v1", "lan", True),
    ],
)
def test_no_proxy_names_hosts_networks_and_ports(
    url: str, no_proxy: str, direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://p:1")
    monkeypatch.setenv("no_proxy", no_proxy)

    assert (environment_proxy(url) is None) == direct


@contextmanager
def refusing_proxy(status: int, headers: dict[str, str], page: bytes) -> Iterator[str]:
    """Yields HOST:PORT of a proxy that answers each request itself."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(status)
            for name, value in {**headers, "content-length": str(len(page))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(page)

        do_GET = do_CONNECT = do_POST

        def log_message(self, format: str, *args: object) -> None:
            pass

    opened = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=opened.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"127.0.0.1:{opened.server_port}"
    finally:
        opened.shutdown()
        thread.join()
        opened.server_close()


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_refusal_of_a_proxy_names_the_proxy_and_the_way_around_it(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = b"<html>Access denied</html>"
    with refusing_proxy(403, {}, page) as address:
        monkeypatch.setenv(f"{scheme}_proxy", f"http://user:word@{address}")

        with pytest.raises(Misconfigured) as caught:
            completed(f"{scheme}://model.invalid:8000/v1")

    said_by = str(caught.value)
    assert f"the proxy http://{address} of {scheme.upper()}_PROXY" in said_by
    assert "model.invalid:8000 with HTTP 403; add model.invalid to NO_PROXY" in said_by
    assert "word" not in said_by
    assert "key" not in said_by


def test_a_proxy_that_asks_for_a_password_is_named_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    headers = {"Proxy-Authenticate": "Basic realm=x"}
    with refusing_proxy(407, headers, b'{"error": "who are you"}') as address:
        monkeypatch.setenv("http_proxy", f"http://{address}")

        with pytest.raises(Misconfigured, match="put a name and a password into HTTP_PROXY"):
            completed("http://model.invalid/v1")


def test_an_error_of_the_endpoint_through_a_proxy_is_the_endpoints(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = b'{"error": {"message": "this key may not"}}'
    with refusing_proxy(403, {"Content-Type": "application/json"}, body) as address:
        monkeypatch.setenv("http_proxy", f"http://{address}")

        with pytest.raises(Misconfigured, match="answered HTTP 403: this key may not"):
            completed("http://model.invalid/v1", KEY)


def test_a_proxy_whose_connection_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")

    with pytest.raises(Unavailable, match=r"the proxy http://127\.0\.0\.1:1 of HTTP_PROXY"):
        completed("http://model.invalid/v1")
