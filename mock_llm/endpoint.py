"""The endpoint: one chat request from its body to its answer, in simulated time."""

import asyncio
import itertools
import json
import time
import zlib
from dataclasses import dataclass, field
from random import Random
from typing import Any

from mock_llm.amounts import Amount
from mock_llm.batch import Batch, Generation, Speed
from mock_llm.faults import GARBAGE, Fault, FaultRates
from mock_llm.measures import NOTICE, Measures
from mock_llm.prefixes import PrefixCache
from mock_llm.reading import PREFIX, Asked, Refusal, read_request
from mock_llm.replies import Replies, Reply, count_tokens, cut, mutating

LATENCY = Amount("fixed", 0.8)
_BUSY = (
    "The engine is currently busy and cannot accept new requests. "
    "Please try again later or on a different instance."
)
_BROKEN = ((500, "EngineCore encountered an issue."), (502, "Bad gateway."), (503, _BUSY))


@dataclass(frozen=True, slots=True)
class Simulation:
    """What is simulated.

    Attributes:
      models: The names that are served; none: any name is.
      latency: Seconds from the start of a sequence to its first token, or to its end where there
        is no speed in tokens.
      completion_tokens: Tokens a sequence is simulated to have; None: as many as its text.
      seed: Of every draw.
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
        """The name that the model is listed and measured under."""
        return PREFIX + min(self.models, default="any")


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes over the wire."""

    status: int
    body: bytes
    retry_after_seconds: float | None = None


@dataclass(slots=True)
class Endpoint:
    """The simulated server, but for its socket.  Lives on one event loop."""

    simulation: Simulation
    batch: Batch
    measures: Measures = field(default_factory=Measures)
    prefixes: PrefixCache = field(default_factory=PrefixCache)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    async def chat(self, body: bytes) -> Answer:
        """Answers a chat request; cancelling it frees what it holds, as a closed connection does.

        Drawn by the number of the request: whether it fails.  Drawn by the request's own seed where
        it has one: its latency and its replies.
        """
        number = next(self._numbers)
        luck = Random(f"{self.simulation.seed}/{number}/fault")
        fault = self.simulation.faults.draw(luck)
        if fault is not None:
            self.measures.injected[fault] += 1
        match fault:
            case Fault.TOO_MANY:
                asks = self.simulation.faults.retry_after_seconds
                return _refused(
                    Refusal(429, "Rate limit reached.", "rate_limit_error", None, None, asks)
                )
            case Fault.BROKEN:
                status, says = luck.choice(_BROKEN)
                return _refused(Refusal(status, says, "InternalServerError"))
            case Fault.HANG:
                began = time.monotonic()
                try:
                    await asyncio.Event().wait()  # nobody sets it
                finally:
                    self.measures.hang_seconds += time.monotonic() - began
        asked = read_request(body, self.simulation.models)
        if isinstance(asked, Refusal):
            return _refused(asked)
        if not self.batch.accepts(asked.n):
            self.measures.queue_full += 1
            return _refused(Refusal(503, _BUSY, "ServiceUnavailableError"))
        answer = await self._answer(asked, number)
        return Answer(200, luck.choice(GARBAGE)) if fault is Fault.GARBAGE else answer

    async def _answer(self, asked: Asked, number: int) -> Answer:
        drawn = str(number)
        if asked.seed is not None:
            drawn = f"{asked.seed}/{zlib.crc32(asked.prompt.encode('utf-8', 'surrogatepass'))}"
        rngs = [Random(f"{self.simulation.seed}/{drawn}/{choice}") for choice in range(asked.n)]
        replies = [cut(self.simulation.replies(asked, rng), asked.max_tokens) for rng in rngs]
        cached = self.prefixes.cached_tokens(asked.prompt)
        prompt_tokens = count_tokens(asked.prompt)
        self.measures.prompt_tokens += prompt_tokens
        self.measures.prefix_queries += prompt_tokens
        self.measures.prefix_hits += cached
        lengths = [self._length(reply, rng) for reply, rng in zip(replies, rngs, strict=True)]
        await self._generate(lengths, rngs)
        self.measures.finished.update(reply.finish for reply in replies)
        self.measures.generation_tokens += sum(lengths)
        usage = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": sum(lengths),
            "total_tokens": prompt_tokens + sum(lengths),
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        return _completed(asked, number, replies, usage)

    def _length(self, reply: Reply, rng: Random) -> int:
        told = self.simulation.completion_tokens
        return reply.tokens if told is None else max(1, round(told.draw(rng)))

    async def _generate(self, lengths: list[int], rngs: list[Random]) -> None:
        """Waits until every sequence has gone through the batch."""
        loop = asyncio.get_running_loop()
        arrived = loop.time()
        over = loop.create_future()
        left = len(lengths)

        def one_done() -> None:
            nonlocal left
            left -= 1
            if not left and not over.done():
                over.set_result(None)

        sequences = [
            Generation(self.simulation.latency.draw(rng), length, one_done)
            for rng, length in zip(rngs, lengths, strict=True)
        ]
        self.batch.start(sequences)
        self.measures.peak_running = max(self.measures.peak_running, self.batch.running)
        try:
            await over
        finally:
            for sequence in sequences:
                self.measures.finished["abort"] += not sequence.ended
                self.batch.withdraw(sequence)
        self.measures.answered += 1
        self.measures.request_seconds += loop.time() - arrived
        self.measures.queue_seconds += max(one.started for one in sequences) - arrived

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


def _completed(asked: Asked, number: int, replies: list[Reply], usage: dict[str, Any]) -> Answer:
    document = {
        "id": f"chatcmpl-simulated-{number}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": PREFIX + asked.model,
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
    return Answer(200, json.dumps(document).encode())


def _refused(refusal: Refusal) -> Answer:
    body = json.dumps(refusal.document()).encode()
    return Answer(refusal.status, body, refusal.retry_after_seconds)
