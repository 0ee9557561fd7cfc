"""Who may read and who may change: checks of host, origin and token before any route.

* *Host*: a page of another site that points its own name at this machine (DNS rebinding) sends that
  name.  Only known names are served; an address of digits cannot be rebound.
* *Origin*: a browser names the site whose page makes a request.  WebSockets and everything that is
  not a plain read must come from our own pages, or from a program, which names no origin.
* *Token*: whatever changes a run needs it; where reading is protected, everything does.
"""

import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

AUTHORISED = "evoq.authorised"
"""Key of a scope: whether the request has the token."""
HEALTH = "/api/health"
"""Says that the dashboard answers, to whoever supervises it, without the token."""
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_LIVE = "/_nicegui_ws"
"""Where pages are kept live, by a WebSocket or by polling: a GET there is more than a read, and
NiceGUI lets pages of every origin see the answer."""
_POLICY_VIOLATION = 1008
_HEADERS = {
    "content-security-policy": "default-src 'self' 'unsafe-inline' 'unsafe-eval' data:; "
    "connect-src 'self' ws: wss:; frame-ancestors 'none'; form-action 'self'; base-uri 'self'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""Vue compiles templates in the browser, hence `unsafe-eval`; `connect-src` names WebSockets for
browsers that do not count them as 'self'."""


@dataclass(frozen=True, slots=True)
class Access:
    """The rules of one dashboard.

    Attributes:
      token: What a change must present.
      hosts: Names under which it is reached, lower case, beside those of the loopback interface.
      protected: Whether reading needs the token, too.
    """

    token: str
    hosts: frozenset[str] = frozenset()
    protected: bool = False

    def knows(self, host: str) -> bool:
        """Returns whether a Host header names this dashboard."""
        name = _name(host)
        return name in LOOPBACK or name in self.hosts or _is_address(name)

    def holds(self, given: str | None) -> bool:
        """Returns whether this is the token; takes equally long for every wrong one."""
        return given is not None and hmac.compare_digest(given.encode(), self.token.encode())


def loopback(host: str) -> bool:
    """Returns whether a server bound to `host` is reached from this machine alone."""
    return host in LOOPBACK or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


class AccessMiddleware:
    """The outermost layer of the application: refuses, or marks a request and lets it through."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        """Wraps an application."""
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        refusal = self._examine(scope)
        if refusal is None:
            await self._app(scope, receive, _with_headers(send))
        elif scope["type"] == "websocket":
            await WebSocketClose(_POLICY_VIOLATION, "refused")(scope, receive, send)
        else:
            await refusal(scope, receive, _with_headers(send))

    def _examine(self, scope: Scope) -> Response | None:
        """Returns the answer to a request that goes no further; None lets it through."""
        headers, query = (
            Headers(scope=scope),
            dict(parse_qsl(scope["query_string"].decode("latin-1"))),
        )
        host = headers.get("host", "")
        if not self._access.knows(host):
            return _refuse(
                421,
                f"This dashboard does not know the name {_name(host)!r}. Start it with "
                f"--allow-host NAME, or set EVOQ_DASHBOARD_HOSTS.",
            )
        plain = scope["type"] == "http" and scope["method"] in _READS
        origin = headers.get("origin")
        read = plain and not scope["path"].startswith(_LIVE)
        if not read and origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return _refuse(403, "Requests from pages of other sites are refused.")
        cookie = _cookie_name(scope)
        given = (
            _bearer(headers)
            or query.get("token")
            or cookie_parser(headers.get("cookie", "")).get(cookie)
        )
        authorised = self._access.holds(given)
        scope[AUTHORISED] = authorised
        to_api = scope["path"].startswith("/api") or scope["path"] == "/metrics"
        changes = to_api and not plain and scope["type"] == "http"
        hidden = self._access.protected and scope["path"] != HEALTH
        if not authorised and (hidden or changes):
            return _refuse(
                401,
                "This needs the token: open the address that `evoq dashboard` printed, or send "
                "the header `Authorization: Bearer TOKEN`.",
            )
        if plain and not to_api and "token" in query:
            return self._signed_in(scope, query, cookie) if authorised else _refuse(401, _WRONG)
        return None

    def _signed_in(self, scope: Scope, query: Mapping[str, str], cookie: str) -> Response:
        """Returns a redirection to the same page with the token in a cookie, not in the address."""
        rest = urlencode({name: value for name, value in query.items() if name != "token"})
        path = "/" + scope["path"].lstrip("/\\")
        response = RedirectResponse(f"{path}?{rest}" if rest else path, 303)
        response.set_cookie(
            cookie,
            self._access.token,
            httponly=True,
            samesite="strict",
            secure=scope["scheme"] == "https",
        )
        return response


_WRONG = "The token in this address is not the one of this dashboard."


def _refuse(status: int, text: str) -> Response:
    return PlainTextResponse(
        f"{text}\n", status, {"www-authenticate": "Bearer"} if status == 401 else None
    )


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending


def _bearer(headers: Headers) -> str | None:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _cookie_name(scope: Scope) -> str:
    """Returns a name of its own for each port: a browser sends cookies to every port of a host."""
    return f"evoq_{(scope.get('server') or ('', 0))[1]}"


def _name(host: str) -> str:
    """Returns the name in a Host header, lower case, without port and brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
