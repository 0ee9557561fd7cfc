"""vLLM's engine inside this process, on a thread and a loop of its own; rebuilt when it dies.

The engine's core is a child process that vLLM starts; this side renders prompts and collects texts.
vLLM is imported when the engine is loaded, so that this module can be imported without it.
"""

import asyncio
import logging
import re
import shlex
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.adapters.model.congestion.engine_queue import RUNNING, WAITING, EngineQueue
from app.adapters.model.providers.vllm_orphans import Orphans
from app.ports.protocols import Misconfigured, Unavailable

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
    """

    messages: Sequence[dict[str, str]]
    sampling: dict[str, Any] = field(default_factory=dict)


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
        self._engine: Any = None
        self._building: asyncio.Lock | None = None
        self._orphans = Orphans()
        self._rebuilt: list[float] = []
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
        if self._loop is None:
            raise Unavailable(self._given_up or "the vLLM engine of this worker is not loaded")
        return asyncio.run_coroutine_threadsafe(self._answer(request), self._loop)

    def queue(self) -> EngineQueue | None:
        """Returns the engine's queue by its own gauges; None without an engine."""
        if self._engine is None or self._engine.errored:
            return None
        return EngineQueue(int(_gauge(RUNNING)), int(_gauge(WAITING)))

    def health(self) -> str:
        """Returns a line with the model and its load, from vLLM's own gauges."""
        if self._engine is None or self._engine.errored:
            return f"model {self.launch.served_name} is not loaded"
        running, waiting, cache = (
            _gauge(name) for name in (RUNNING, WAITING, "vllm:kv_cache_usage_perc")
        )
        config = self._engine.vllm_config
        return (
            f"model {self.launch.served_name}: {running:.0f} running, {waiting:.0f} waiting, "
            f"KV cache {cache:.0%} used; up to {config.scheduler_config.max_num_seqs} at once, "
            f"{config.model_config.max_model_len} tokens each"
        )

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

    def parameters(self, request: EngineRequest) -> Any:
        """Returns vLLM's SamplingParams of a request."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

        fields = dict(request.sampling)
        if "structured_outputs" in fields:
            structured = StructuredOutputsParams(**fields["structured_outputs"])
            fields["structured_outputs"] = structured
        return SamplingParams(output_kind=RequestOutputKind.FINAL_ONLY, **fields)

    async def _answer(self, request: EngineRequest) -> GeneratedTexts:
        from vllm.exceptions import VLLMClientError, VLLMError
        from vllm.v1.engine.exceptions import EngineDeadError

        engine = await self._alive()
        try:
            return await self._generate(engine, request)
        except EngineDeadError as error:
            raise Unavailable("the vLLM engine died; it is being rebuilt") from error
        except (VLLMClientError, ValueError, TypeError) as error:
            raise Misconfigured(
                f"the vLLM engine refuses a request for {self.launch.served_name}: {error}; "
                "check llm.extra_body, and prompts.max_prompt_tokens and llm.max_tokens "
                "against --max-model-len"
            ) from error
        except VLLMError as error:
            # vLLM raises this for a full queue and for other faults of its own.
            raise Unavailable(f"the vLLM engine: {type(error).__name__}: {error}") from error

    async def _generate(self, engine: Any, request: EngineRequest) -> GeneratedTexts:
        from vllm.renderers.params import ChatParams

        shape = ChatParams(chat_template_kwargs={"add_generation_prompt": True})
        _, [rendered] = await engine.renderer.render_chat_async([list(request.messages)], shape)
        last = None
        stream = engine.generate(rendered, self.parameters(request), uuid.uuid4().hex)
        async for output in stream:
            last = output
        if last is None:
            raise Unavailable("the vLLM engine ended a request without an answer")
        return GeneratedTexts(
            tuple(
                GeneratedText(output.text, output.finish_reason or "", len(output.token_ids))
                for output in sorted(last.outputs, key=lambda output: output.index)
            ),
            len(last.prompt_token_ids or ()),
            last.num_cached_tokens or 0,
        )

    async def _alive(self) -> Any:
        """Returns the engine, rebuilt if it has died; one caller rebuilds, the others wait."""
        assert self._building is not None
        async with self._building:
            if self._given_up:
                raise Unavailable(self._given_up)
            if self._engine is None or self._engine.errored:
                await asyncio.shield(asyncio.ensure_future(self._rebuild()))
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


def _done(future: "Future[Any]", seconds: float) -> bool:
    try:
        future.exception(seconds)
    except TimeoutError:
        return False
    return True


def _load(launch: VllmLaunch) -> Any:
    """Returns vLLM's AsyncLLM.

    Raises:
      Misconfigured: vLLM is not installed or too old, or the model cannot be loaded.
    """
    try:
        import vllm

        _require_version(str(vllm.__version__))
        from vllm import AsyncEngineArgs
        from vllm.utils.argparse_utils import FlexibleArgumentParser
        from vllm.v1.engine.async_llm import AsyncLLM
    except ImportError as error:
        raise Misconfigured(
            f"EVOQ_VLLM_MODEL is {launch.model!r}, and vLLM cannot be imported: {error}; install "
            "evoqueue[gpu], or unset the variable to ask a server"
        ) from error
    if _named_as_path(launch.model) and not Path(launch.model).exists():
        raise Misconfigured(
            f"{_cannot(launch)}: there is no such folder; give one that has the model's "
            "config.json, or the model's name on the hub"
        )
    parser = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser(exit_on_error=False))
    try:
        given = parser.parse_args(["--model", launch.model, *shlex.split(launch.arguments)])
        return AsyncLLM.from_engine_args(AsyncEngineArgs.from_cli_args(given))
    except (Exception, SystemExit) as error:
        # The parser exits on an error, and vLLM documents no exceptions.
        raise Misconfigured(f"{_cannot(launch)}: {_cause(launch, error)}") from error


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


def _cannot(launch: VllmLaunch) -> str:
    return f"EVOQ_VLLM_MODEL is {launch.model!r}, and vLLM cannot load it"


def _named_as_path(model: str) -> bool:
    """Returns whether this is a path; a name on the hub has one slash, between two words."""
    return model.startswith(("/", "./", "../", "~"))


def _cause(launch: VllmLaunch, error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"it does not take EVOQ_VLLM_ARGS {launch.arguments!r}; what it says is above"
    return (
        f"{type(error).__name__}: {str(error)[:400]}; its own messages are above; its "
        "arguments for memory, context and devices are in EVOQ_VLLM_ARGS"
    )


def _gauge(name: str) -> float:
    """Returns one of vLLM's gauges, summed over its labels."""
    from prometheus_client import REGISTRY

    return sum(
        sample.value
        for metric in REGISTRY.collect()
        for sample in metric.samples
        if sample.name == name
    )


def _serve_metrics(port: int) -> None:
    """Serves vLLM's own metrics.

    Raises:
      Misconfigured: The port cannot be opened.
    """
    from prometheus_client import start_http_server

    try:
        start_http_server(port)
    except OSError as error:
        raise Misconfigured(
            f"EVOQ_VLLM_METRICS_PORT: port {port} cannot be had ({error}): give another port, or "
            "leave the variable out"
        ) from error
