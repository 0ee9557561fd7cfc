"""The queue inside an engine, read from its `/metrics` by vLLM's names."""

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"


@dataclass(frozen=True, slots=True)
class EngineQueue:
    """Requests that an engine processes, and those it has accepted and not begun."""

    running: int
    waiting: int


def parse(metrics: str) -> EngineQueue | None:
    """Returns the queue in a Prometheus text, over all engines; None where the text has none."""
    lines = metrics.splitlines()
    running, waiting = _sum(lines, RUNNING), _sum(lines, WAITING)
    if running is None or waiting is None:
        return None
    return EngineQueue(int(running), int(waiting))


def metrics_url(base_url: str) -> str:
    """Returns the address of the metrics of a server, from that of its `…/v1` endpoint."""
    parts = urlsplit(base_url)
    path = parts.path.rstrip("/").removesuffix("/v1")
    return urlunsplit((parts.scheme, parts.netloc, f"{path}/metrics", "", ""))


def _sum(lines: Iterable[str], name: str) -> float | None:
    values = [line for line in lines if line.startswith((f"{name} ", f"{name}{{"))]
    try:
        return sum(float(line.rpartition(" ")[2]) for line in values) if values else None
    except ValueError:
        return None
