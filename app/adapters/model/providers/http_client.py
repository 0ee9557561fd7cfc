"""The clients of one endpoint, within one event loop: the `openai` package over aiohttp."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Mapping
from types import MappingProxyType

import certifi
import httpx2
from openai import (
    APIResponseValidationError,
    APIStatusError,
    AsyncOpenAI,
    AsyncStream,
    DefaultAioHttpClient,
    Omit,
)
from openai._types import RequestOptions

from app.adapters.proxies import Proxy, proxy_of
from app.ports.protocols import Misconfigured

# Shorter than the 5 s after which uvicorn, and with it vLLM, closes an idle connection.
_KEEP_ALIVE_SECONDS = 4.0
_CONNECT_SECONDS = 60.0
_DOCUMENT_SECONDS = 5.0
# An endpoint that does not end its answer in this time loses the connection.
_END_SECONDS = 0.1
_AGENT = "evoqueue"
_EVENTS = "text/event-stream"


def http_client(base_url: str) -> httpx2.AsyncClient:
    """Returns a client for one endpoint; called on the loop, closed by the caller.

    It has no limit of connections, of time or of requests: gates and attempts have these.  It takes
    the proxies of the environment.
    """
    proxy = usable_proxy(base_url)
    # A proxy reads them in the request itself where there is no tunnel through it.
    credentials = proxy.credentials if proxy and base_url.startswith("http:") else {}
    return DefaultAioHttpClient(
        limits=httpx2.Limits(max_connections=0, keepalive_expiry=_KEEP_ALIVE_SECONDS),
        timeout=httpx2.Timeout(None, connect=_CONNECT_SECONDS),
        proxy=None if proxy is None else _httpx_proxy(proxy),
        trust_env=False,
        verify=_certificates(),
        headers={"User-Agent": _AGENT, **credentials},
    )


def openai_client(base_url: str, api_key: str) -> AsyncOpenAI:
    """Returns the client of one endpoint and key; called on the loop, closed by the caller.

    It repeats nothing itself, and takes nothing from the environment's variables of the package.
    """
    client = AsyncOpenAI(
        api_key=api_key,
        admin_api_key="",
        organization="",
        project="",
        webhook_secret="",
        base_url=base_url,
        max_retries=0,
        timeout=httpx2.Timeout(None, connect=_CONNECT_SECONDS),
        default_headers={"User-Agent": _AGENT},
        http_client=http_client(base_url),
    )
    # An empty value would be sent as one.
    client.organization = client.project = client.admin_api_key = None
    return client


async def post(
    client: AsyncOpenAI,
    path: str,
    body: Mapping[str, object],
    headers: Mapping[str, str] = MappingProxyType({}),
) -> httpx2.Response:
    """Sends a JSON object; returns the answer with its head read, which the caller closes.

    The body is left to the caller, because the package makes an object of each event of a stream,
    which takes several times as long as reading its few fields.

    Args:
      client: Of the endpoint.
      path: After the endpoint's address.
      body: The JSON object.
      headers: With the key, in place of `Authorization`; empty: the client's.

    Raises:
      openai.APIStatusError: The endpoint refused it.
      openai.APIConnectionError: There is no connection, or it broke.
    """
    options: RequestOptions = {}
    if headers or not client.api_key:
        options["headers"] = {"Authorization": Omit(), **headers}
    # The package would read a whole answer otherwise.
    unread: bool = True
    answer = await client.post(
        path,
        cast_to=httpx2.Response,
        body=body,
        options=options,
        stream=unread,
        stream_cls=AsyncStream[object],
    )
    assert isinstance(answer, httpx2.Response)
    return answer


def is_stream(answer: httpx2.Response) -> bool:
    """Returns whether an answer is a stream of events, and not one JSON value."""
    return _EVENTS in answer.headers.get("content-type", "")


async def read_to_end(blocks: AsyncIterator[bytes]) -> None:
    """Reads what is left of a complete answer: its connection can be used again only then."""
    with contextlib.suppress(TimeoutError, httpx2.HTTPError):
        async with asyncio.timeout(_END_SECONDS):
            async for _ in blocks:
                pass


async def get_document(client: AsyncOpenAI, url: str) -> object:
    """Returns the JSON value at an address of the endpoint's; None where it answers with none.

    Raises:
      openai.APIConnectionError: There is no connection, or it broke.
    """
    options: RequestOptions = {"timeout": _DOCUMENT_SECONDS}
    if not client.api_key:
        options["headers"] = {"Authorization": Omit()}
    try:
        return await client.get(url, cast_to=object, options=options)
    except (APIStatusError, APIResponseValidationError, ValueError):
        return None


def text_of(answer: httpx2.Response) -> str:
    """Returns the body of an answer as text; "" for one that was streamed."""
    try:
        return answer.content.decode("utf-8", "replace")
    except httpx2.ResponseNotRead:
        return ""


def usable_proxy(url: str) -> Proxy | None:
    """Returns the proxy for an address; None for a direct connection.

    Raises:
      Misconfigured: It is a proxy of another protocol than HTTP.
    """
    proxy = proxy_of(url)
    if proxy is not None and proxy.scheme not in ("http", "https"):
        raise Misconfigured(
            f"the environment names a proxy of the protocol {proxy.scheme!r} for {url}, and a "
            f"model is asked through http and https proxies only: change {proxy.variable}, or add "
            "the host to NO_PROXY"
        )
    return proxy


def _httpx_proxy(proxy: Proxy) -> httpx2.Proxy:
    """Returns a proxy with its credentials as a header: aiohttp gives up their other form."""
    return httpx2.Proxy(proxy.address, headers=proxy.credentials)


def _certificates() -> ssl.SSLContext:
    """Returns the authorities that may vouch for an endpoint: the system's and Mozilla's.

    Some builds of Python do not find the system's.
    """
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context
