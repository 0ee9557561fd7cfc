"""A simulated model in a separate process: `evoq mock-llm`."""

import json
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from typing import Any

from tests.integration.forked import Command


@dataclass(frozen=True)
class Fetched:
    """An answer with any status."""

    status: int
    headers: Message
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.content)


def fetch(url: str, body: bytes | None = None, timeout: float = 30.0) -> Fetched:
    """Gets, or posts where there is a body."""
    try:
        with urllib.request.urlopen(url, body, timeout) as answer:
            return Fetched(answer.status, answer.headers, answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return Fetched(error.code, error.headers, error.read())


def until(true: Callable[[], bool], what: str, seconds: float = 120.0) -> None:
    """Waits until `true()` holds; fails the test with `what` when it does not in time."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@dataclass(frozen=True)
class Mock:
    """A running simulation."""

    base_url: str
    first_line: str

    def gauge(self, name: str) -> float:
        """Returns a sample of /metrics, summed over its labels."""
        text = fetch(self.base_url.removesuffix("/v1") + "/metrics").text
        samples = [line for line in text.splitlines() if line.startswith(name + "{")]
        assert samples, f"{name} is not in\n{text}"
        return sum(float(line.split()[-1]) for line in samples)


@contextmanager
def mock_llm(*options: object) -> Iterator[Mock]:
    """Runs a simulation on a free port during the block."""
    import mock_llm.server  # noqa: F401  here, or each fork would import it

    notes, noting = os.pipe()
    process = Command(["mock-llm", "--port", "0", "--json", *options], errors=noting)
    with open(notes) as note:
        try:
            yield Mock(process.document()["base_url"], note.readline())
        finally:
            process.send_signal(signal.SIGTERM)
            note.read()
            process.rest(60)
    assert process.poll() == 0
