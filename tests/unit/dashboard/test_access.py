"""Hosts, origins and tokens: what reaches the application, and what does not."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from fastapi import FastAPI, Request, WebSocket
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from app.dashboard.access import AUTHORISED, Access, AccessMiddleware, loopback

TOKEN = "correct-token"
OWN = {"host": "localhost:8642"}
BEARER = {"authorization": f"Bearer {TOKEN}"}


@dataclass
class Served:
    """An application behind the gate; it records what reached it."""

    access: Access
    reached: list[str] = field(default_factory=list)

    def client(self) -> TestClient:
        app = FastAPI()

        @app.api_route("/{path:path}", methods=["GET", "POST"])
        def any_path(path: str, request: Request) -> dict[str, bool]:
            self.reached.append(f"{request.method} /{path}")
            return {"authorised": request.scope[AUTHORISED]}

        @app.websocket("/ws")
        async def socket(websocket: WebSocket) -> None:
            await websocket.accept()
            self.reached.append("WS")
            await websocket.close()

        app.add_middleware(AccessMiddleware, access=self.access)
        return TestClient(app, base_url="http://localhost:8642", follow_redirects=False)


@pytest.fixture
def open_() -> Served:
    return Served(Access(TOKEN))


@pytest.fixture
def protected() -> Served:
    return Served(Access(TOKEN, frozenset({"evoq.example.org"}), protected=True))


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "", "127.0.0.1.nip.io"])
def test_a_name_that_is_not_ours_is_refused_so_that_it_cannot_be_rebound(open_: Served, host: str):
    assert open_.client().get("/api/runs", headers={"host": host}).status_code == 421
    assert open_.reached == []


@pytest.mark.parametrize("host", ["localhost:8642", "127.0.0.1:9", "[::1]:8642", "10.1.2.3"])
def test_loopback_names_and_plain_addresses_are_served(open_: Served, host: str):
    assert open_.client().get("/api/runs", headers={"host": host}).status_code == 200


def test_a_name_that_was_allowed_is_served(protected: Served):
    headers = {"host": "EVOQ.example.org:443", **BEARER}

    assert protected.client().get("/api/runs", headers=headers).status_code == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:1"])
def test_a_post_from_a_page_of_another_origin_is_refused_even_with_the_token(
    open_: Served, origin: str
):
    answer = open_.client().post("/api/runs/1/pause", headers={"origin": origin, **BEARER})

    assert answer.status_code == 403
    assert open_.reached == []


@pytest.mark.parametrize(
    "headers", [{}, {"authorization": "Bearer wrong"}, {"cookie": "evoq_8642=x"}]
)
def test_nothing_can_be_changed_without_the_token(open_: Served, headers: Mapping[str, str]):
    assert open_.client().post("/api/runs/1/cancel", headers=headers).status_code == 401
    assert open_.reached == []


def test_a_program_with_the_token_may_change(open_: Served):
    answer = open_.client().post("/api/runs/1/cancel", headers=BEARER)

    assert answer.json() == {"authorised": True}


def test_reading_needs_no_token_unless_it_is_protected(open_: Served, protected: Served):
    assert open_.client().get("/").json() == {"authorised": False}
    for path in ("/", "/api/runs", "/metrics", "/_nicegui/x.js"):
        assert protected.client().get(path).status_code == 401
    assert protected.reached == []


def test_the_token_of_the_printed_address_becomes_a_cookie_that_scripts_cannot_read(
    protected: Served,
):
    client = protected.client()

    first = client.get(f"/run/7?token={TOKEN}&tab=curve")

    assert (first.status_code, first.headers["location"]) == (303, "/run/7?tab=curve")
    cookie = first.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert client.get("/run/7?tab=curve").json() == {"authorised": True}


def test_the_redirection_leads_to_no_other_host(open_: Served):
    answer = open_.client().get(f"//evil.example/x?token={TOKEN}")

    assert answer.headers.get("location", "/").startswith("/")
    assert not answer.headers.get("location", "/").startswith("//")


def test_a_wrong_token_in_an_address_is_refused(open_: Served):
    assert open_.client().get("/?token=guess").status_code == 401


def socket_opens(served: Served, headers: Mapping[str, str], path: str = "/ws") -> bool:
    try:
        with served.client().websocket_connect(path, headers={**OWN, **headers}):
            return True
    except WebSocketDisconnect:
        return False


def test_the_connection_of_a_page_is_not_polled_from_another_origin(open_: Served):
    address = "/_nicegui_ws/socket.io/?EIO=4&transport=polling"
    foreign = open_.client().get(address, headers={"origin": "http://evil.example"})
    own = open_.client().get(address, headers={"origin": "http://localhost:8642"})
    assert (foreign.status_code, own.status_code) == (403, 200)
    assert open_.reached == ["GET /_nicegui_ws/socket.io/"]


def test_a_web_socket_from_another_origin_is_refused(open_: Served):
    assert not socket_opens(open_, {"origin": "http://evil.example"})
    assert not socket_opens(open_, {"origin": "http://localhost:8643"})
    assert open_.reached == []


def test_a_web_socket_from_our_own_page_or_a_program_opens(open_: Served):
    assert socket_opens(open_, {"origin": "http://localhost:8642"})
    assert socket_opens(open_, {})


def test_a_web_socket_of_a_protected_dashboard_needs_the_token(protected: Served):
    assert not socket_opens(protected, {})
    assert socket_opens(protected, BEARER)
    assert socket_opens(protected, {}, f"/ws?token={TOKEN}")


def test_no_page_of_another_site_may_frame_ours_and_nothing_is_loaded_from_elsewhere(
    open_: Served,
):
    headers = open_.client().get("/").headers

    assert headers["x-frame-options"] == "DENY"
    assert "default-src 'self'" in headers["content-security-policy"]


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False)],
)
def test_only_loopback_addresses_are_this_machine_alone(host: str, expected: bool):
    assert loopback(host) is expected
