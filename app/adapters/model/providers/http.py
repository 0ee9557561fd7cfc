"""The one event loop of a process that asks models over HTTP, its connections and its gates.

Callers are threads: they hand a conversation over and wait.  A thread of its own runs the loop, is
started by the first caller and ends with the exchange or with the process.
"""

import asyncio
import threading
import weakref
from collections.abc import Callable, Coroutine, Hashable
from concurrent.futures import CancelledError
from typing import Any, TypeVar

import httpx2
import openai

from app.adapters.model.congestion.gate import FixedGate, Gate
from app.adapters.model.providers.chat import ModelSpec
from app.ports.protocols import Unavailable

_Answer = TypeVar("_Answer")

OpenGate = Callable[[ModelSpec], Gate]
"""Makes the gate of an endpoint; called on the loop, once for each `ModelSpec.gate_key`."""

CloseGates = Callable[[], Coroutine[Any, Any, None]]
"""Closes what gates hold; called on the loop, before it ends."""

_LATE_SECONDS = 30.0  # what a loop that is very busy may be behind
_CLOSE_SECONDS = 30.0  # as long: it is stopped at once unless the machine is crowded


class Exchange:
    """Runs coroutines for threads; holds one client an endpoint and key, one gate an endpoint."""

    def __init__(
        self,
        open_gate: OpenGate = lambda spec: FixedGate(spec.max_in_flight),
        close_gates: CloseGates | None = None,
    ) -> None:
        """Prepares; starts nothing.

        Args:
          open_gate: Makes the gate of an endpoint.
          close_gates: Closes what the gates hold beside.
        """
        self._open_gate = open_gate
        self._close_gates = close_gates
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._clients: dict[tuple[str, str], openai.AsyncOpenAI] = {}
        self._gates: dict[Hashable, Gate] = {}
        self._end: weakref.finalize[Any, Any] | None = None

    def run(self, work: Coroutine[Any, Any, _Answer], seconds: float) -> _Answer:
        """Runs `work` on the loop and returns what it returns; called from any other thread.

        Args:
          work: Bounds itself by `seconds`.
          seconds: After which, and a while, it counts as lost and is cancelled.

        Raises:
          Unavailable: It did not end in time.
        """
        handed = asyncio.run_coroutine_threadsafe(work, self._started())
        try:
            return handed.result(seconds + _LATE_SECONDS)
        except CancelledError as error:
            raise Unavailable("the connections to the models were closed meanwhile") from error
        except TimeoutError as error:
            if handed.done():
                raise
            raise Unavailable(f"no end of a request within {seconds:g} s") from error
        finally:
            handed.cancel()

    def client(self, spec: ModelSpec) -> openai.AsyncOpenAI:
        """Returns the client of an endpoint; its own retries are off: two layers multiply."""
        key = spec.base_url, spec.api_key
        if key not in self._clients:
            # Semaphore are the gate's to give, so the pool must hold a connection for each of them.
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
            self._clients[key] = openai.AsyncOpenAI(
                base_url=spec.base_url,
                api_key=spec.api_key or "none",  # a local server asks for none, the client does
                max_retries=0,
                timeout=None,  # each attempt is bounded as a whole
                http_client=openai.DefaultAioHttpClient(limits=limits, timeout=None),
            )
        return self._clients[key]

    def gate(self, spec: ModelSpec) -> Gate:
        """Returns what stands before a model's endpoint; models of one `gate_key` share it."""
        if spec.gate_key not in self._gates:
            self._gates[spec.gate_key] = self._open_gate(spec)
        return self._gates[spec.gate_key]

    def close(self) -> None:
        """Ends the loop and its connections.  Idempotent; the next caller starts anew."""
        with self._starting:
            if self._end is not None:
                self._end()
            self._loop = self._end = None
            self._gates.clear()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                thread = threading.Thread(target=self._loop.run_forever, name="models", daemon=True)
                thread.start()
                self._end = weakref.finalize(
                    self, _ended, self._loop, thread, self._clients, self._close_gates
                )
            return self._loop


def _ended(
    loop: asyncio.AbstractEventLoop,
    thread: threading.Thread,
    clients: dict[tuple[str, str], openai.AsyncOpenAI],
    close_gates: CloseGates | None,
) -> None:
    async def leave() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for one in others:
            one.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for client in clients.values():
            await client.close()
        clients.clear()
        if close_gates is not None:
            await close_gates()

    asyncio.run_coroutine_threadsafe(leave(), loop).result(_CLOSE_SECONDS)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(_CLOSE_SECONDS)
    loop.close()
