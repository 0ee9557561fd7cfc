"""Scripts, styles and fonts of the pages, kept in memory as they are sent.

They never change while a process lives, and their addresses name the version of NiceGUI, which
reads each of them from the disk in pieces, compresses it anew for every browser, and takes 6 ms for
the smallest.  A browser paints nothing before it has the styles.
"""

import asyncio
import re
from http.client import HTTPConnection, HTTPException
from typing import NamedTuple

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_MOST_BYTES = 32 << 20
"""Charts are 5 MB, all else that the pages use is 2."""
_ASSET = re.compile(r"/_nicegui/[^/]+/(?:static|components|libraries|esm|resources)/[\w./@-]+")
_OF_EVERY_PAGE = re.compile(r"/_nicegui/[^/]+/static/[\w./@-]+")
_WARMING_SECONDS = 20.0


class _Kept(NamedTuple):
    """An answer.  Its messages are shared by all who ask, so nobody changes them."""

    start: Message
    body: bytes


class AssetsMiddleware:
    """Answers requests for assets from memory, once the application has answered one.

    Args:
      app: The application.
      compressed: Whether they are sent compressed to browsers that accept it: over a network that
        is quicker, on one machine it is not.
    """

    def __init__(self, app: ASGIApp, *, compressed: bool) -> None:
        self._app = app
        self._compressed = compressed
        self._kept: dict[tuple[str, bool], _Kept] = {}
        self._bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        plain = scope["type"] == "http" and scope["method"] == "GET"
        if not plain or not _ASSET.fullmatch(scope["path"]):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        compressed = self._compressed and "gzip" in headers.get("accept-encoding", "")
        key = scope["path"], compressed
        answer = self._kept.get(key)
        if answer is None:
            answer = await self._asked(scope, compressed)
            if answer.start["status"] == 200 and self._bytes + len(answer.body) <= _MOST_BYTES:
                self._kept[key] = answer
                self._bytes += len(answer.body)
        await _send(answer, send)

    async def _asked(self, scope: Scope, compressed: bool) -> _Kept:
        """Returns the whole answer of the application, which is asked for no part of it.

        The application does not learn that a browser has left, after which it would write no more.
        """
        asked = dict(scope, headers=list(scope["headers"]))
        headers = MutableHeaders(scope=asked)
        headers["accept-encoding"] = "gzip" if compressed else "identity"
        for name in ("range", "if-none-match", "if-modified-since"):
            del headers[name]
        start: Message = {}
        body = bytearray()

        async def take(message: Message) -> None:
            if message["type"] == "http.response.start":
                start.update(message)
            elif message["type"] == "http.response.body":
                body.extend(message.get("body", b""))

        requests = iter([{"type": "http.request", "body": b"", "more_body": False}])

        async def stay() -> Message:
            return next(requests, None) or await asyncio.get_running_loop().create_future()

        await self._app(asked, stay, take)
        return _Kept(start, bytes(body))


async def _send(kept: _Kept, send: Send) -> None:
    await send({**kept.start, "headers": list(kept.start["headers"])})
    await send({"type": "http.response.body", "body": kept.body})


def warm_up(host: str, port: int, token: str) -> None:
    """Opens a page and what all pages load: the first viewer does not wait for what is done once.

    A server that does not answer is not an error here.
    """
    connection = HTTPConnection(host, port, timeout=_WARMING_SECONDS)

    def read(path: str) -> str:
        connection.request("GET", path, headers={"authorization": f"Bearer {token}"})
        return connection.getresponse().read().decode("utf-8", "replace")

    try:
        for path in sorted(set(_OF_EVERY_PAGE.findall(read("/")))):
            read(path)
    except (OSError, HTTPException):
        return
    finally:
        connection.close()
