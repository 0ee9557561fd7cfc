"""The event loop of a process that asks models: its connections and gates.

Callers are threads, which hand a coroutine over and wait.  The loop runs on a thread of its own,
which the first caller starts, and which ends when the loop is closed or the process ends.
"""

import asyncio
import threading
import weakref
from collections.abc import Callable, Coroutine, Hashable
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from openai import AsyncOpenAI

from app.adapters.model.congestion.gate import FixedGate, RequestGate
from app.adapters.model.providers.http_client import openai_client
from app.adapters.model.providers.paced_loop import PacedLoop
from app.adapters.model.providers.spec import ModelSpec
from app.ports.protocols import NEVER, Stop, Stopped, Unavailable

_Result = TypeVar("_Result")

OpenGate = Callable[[ModelSpec], RequestGate]
"""Makes the gate of an endpoint; called on the loop, once for each `ModelSpec.gate_key`."""

CloseGates = Callable[[], Coroutine[Any, Any, None]]
"""Closes what gates hold; called on the loop, before it ends."""

_DELAY_SECONDS = 30.0
"""Extra wait for a result, because a busy loop may be late."""
_CLOSE_SECONDS = 30.0
"""Longest wait for the loop to stop, which it does at once unless the machine is overloaded."""


class ModelLoop:
    """Runs coroutines for threads, with a client for each endpoint and key and a gate for each."""

    def __init__(
        self,
        open_gate: OpenGate = lambda spec: FixedGate(spec.max_in_flight),
        close_gates: CloseGates | None = None,
    ) -> None:
        """Starts nothing.

        Args:
          open_gate: Makes the gate of an endpoint.
          close_gates: Closes what the gates hold.
        """
        self._open_gate = open_gate
        self._close_gates = close_gates
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._clients: dict[tuple[str, str], AsyncOpenAI] = {}
        self._gates: dict[Hashable, RequestGate] = {}
        self._end: weakref.finalize[Any, Any] | None = None

    def run(
        self, work: Coroutine[Any, Any, _Result], seconds: float | None, stop: Stop = NEVER
    ) -> _Result:
        """Runs `work` on the loop and returns its result; called from any other thread.

        Args:
          work: Limits itself to `seconds`, where there are any.
          seconds: Time after which, with an allowance, the work is cancelled; None: never.
          stop: Cancels the work, which may raise `Stopped` with what it has.

        Raises:
          Stopped: The work was asked to stop.
          Unavailable: The work did not end in time.
        """
        future = asyncio.run_coroutine_threadsafe(_stoppable(work, stop), self._started())
        try:
            return future.result(None if seconds is None else seconds + _DELAY_SECONDS)
        except CancelledError as error:
            raise Unavailable("the connections to the models were closed meanwhile") from error
        except TimeoutError as error:
            if future.done():
                raise
            raise Unavailable(f"no end of a request within {seconds:g} s") from error
        finally:
            future.cancel()

    def client(self, spec: ModelSpec) -> AsyncOpenAI:
        """Returns the client of a model's endpoint; called on the loop."""
        key = spec.base_url, spec.api_key
        if key not in self._clients:
            self._clients[key] = openai_client(spec.base_url, spec.api_key)
        return self._clients[key]

    def gate(self, spec: ModelSpec) -> RequestGate:
        """Returns the gate of a model's endpoint; models of one `gate_key` share it."""
        if spec.gate_key not in self._gates:
            self._gates[spec.gate_key] = self._open_gate(spec)
        return self._gates[spec.gate_key]

    def places(self, spec: ModelSpec) -> int:
        """Returns how many requests the gate of a model's endpoint admits at once now."""
        gate = self._gates.get(spec.gate_key)
        return spec.opening if gate is None else gate.limit

    def close(self) -> None:
        """Ends the loop and its connections.  Idempotent; the next caller starts a new loop."""
        with self._starting:
            if self._end is not None:
                self._end()
            self._loop = self._end = None
            self._gates.clear()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None:
                self._loop = PacedLoop()
                thread = threading.Thread(target=self._loop.run_forever, name="models", daemon=True)
                thread.start()
                self._end = weakref.finalize(
                    self, _end, self._loop, thread, self._clients, self._close_gates
                )
            return self._loop


async def _stoppable(work: Coroutine[Any, Any, _Result], stop: Stop) -> _Result:
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None

    def drop() -> None:
        loop.call_soon_threadsafe(task.cancel)

    try:
        with stop.then(drop):
            return await work
    except asyncio.CancelledError:
        if stop.asked:
            raise Stopped("the requests were dropped") from None
        raise
    except Stopped as error:
        if stop.asked:
            raise
        raise Unavailable(
            "the connections to the models were closed meanwhile",
            unanswered=error.unanswered,
            answered=error.answered,
        ) from error


def _end(
    loop: asyncio.AbstractEventLoop,
    thread: threading.Thread,
    clients: dict[tuple[str, str], AsyncOpenAI],
    close_gates: CloseGates | None,
) -> None:
    async def close() -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for client in clients.values():
            await client.close()
        clients.clear()
        if close_gates is not None:
            await close_gates()

    asyncio.run_coroutine_threadsafe(close(), loop).result(_CLOSE_SECONDS)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(_CLOSE_SECONDS)
    loop.close()
