"""vLLM's engine inside this process, on a thread and a loop of its own; rebuilt when it dies.

vLLM is imported, by `vllm_library`, when the engine is loaded: this module does without it.
"""

import asyncio
import importlib
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Protocol

from prometheus_client import start_http_server

from app.adapters.model.congestion.engine_queue import EngineQueue
from app.adapters.model.providers.vllm_orphans import Orphans
from app.ports.protocols import Misconfigured, Unavailable

BEGINS = {"add_generation_prompt": True}
"""Arguments of a chat template with which the model begins its reply."""
OLDEST = (0, 32)
"""Oldest version of vLLM whose renderer, exceptions and sampling parameters this module uses."""
_PROGRESS_SECONDS = 10.0
_CLOSE_SECONDS = 30.0
_MOST_REBUILDS = 3
"""Most rebuilds within `_REBUILDS_SECONDS`; more of them are not bad luck."""
_REBUILDS_SECONDS = 3600.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class VllmLaunch:
    """What is loaded, and how.

    Attributes:
      model: A name on the Hugging Face hub, or a folder.
      served_name: Name by which runs ask for the model.
      arguments: Those of `vllm serve`, as one line: `--max-model-len 8192 --dtype auto`.
      metrics_port: Port of vLLM's own /metrics; None: they are not served.
    """

    model: str
    served_name: str
    arguments: str = ""
    metrics_port: int | None = None


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One request to the engine.

    Attributes:
      messages: As of the chat protocol.
      sampling: Fields of vLLM's SamplingParams.
      template: Arguments of the model's chat template.
    """

    messages: Sequence[Mapping[str, str]]
    sampling: Mapping[str, object] = field(default_factory=dict)
    template: Mapping[str, object] = field(default_factory=lambda: BEGINS)


@dataclass(frozen=True, slots=True)
class GeneratedText:
    """One text, and how it ended: `stop`, `length` or another."""

    text: str
    finish: str
    tokens: int


@dataclass(frozen=True, slots=True)
class GeneratedTexts:
    """The answer to one request, its choices in order."""

    choices: tuple[GeneratedText, ...]
    prompt_tokens: int
    cached_tokens: int


class LoadedModel(Protocol):
    """A model that vLLM has loaded; see `vllm_library`."""

    @property
    def errored(self) -> bool:
        """Whether its core has died."""
        ...

    @property
    def load(self) -> str:
        """Its load, in words."""
        ...

    @property
    def template(self) -> str:
        """Its chat template; "" without one."""
        ...

    def queue(self) -> EngineQueue: ...

    async def generate(self, request: EngineRequest) -> GeneratedTexts:
        """Generates the texts of a request.

        Raises:
          Misconfigured: The request is refused, and would be again.
          Unavailable: The core died over it, or has a fault of its own.
        """
        ...

    def shutdown(self) -> None: ...


class VllmEngine:
    """Loads a model once and generates for any thread; one for a process."""

    def __init__(self, launch: VllmLaunch, lost: Callable[[str], None] = log.error) -> None:
        """Loads nothing yet.

        Args:
          launch: What `start` loads.
          lost: Called with the reason once the engine is dead for good: the process should end.
        """
        self.launch = launch
        self._lost = lost
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._engine: LoadedModel | None = None
        self._building: asyncio.Lock | None = None
        self._orphans = Orphans()
        self._rebuilt: list[float] = []
        self._template = ""
        self._given_up = ""

    def serves(self, name: str) -> bool:
        """Returns whether runs that ask for this model are answered by it."""
        return name in (self.launch.served_name, self.launch.model)

    def start(self, progress: Callable[[str], None] = log.info) -> None:
        """Loads the model; takes from seconds to many minutes.  Idempotent.

        Args:
          progress: Receives a line every ten seconds, and one when the model is ready.

        Raises:
          Misconfigured: vLLM is not installed, or the model cannot be loaded.
        """
        with self._starting:
            if self._loop is not None:
                return
            began, name = time.monotonic(), self.launch.model
            progress(f"vllm: loading {name}")
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=loop.run_forever, name="vllm", daemon=True)
            thread.start()
            built = asyncio.run_coroutine_threadsafe(self._build(), loop)
            while not _done(built, _PROGRESS_SECONDS):
                progress(f"vllm: loading {name}, {time.monotonic() - began:.0f} s")
            try:
                built.result()
            except Misconfigured:
                _stop(loop, thread)
                raise
            self._loop, self._thread = loop, thread
            if self.launch.metrics_port is not None:
                _serve_metrics(self.launch.metrics_port)
            progress(f"vllm: ready after {time.monotonic() - began:.0f} s; {self.health()}")

    def submit(self, request: EngineRequest) -> "Future[GeneratedTexts]":
        """Submits a request; called from any thread, and by many at once.

        While a dead engine is being rebuilt, the request waits for the new one.  Cancelling the
        future aborts the request.

        Returns:
          A future.  It raises Misconfigured where the engine refuses this request and would refuse
          it again, and Unavailable where the engine died over it or is not rebuilt.

        Raises:
          Unavailable: The engine is not loaded, or was ended.
        """
        loop = self._running()
        return asyncio.run_coroutine_threadsafe(self._answer(request), loop)

    def template(self) -> str:
        """Returns the chat template of the model; "" where it has none.

        Raises:
          Unavailable: The engine is not loaded, or was ended.
        """
        self._running()
        return self._template

    def queue(self) -> EngineQueue | None:
        """Returns the engine's queue by its own gauges; None without an engine."""
        if self._engine is None or self._engine.errored:
            return None
        return self._engine.queue()

    def health(self) -> str:
        """Returns a line with the model and its load, from vLLM's own gauges."""
        if self._engine is None or self._engine.errored:
            return f"model {self.launch.served_name} is not loaded"
        return f"model {self.launch.served_name}: {self._engine.load}"

    def close(self) -> None:
        """Ends the engine and its child.  Idempotent."""
        with self._starting:
            loop, self._loop = self._loop, None
            if loop is None:
                return
            self._given_up = "this worker is ending"
            ending = asyncio.run_coroutine_threadsafe(self._end(), loop)
            if _done(ending, _CLOSE_SECONDS) and self._thread is not None:
                _stop(loop, self._thread)

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise Unavailable(self._given_up or "the vLLM engine of this worker is not loaded")
        return self._loop

    async def _answer(self, request: EngineRequest) -> GeneratedTexts:
        return await (await self._alive()).generate(request)

    async def _alive(self) -> LoadedModel:
        """Returns the engine, rebuilt if it has died; one caller rebuilds, the others wait."""
        assert self._building is not None
        async with self._building:
            if self._given_up:
                raise Unavailable(self._given_up)
            if self._engine is None or self._engine.errored:
                await asyncio.shield(asyncio.ensure_future(self._rebuild()))
            assert self._engine is not None
            return self._engine

    async def _rebuild(self) -> None:
        now = time.monotonic()
        self._rebuilt = [at for at in self._rebuilt if at > now - _REBUILDS_SECONDS] + [now]
        if len(self._rebuilt) > _MOST_REBUILDS:
            self._give_up(f"the vLLM engine died {len(self._rebuilt)} times within an hour")
        log.error("vllm: the engine of %s died; rebuilding it", self.launch.model)
        await self._end()
        try:
            await self._build()
        except Misconfigured as error:
            self._give_up(f"the vLLM engine died and could not be rebuilt: {error}")
        log.warning("vllm: rebuilt after %.0f s; %s", time.monotonic() - now, self.health())

    def _give_up(self, reason: str) -> None:
        self._given_up = reason
        self._lost(reason)
        raise Unavailable(reason)

    async def _build(self) -> None:
        """Blocks the loop while it loads: there is nothing else for the loop to do."""
        self._building = self._building or asyncio.Lock()
        with self._orphans.adopted():
            self._engine = _load(self.launch)
        self._template = self._engine.template

    async def _end(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.shutdown()
            # Tasks that the engine has cancelled come to their end in this turn of the loop.
            await asyncio.sleep(0)
        self._orphans.release()


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    thread.join(_CLOSE_SECONDS)
    if not thread.is_alive():
        loop.close()


def _done(future: "Future[None]", seconds: float) -> bool:
    try:
        future.exception(seconds)
    except TimeoutError:
        return False
    return True


def _load(launch: VllmLaunch) -> LoadedModel:
    """Loads a model.

    Raises:
      Misconfigured: vLLM is not installed or too old, or the model cannot be loaded.
    """
    try:
        _require_version(str(importlib.import_module("vllm").__version__))
        from app.adapters.model.providers.vllm_library import load
    except ImportError as error:
        raise Misconfigured(
            f"EVOQ_VLLM_MODEL is {launch.model!r}, and vLLM cannot be imported: {error}; install "
            "evoqueue[gpu], or unset the variable to ask a server"
        ) from error
    return load(launch)


def _require_version(installed: str) -> None:
    """Makes sure that vLLM is new enough; a version without numbers is taken to be.

    Raises:
      Misconfigured: It is older than `OLDEST`.
    """
    numbers = re.match(r"(\d+)\.(\d+)", installed)
    if numbers and (int(numbers[1]), int(numbers[2])) < OLDEST:
        needed = ".".join(map(str, OLDEST))
        raise Misconfigured(
            f"vLLM {installed} is installed, and {needed} or later is needed: install "
            f"'vllm>={needed}', or unset EVOQ_VLLM_MODEL to ask a server"
        )


def _serve_metrics(port: int) -> None:
    """Serves vLLM's own metrics.

    Raises:
      Misconfigured: The port cannot be opened.
    """
    try:
        start_http_server(port)
    except OSError as error:
        raise Misconfigured(
            f"EVOQ_VLLM_METRICS_PORT: port {port} cannot be had ({error}): give another port, or "
            "leave the variable out"
        ) from error
