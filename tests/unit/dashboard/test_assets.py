"""Assets of the pages: asked for once, then answered from memory."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from fastapi import FastAPI, Request
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import Response, StreamingResponse
from starlette.testclient import TestClient
from starlette.types import Message, Receive, Scope, Send

from app.dashboard.assets import AssetsMiddleware

STYLE = "/_nicegui/3.18.0/static/style.css"
TEXT = "a { color: red; }\n" * 1000


@dataclass
class Served:
    """An application that counts what reaches it."""

    reached: list[str] = field(default_factory=list)

    def client(self, *, compressed: bool = False) -> TestClient:
        app = FastAPI()

        @app.api_route("/{path:path}", methods=["GET", "POST"])
        def any_path(path: str, request: Request) -> Response:
            self.reached.append(f"{request.method} /{path}")
            status = 404 if "missing" in path else 200
            return Response(TEXT, status, {"cache-control": "immutable"}, "text/css")

        app.add_middleware(GZipMiddleware, minimum_size=10)
        app.add_middleware(AssetsMiddleware, compressed=compressed)
        return TestClient(app, base_url="http://localhost:8642")


@pytest.mark.parametrize("compressed", [False, True])
def test_an_asset_reaches_the_application_once(compressed: bool) -> None:
    served = Served()
    client = served.client(compressed=compressed)

    answers = [client.get(STYLE, headers={"accept-encoding": "gzip, br"}) for _ in range(3)]

    assert served.reached == [f"GET {STYLE}"]
    assert {answer.text for answer in answers} == {TEXT}
    assert {answer.headers["cache-control"] for answer in answers} == {"immutable"}
    encodings = {answer.headers.get("content-encoding") for answer in answers}
    assert encodings == {"gzip" if compressed else None}
    assert all(int(answer.headers["content-length"]) <= len(TEXT) for answer in answers)


def test_a_browser_that_takes_no_gzip_gets_none() -> None:
    client = Served().client(compressed=True)
    client.get(STYLE, headers={"accept-encoding": "gzip"})

    plain = client.get(STYLE, headers={"accept-encoding": "identity"})

    assert "content-encoding" not in plain.headers
    assert plain.text == TEXT


def test_a_part_that_is_asked_for_first_does_not_become_the_whole() -> None:
    client = Served().client()

    client.get(STYLE, headers={"range": "bytes=0-9", "if-none-match": '"x"'})

    assert client.get(STYLE).text == TEXT


def test_a_browser_that_leaves_does_not_cut_the_answer_of_the_next() -> None:
    async def parts() -> AsyncIterator[str]:
        for _ in range(4):
            await asyncio.sleep(0.01)
            yield TEXT

    async def leave() -> Message:
        return {"type": "http.disconnect"}

    async def lose(message: Message) -> None:
        pass

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await StreamingResponse(parts(), media_type="text/css")(scope, receive, send)

    kept = AssetsMiddleware(application, compressed=False)
    scope = {"type": "http", "method": "GET", "path": STYLE, "headers": [], "asgi": {}}

    asyncio.run(kept(scope, leave, lose))

    assert TestClient(kept).get(STYLE).text == TEXT * 4


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/_nicegui/3.18.0/static/missing.css"),
        ("GET", "/_nicegui/3.18.0/dynamic_resources/codehilite.css"),
        ("GET", "/run/1"),
        ("GET", "/_nicegui/3.18.0/static/"),
        ("POST", STYLE),
    ],
)
def test_what_is_no_asset_is_asked_for_each_time(method: str, path: str) -> None:
    served = Served()
    client = served.client()

    for _ in range(2):
        client.request(method, path)

    assert served.reached == [f"{method} {path}"] * 2
