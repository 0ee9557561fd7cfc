"""The endpoint: a chat request from its body to its answer in simulated time, and the metrics."""

import asyncio
import itertools
import json
import time
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeAlias

from mock_llm.chat_request import PREFIX, ChatRequest, ErrorReply, read_request
from mock_llm.draws import GARBAGE, Amount, FaultRates, InjectedFault
from mock_llm.engine import Batch, BatchedSequence, PrefixCache, Speed
from mock_llm.event_stream import NOTICE, EventStream
from mock_llm.replies import Replies, Reply, count_tokens, cut, mutating

LATENCY = Amount("fixed", 0.8)
JSON, EVENTS = "application/json", "text/event-stream; charset=utf-8"
STREAM_SECONDS = 0.1
"""Between two writes of a stream: few tokens together, so that a benchmark has its processor."""

Send: TypeAlias = Callable[[bytes], Awaitable[None]]
"""Sends events of a streamed answer before its end."""

_BUSY = (
    "The engine is currently busy and cannot accept new requests. "
    "Please try again later or on a different instance."
)
_BROKEN = ((500, "EngineCore encountered an issue."), (502, "Bad gateway."), (503, _BUSY))


@dataclass(frozen=True, slots=True)
class Simulation:
    """The parameters of the simulation.

    Attributes:
      models: The names that are served; empty: any name is.
      latency: Seconds from the start of a sequence to its first token, or to its end where there
        is no speed in tokens.
      completion_tokens: Simulated length of a sequence; None: the length of its text.
      seed: Seeds every draw.
    """

    models: frozenset[str] = frozenset()
    latency: Amount = LATENCY
    speed: Speed = field(default_factory=Speed)
    completion_tokens: Amount | None = None
    faults: FaultRates = field(default_factory=FaultRates)
    replies: Replies = mutating
    seed: int = 0

    @property
    def model(self) -> str:
        """The name of the model in lists and metrics."""
        return PREFIX + min(self.models, default="any")


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The status, the body and the headers of an HTTP response.

    Attributes:
      body: What is left of it, where a part was sent before.
    """

    status: int
    body: bytes
    retry_after_seconds: float | None = None
    kind: str = JSON


@dataclass(slots=True)
class Metrics:
    """Counts since the start of the server, shown under vLLM's names."""

    prompt_tokens: int = 0
    generation_tokens: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    queue_full: int = 0
    peak_running: int = 0
    finished: Counter[str] = field(default_factory=Counter)
    injected: Counter[InjectedFault] = field(default_factory=Counter)
    hang_seconds: float = 0.0
    queue_seconds: float = 0.0
    request_seconds: float = 0.0
    answered: int = 0

    def text(self, batch: Batch, model: str) -> str:
        """Returns the counts in the text format of Prometheus."""
        label = f'engine="0",model_name="{model}"'
        lines = [f"# {NOTICE}"]

        def add(name: str, kind: str, *samples: tuple[str, str, float]) -> None:
            lines.append(f"# TYPE {name} {kind}")
            lines.extend(
                f"{name}{suffix}{{{label}{extra}}} {value:.9g}" for suffix, extra, value in samples
            )

        add("evoq_mock_llm_simulation", "gauge", ("", "", 1))
        add("vllm:num_requests_running", "gauge", ("", "", batch.running))
        add("vllm:num_requests_waiting", "gauge", ("", "", batch.waiting))
        usage = batch.running / batch.speed.max_num_seqs
        add("vllm:kv_cache_usage_perc", "gauge", ("", "", usage))
        add("evoq_mock_llm_peak_running", "gauge", ("", "", self.peak_running))
        for name, count in (
            ("prompt_tokens", self.prompt_tokens),
            ("generation_tokens", self.generation_tokens),
            ("prefix_cache_queries", self.prefix_queries),
            ("prefix_cache_hits", self.prefix_hits),
        ):
            add(f"vllm:{name}", "counter", ("_total", "", count))
        reasons = [
            ("_total", f',finished_reason="{reason}"', self.finished[reason])
            for reason in ("stop", "length", "abort")
        ]
        add("vllm:request_success", "counter", *reasons)
        full = ("_total", ',reason="max_num_queued_reqs"', self.queue_full)
        add("vllm:admission_rejections", "counter", full)
        for name, seconds in (
            ("request_queue_time_seconds", self.queue_seconds),
            ("e2e_request_latency_seconds", self.request_seconds),
        ):
            whole = ("_bucket", ',le="+Inf"', self.answered)
            total, times = ("_sum", "", seconds), ("_count", "", self.answered)
            add(f"vllm:{name}", "histogram", whole, times, total)
        faults = [("_total", f',fault="{fault}"', self.injected[fault]) for fault in InjectedFault]
        add("evoq_mock_llm_injected_faults", "counter", *faults)
        add("evoq_mock_llm_hang_seconds", "counter", ("_total", "", self.hang_seconds))
        return "\n".join(lines) + "\n"


@dataclass(slots=True)
class Endpoint:
    """The simulated server without its socket.  Runs on one event loop."""

    simulation: Simulation
    batch: Batch
    metrics: Metrics = field(default_factory=Metrics)
    prefixes: PrefixCache = field(default_factory=PrefixCache)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    async def chat(self, body: bytes, send: Send) -> HttpAnswer:
        """Answers a chat request; cancelling the call withdraws its sequences from the batch.

        A stream is sent at the simulated speed.  Without one, all tokens are made at once at the
        end, and so are their events.

        The number of the request seeds its fault.  The request's own seed, where it has one, seeds
        its latency and its replies.
        """
        number = next(self._numbers)
        fault_rng = Random(f"{self.simulation.seed}/{number}/fault")
        fault = self.simulation.faults.draw(fault_rng)
        if fault is not None:
            self.metrics.injected[fault] += 1
        match fault:
            case InjectedFault.TOO_MANY:
                seconds = self.simulation.faults.retry_after_seconds
                return _error(
                    ErrorReply(429, "Rate limit reached.", "rate_limit_error", None, None, seconds)
                )
            case InjectedFault.BROKEN:
                status, message = fault_rng.choice(_BROKEN)
                return _error(ErrorReply(status, message, "InternalServerError"))
            case InjectedFault.HANG:
                began = time.monotonic()
                try:
                    # The event is never set.
                    await asyncio.Event().wait()
                finally:
                    self.metrics.hang_seconds += time.monotonic() - began
        request = read_request(body, self.simulation.models)
        if isinstance(request, ErrorReply):
            return _error(request)
        if not self.batch.accepts(request.n):
            self.metrics.queue_full += 1
            return _error(ErrorReply(503, _BUSY, "ServiceUnavailableError"))
        garbage = fault is InjectedFault.GARBAGE
        answer = await self._answer(request, number, None if garbage else send)
        return HttpAnswer(200, fault_rng.choice(GARBAGE)) if garbage else answer

    async def _answer(self, request: ChatRequest, number: int, send: Send | None) -> HttpAnswer:
        seed = str(number)
        if request.seed is not None:
            seed = f"{request.seed}/{zlib.crc32(request.prompt.encode('utf-8', 'surrogatepass'))}"
        rngs = [Random(f"{self.simulation.seed}/{seed}/{choice}") for choice in range(request.n)]
        replies = [cut(self.simulation.replies(request, rng), request.max_tokens) for rng in rngs]
        cached = self.prefixes.cached_tokens(request.prompt)
        prompt_tokens = count_tokens(request.prompt)
        self.metrics.prompt_tokens += prompt_tokens
        self.metrics.prefix_queries += prompt_tokens
        self.metrics.prefix_hits += cached
        lengths = [self._length(reply, rng) for reply, rng in zip(replies, rngs, strict=True)]
        stream = EventStream(request, number, replies) if request.streamed else None
        await self._generate(lengths, rngs, stream, send)
        self.metrics.finished.update(reply.finish for reply in replies)
        self.metrics.generation_tokens += sum(lengths)
        usage = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": sum(lengths),
            "total_tokens": prompt_tokens + sum(lengths),
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        if stream is not None:
            return HttpAnswer(200, stream.rest(usage), kind=EVENTS)
        return _completed(request, number, replies, usage)

    def _length(self, reply: Reply, rng: Random) -> int:
        length = self.simulation.completion_tokens
        return reply.tokens if length is None else max(1, round(length.draw(rng)))

    async def _generate(
        self, lengths: list[int], rngs: list[Random], stream: EventStream | None, send: Send | None
    ) -> None:
        """Waits until every sequence has gone through the batch, and sends what is made."""
        loop = asyncio.get_running_loop()
        arrived = loop.time()
        over = loop.create_future()
        left = len(lengths)

        def count_down() -> None:
            nonlocal left
            left -= 1
            if not left and not over.done():
                over.set_result(None)

        sequences = [
            BatchedSequence(self.simulation.latency.draw(rng), length, count_down)
            for rng, length in zip(rngs, lengths, strict=True)
        ]
        self.batch.start(sequences)
        self.metrics.peak_running = max(self.metrics.peak_running, self.batch.running)
        try:
            if stream is not None and send is not None and self.batch.speed.tokens_per_second:
                while not (await asyncio.wait([over], timeout=STREAM_SECONDS))[0]:
                    shares = [self.batch.share(sequence) for sequence in sequences]
                    if any(shares):
                        await send(stream.upto(shares))
            await over
        finally:
            for sequence in sequences:
                self.metrics.finished["abort"] += not sequence.ended
                self.batch.withdraw(sequence)
        self.metrics.answered += 1
        self.metrics.request_seconds += loop.time() - arrived
        self.metrics.queue_seconds += max(sequence.started for sequence in sequences) - arrived

    def models(self) -> dict[str, Any]:
        """Returns the list of models."""
        names = sorted(self.simulation.models) or ["any"]
        return {
            "object": "list",
            "data": [
                {"id": PREFIX + name, "object": "model", "created": 0, "owned_by": NOTICE}
                for name in names
            ],
        }


def _completed(
    request: ChatRequest, number: int, replies: list[Reply], usage: dict[str, Any]
) -> HttpAnswer:
    document = {
        "id": f"chatcmpl-simulated-{number}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": PREFIX + request.model,
        "system_fingerprint": NOTICE,
        "choices": [
            {
                "index": index,
                "message": {"role": "assistant", "content": reply.text},
                "logprobs": None,
                "finish_reason": reply.finish,
            }
            for index, reply in enumerate(replies)
        ],
        "usage": usage,
    }
    return HttpAnswer(200, json.dumps(document).encode())


def _error(error: ErrorReply) -> HttpAnswer:
    body = json.dumps(error.document()).encode()
    return HttpAnswer(error.status, body, error.retry_after_seconds)
