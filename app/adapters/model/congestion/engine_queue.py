"""The queue inside an engine, as its `/metrics` tells it: vLLM's gauges, by their names there."""

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

import httpx2

RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Queue:
    """Requests an engine works at, and those it has accepted and not begun, of everybody."""

    running: int
    waiting: int


def read(text: str) -> Queue | None:
    """Returns the queue in a Prometheus text, all engines together; None where it tells none."""
    running, waiting = _sum(text.splitlines(), RUNNING), _sum(text.splitlines(), WAITING)
    if running is None or waiting is None:
        return None
    return Queue(int(running), int(waiting))


def address(base_url: str) -> str:
    """Returns where the server of a `…/v1` endpoint has its metrics."""
    parts = urlsplit(base_url)
    path = parts.path.rstrip("/").removesuffix("/v1")
    return urlunsplit((parts.scheme, parts.netloc, f"{path}/metrics", "", ""))


class EngineQueueReader:
    """Reads one endpoint's queue; within one event loop."""

    def __init__(self, base_url: str) -> None:
        self._address = address(base_url)
        self._client = httpx2.AsyncClient(timeout=_SECONDS)

    async def look(self) -> Queue | None:
        """Returns the queue; None where the endpoint has no such metrics or does not answer."""
        try:
            response = await self._client.get(self._address)
        except (httpx2.HTTPError, OSError):
            return None
        return read(response.text) if response.status_code == 200 else None

    async def close(self) -> None:
        await self._client.aclose()


def _sum(lines: Iterable[str], name: str) -> float | None:
    found = [line for line in lines if line.startswith((f"{name} ", f"{name}{{"))]
    try:
        return sum(float(line.rpartition(" ")[2]) for line in found) if found else None
    except ValueError:
        return None
