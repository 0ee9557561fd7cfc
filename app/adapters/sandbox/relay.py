"""The way from an isolated command to a few hosts, and to nothing else."""

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable
from urllib.parse import urlsplit

from app.adapters.proxies import Proxy, proxy_of

Place = tuple[str, int]
"""A host's name in lower case, and a port."""

PROXIES = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
"""Variables that name a proxy to a command."""
CERTIFICATES = ("/etc/ssl", "/etc/pki")
"""Where a command finds the certificates that it trusts."""
_PORTS = {"http": 80, "https": 443}
_MOST_HEAD_BYTES = 65_536
_MOST_CONNECTIONS = 64
_SECONDS = 60.0
_PIECE = 65_536
_OF_ONE_HOP = (b"connection", b"proxy-connection", b"proxy-authorization", b"keep-alive")


def place_of(url: str) -> Place | None:
    """Returns where an HTTP address leads; None where it is no such address."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return None
    return (parts.hostname.lower(), port) if parts.hostname and port else None


class Relay:
    """An HTTP proxy that knows a few places and refuses all others.

    Each connection leads to one place.  Where this process has a proxy of its own (`https_proxy`
    and its siblings), requests go on through that one.

    Args:
      places: What it leads to.
      name: What that is, for people.
      report: Gets a line for each place that is refused.
    """

    def __init__(self, places: frozenset[Place], name: str, report: Callable[[str], None]) -> None:
        self._places, self._name = places, name
        self._report = report
        self._slots = threading.BoundedSemaphore(_MOST_CONNECTIONS)

    def serve(self, listener: socket.socket) -> None:
        """Serves until the listener is shut down."""
        with listener:
            while True:
                self._slots.acquire()
                try:
                    near, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=self._serve_one, args=(near,), daemon=True).start()

    def _serve_one(self, near: socket.socket) -> None:
        try:
            with near, contextlib.suppress(OSError, ValueError):
                near.settimeout(_SECONDS)
                self._lead(near)
        finally:
            self._slots.release()

    def _lead(self, near: socket.socket) -> None:
        head, rest = _head(near)
        line, *fields = head.split(b"\r\n")
        method, target, version = line.decode("ascii").split(" ")
        tunnel = method == "CONNECT"
        url = f"https://{target}" if tunnel else target
        place = place_of(url)
        if place not in self._places:
            self._report(f"the network is closed but for {self._name}: {url[:200]} is refused")
            near.sendall(b"HTTP/1.1 403 Refused\r\nContent-Length: 0\r\n\r\n")
            return
        proxy = proxy_of(url)
        upstream = "" if proxy is None else proxy.url
        with socket.create_connection(place_of(upstream or url) or place, _SECONDS) as far:
            if proxy is not None:
                far.sendall(b"\r\n".join([line, *_own(fields), *_credentials(proxy)]))
            elif tunnel:
                near.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
            else:
                parts = urlsplit(target)
                path = f"{parts.path or '/'}{'?' * bool(parts.query)}{parts.query}"
                first = f"{method} {path} {version}".encode("ascii")
                far.sendall(b"\r\n".join([first, *_own(fields), b"Connection: close"]))
            if proxy is not None or not tunnel:
                far.sendall(b"\r\n\r\n" + rest)
            _pump(near, far)


def _head(near: socket.socket) -> tuple[bytes, bytes]:
    """Returns the head of a request and what came behind it."""
    received = b""
    while b"\r\n\r\n" not in received:
        piece = near.recv(_PIECE)
        if not piece or len(received) > _MOST_HEAD_BYTES:
            raise ValueError("no request")
        received += piece
    head, _, rest = received.partition(b"\r\n\r\n")
    return head, rest


def _own(fields: list[bytes]) -> list[bytes]:
    return [field for field in fields if field.split(b":")[0].strip().lower() not in _OF_ONE_HOP]


def _credentials(proxy: Proxy) -> list[bytes]:
    return [f"{name}: {value}".encode() for name, value in proxy.credentials.items()]


def _pump(near: socket.socket, far: socket.socket) -> None:
    """Passes bytes both ways until either end has nothing more to say for a minute, or closes."""
    other = {near: far, far: near}
    with selectors.DefaultSelector() as ready:
        for end in other:
            ready.register(end, selectors.EVENT_READ, end)
        while ready.get_map():
            keys = ready.select(_SECONDS)
            if not keys:
                return
            for key, _ in keys:
                end = key.data
                piece = end.recv(_PIECE)
                if piece:
                    other[end].sendall(piece)
                    continue
                ready.unregister(end)
                with contextlib.suppress(OSError):
                    other[end].shutdown(socket.SHUT_WR)
