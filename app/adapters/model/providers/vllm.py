"""The model of an engine in this worker: many conversations in flight, samples as one request."""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import Future
from hashlib import sha256
from typing import Any, Protocol

from app.adapters.model.congestion.gate import Ended, Outcome
from app.adapters.model.providers import chat
from app.adapters.model.providers.chat import ModelSpec
from app.adapters.model.providers.http import Exchange
from app.adapters.model.providers.partial_results import all_ended, joined
from app.adapters.model.providers.vllm_engine import Choice, Generated, Question
from app.domain.operator import Completion, Prompt
from app.ports.protocols import Misconfigured, Unavailable

IN_PROCESS = "vllm://this-worker"
"""Stands for the address of a model that this process serves itself."""


class Engine(Protocol):
    """What answers; see `VllmEngine.submit`."""

    def submit(self, question: Question) -> "Future[Generated]": ...


class VllmModel:
    """Asks the engine of this process.  Safe to share between threads.

    There are no retries: what the engine refuses it would refuse again, and what it loses by dying
    is asked for again by the step.
    """

    def __init__(
        self, spec: ModelSpec, engine: Engine, exchange: Exchange, *, seed: int = 0
    ) -> None:
        """Keeps what it is told.

        Args:
          spec: The model; its address is not asked, and names the engine in the ledger.
          engine: The process's; not closed here.
          exchange: The process's, with the gate before the engine; not closed here.
          seed: Tells apart the runs whose prompts are alike.
        """
        self._spec = spec
        self._engine = engine
        self._exchange = exchange
        self._seed = seed

    @property
    def name(self) -> str:
        return self._spec.name

    def complete(self, prompts: Sequence[Prompt]) -> list[Completion]:
        """Returns one completion a prompt, in order; prompts of one text are one request.

        Raises:
          Misconfigured: The engine refuses what is asked.
          Unavailable: The engine died over it, or gave no answer within the deadline.
        """
        if not prompts:
            return []
        return self._exchange.run(self._every(prompts), 2 * self._spec.deadline_seconds)

    def parameters(self, prompt: Prompt) -> dict[str, Any]:
        """Returns what shapes the answer to a prompt; see `Completion.parameters`."""
        return chat.parameters(self._spec, self._body(prompt, 1))

    async def _every(self, prompts: Sequence[Prompt]) -> list[Completion]:
        alike: dict[tuple[str, str, str], list[int]] = {}
        for place, one in enumerate(prompts):
            alike.setdefault((one.system, one.user, one.role), []).append(place)
        most = self._spec.max_in_flight
        batches = [
            places[start : start + most]
            for places in alike.values()
            for start in range(0, len(places), most)
        ]
        asked = [self._answered([prompts[place] for place in batch]) for batch in batches]
        return joined(batches, await all_ended(asked))

    async def _answered(self, prompts: Sequence[Prompt]) -> list[Completion]:
        body = self._body(prompts[0], len(prompts))
        sampling = {name: body[name] for name in _SAMPLED if name in body}
        sampling |= self._spec.extra_body
        await self._place(len(prompts))
        began, ended = time.monotonic(), Ended.LEFT
        try:
            async with asyncio.timeout(self._spec.deadline_seconds):
                submitted = self._engine.submit(Question(body["messages"], sampling))
                generated = await asyncio.wrap_future(submitted)
            ended = Ended.ANSWERED
        except TimeoutError as error:
            ended = Ended.TIMED_OUT
            raise self._late("the vLLM engine gave no answer") from error
        except Misconfigured:
            ended = Ended.REFUSED
            raise
        except Unavailable:
            ended = Ended.FAILED
            raise
        finally:
            seconds = time.monotonic() - began
            outcome = Outcome(ended, seconds, samples=len(prompts))
            await self._exchange.gate(self._spec).release(outcome)
        return [
            self._completion(prompt, choice, generated if not number else None, seconds)
            for number, (prompt, choice) in enumerate(zip(prompts, generated.choices, strict=True))
        ]

    async def _place(self, samples: int) -> None:
        try:
            async with asyncio.timeout(self._spec.deadline_seconds):
                await self._exchange.gate(self._spec).acquire(samples)
        except TimeoutError as error:
            raise self._late("no place at the vLLM engine became free") from error

    def _late(self, what: str) -> Unavailable:
        return Unavailable(f"{what} within {self._spec.deadline_seconds:g} s")

    def _body(self, prompt: Prompt, samples: int) -> dict[str, Any]:
        digest = sha256(f"{self._seed}/{prompt.role}/{prompt.sample}".encode()).digest()
        seed = int.from_bytes(digest[:4], "big") >> 1
        return chat.request(self._spec, prompt, seed, samples=samples)

    def _completion(
        self, prompt: Prompt, choice: Choice, generated: Generated | None, seconds: float
    ) -> Completion:
        """Returns one answer; the prompt was read once, and counts with the first."""
        read = generated.prompt_tokens if generated else 0
        cached = generated.cached_tokens if generated else 0
        return Completion(
            text=choice.text,
            model=self._spec.name,
            finish=choice.finish,
            prompt_tokens=read,
            completion_tokens=choice.tokens,
            latency_seconds=seconds,
            cost_usd=chat.cost_usd(
                self._spec, prompt=read, cached=cached, completion=choice.tokens
            ),
            cached_tokens=min(read, cached),
            role=prompt.role,
            parameters=self.parameters(prompt),
        )


_SAMPLED = ("max_tokens", "temperature", "top_p", "seed", "n")
