"""The model of an engine in this worker: many conversations in flight, samples as one request."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any, Protocol

from app.adapters.model import chat
from app.adapters.model.chat import ModelSpec
from app.adapters.model.vllm_engine import Choice, Generated, Question
from app.domain.operator import Completion, Prompt

IN_PROCESS = "vllm://this-worker"
"""Stands for the address of a model that this process serves itself."""

_AT_ONCE = 32  # texts of one call that are asked side by side; more calls bring more


class Engine(Protocol):
    """What answers; see `VllmEngine.ask`."""

    def ask(self, question: Question, seconds: float) -> Generated: ...


class VllmModel:
    """Asks the engine of this process.  Safe to share between threads.

    There are no retries: what the engine refuses it would refuse again, and what it loses by dying
    is asked for again by the step.
    """

    def __init__(self, spec: ModelSpec, engine: Engine, *, seed: int = 0) -> None:
        """Keeps what it is told.

        Args:
          spec: The model; its address is not asked, and names the engine in the ledger.
          engine: The process's; not closed here.
          seed: Tells apart the runs whose prompts are alike.
        """
        self._spec = spec
        self._engine = engine
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
        alike: dict[tuple[str, str, str], list[int]] = {}
        for place, one in enumerate(prompts):
            alike.setdefault((one.system, one.user, one.role), []).append(place)
        groups = list(alike.values())
        asked = [[prompts[place] for place in places] for places in groups]
        if len(asked) <= 1:
            answered = [self._answered(one) for one in asked]
        else:
            with ThreadPoolExecutor(min(len(asked), _AT_ONCE)) as pool:
                answered = list(pool.map(self._answered, asked))
        found = {
            place: reply
            for places, replies in zip(groups, answered, strict=True)
            for place, reply in zip(places, replies, strict=True)
        }
        return [found[place] for place in range(len(prompts))]

    def parameters(self, prompt: Prompt) -> dict[str, Any]:
        """Returns what shapes the answer to a prompt; see `Completion.parameters`."""
        return chat.parameters(self._spec, self._body(prompt, 1))

    def _answered(self, prompts: Sequence[Prompt]) -> list[Completion]:
        body = self._body(prompts[0], len(prompts))
        sampling = {name: body[name] for name in _SAMPLED if name in body}
        sampling |= self._spec.extra_body
        began = time.monotonic()
        generated = self._engine.ask(
            Question(body["messages"], sampling), self._spec.deadline_seconds
        )
        seconds = time.monotonic() - began
        return [
            self._completion(prompt, choice, generated if not number else None, seconds)
            for number, (prompt, choice) in enumerate(zip(prompts, generated.choices, strict=True))
        ]

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
