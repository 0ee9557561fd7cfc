"""The HTTP connections to one endpoint, within one event loop."""

import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import certifi

from app.adapters.model.providers.proxies import environment_proxy

# Shorter than the 5 s after which uvicorn, and with it vLLM, closes an idle connection.
_KEEP_ALIVE_SECONDS = 4.0


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """The answer to one request, read to its end.

    Attributes:
      method: Of the request that was answered; a redirection can turn a POST into a GET.
      url: Of the request that was answered.
      headers: Names in any case.
    """

    status: int
    method: str
    url: str
    headers: Mapping[str, str]
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode("utf-8", "replace")


def http_session(base_url: str, headers: Mapping[str, str] | None = None) -> aiohttp.ClientSession:
    """Returns a session for one endpoint; called on the loop, closed by the caller.

    It has no limit of connections, of time or of requests: gates and attempts have these.  It takes
    the proxies of the environment, for which a session of aiohttp would use two threads a request.
    """
    proxy = environment_proxy(base_url)
    connector = aiohttp.TCPConnector(
        limit=0, keepalive_timeout=_KEEP_ALIVE_SECONDS, ssl=_certificates(base_url)
    )
    return aiohttp.ClientSession(
        connector=connector,
        headers={"Accept": "application/json", "User-Agent": "evoqueue", **(headers or {})},
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(),
        proxy=proxy.url if proxy else None,
    )


async def post_json(
    session: aiohttp.ClientSession, url: str, body: Mapping[str, Any]
) -> HttpResponse:
    """Sends a JSON object and returns the whole answer, whatever its status.

    Raises:
      aiohttp.ClientError: There is no connection, or it broke before the end of the answer.
    """
    data = json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
    kind = {"Content-Type": "application/json"}
    async with session.post(url, data=data, headers=kind) as response:
        content = await response.read()
    return HttpResponse(
        response.status, response.method, str(response.url), response.headers, content
    )


def _certificates(url: str) -> ssl.SSLContext | bool:
    """Returns the authorities that may vouch for an endpoint: the system's and Mozilla's.

    Some builds of Python do not find the system's.
    """
    if not url.startswith("https:"):
        return True
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context
