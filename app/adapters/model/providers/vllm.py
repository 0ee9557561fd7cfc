"""The model of an engine in this worker: many requests in flight, samples as one request."""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Protocol, cast

from app.adapters.model.congestion.gate import Ended, RequestResult
from app.adapters.model.providers.bound_replies import (
    GOES_ON,
    BoundReplies,
    Continuation,
    engine_continuation,
)
from app.adapters.model.providers.error_body import ErrorBody
from app.adapters.model.providers.event_loop import ModelLoop
from app.adapters.model.providers.longest_prompt import LongestPrompt
from app.adapters.model.providers.openai import chat_request, messages, shaping_fields
from app.adapters.model.providers.overflow import overflow
from app.adapters.model.providers.partial_results import merged, partial_results
from app.adapters.model.providers.spec import ModelSpec
from app.adapters.model.providers.streamed_reply import Answer, AnswerChoice, TokenUsage
from app.adapters.model.providers.vllm_engine import BEGINS, EngineRequest, GeneratedTexts
from app.adapters.model.providers.wire import batches, completions, seed_of, shaping
from app.domain.operator import Completion, Prompt, ReplyForm
from app.ports.protocols import NEVER, Misconfigured, PromptTooLong, Stop, Unavailable

_REFUSED = 400
"""Status with which vLLM's server refuses what its engine refuses."""
_REFUSES = "refuses a request"
"""Part of the engine's message about a request, and of none about its start."""
_SAMPLING = ("max_tokens", "temperature", "top_p", "seed", "n", "stop", "structured_outputs")
"""Fields of a chat request that are fields of vLLM's SamplingParams."""


class GenerationEngine(Protocol):
    """The engine of the process; see `VllmEngine`."""

    def template(self) -> str: ...

    def submit(self, request: EngineRequest) -> "Future[GeneratedTexts]": ...


class VllmModel:
    """Asks the engine of this process.  Safe to share between threads.

    There are no retries: the engine would refuse again what it refuses, and the step asks again for
    what the engine lost by dying.
    """

    def __init__(
        self, spec: ModelSpec, engine: GenerationEngine, model_loop: ModelLoop, *, seed: int = 0
    ) -> None:
        """Keeps its arguments.

        Args:
          spec: The model; its address only names the engine in the ledger.
          engine: The process's; not closed here.
          model_loop: The process's, with the gate of the engine; not closed here.
          seed: Distinguishes runs with equal prompts.
        """
        self._spec = spec
        self._engine = engine
        self._model_loop = model_loop
        self._seed = seed
        self._longest = LongestPrompt(spec)
        self._bound = BoundReplies(spec)

    @property
    def name(self) -> str:
        return self._spec.name

    @property
    def places(self) -> int:
        """See `LanguageModel.places`."""
        return self._model_loop.places(self._spec)

    def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
        """Returns a completion for each prompt, in order; prompts of one text are one request.

        Raises:
          Stopped: It was asked to stop.
          Misconfigured: The engine refuses what is asked.
          Unavailable: The engine died over it, or gave no answer within the deadline.
        """
        if not prompts:
            return []
        self._longest.check(prompts)
        return self._model_loop.run(self._complete(prompts), 2 * self._spec.deadline_seconds, stop)

    def parameters(self, prompt: Prompt) -> dict[str, object]:
        """Returns what shapes the answer to a prompt; see `Completion.parameters`."""
        return shaping(self._spec, shaping_fields(self._body(prompt, 1)))

    async def _complete(self, prompts: Sequence[Prompt]) -> list[Completion]:
        alike = batches(prompts, self._spec.max_in_flight)
        parts = [self._batch([prompts[place] for place in batch]) for batch in alike]
        return merged(alike, await partial_results(parts))

    async def _batch(self, prompts: Sequence[Prompt]) -> list[Completion]:
        form = await self._bound.form(self._continuation, prompts[0])
        try:
            return await self._ask(prompts, form)
        except PromptTooLong:
            raise
        except Misconfigured as error:
            if form is None or _REFUSES not in str(error):
                raise
            self._bound.give_up(str(error.__cause__))
            return await self._ask(prompts, None)

    async def _continuation(self) -> Continuation | None:
        return engine_continuation(self._engine.template())

    async def _ask(self, prompts: Sequence[Prompt], form: ReplyForm | None) -> list[Completion]:
        request = self._request(prompts, form)
        await self._acquire(len(prompts))
        began, ended = time.monotonic(), Ended.LEFT
        try:
            async with asyncio.timeout(self._spec.deadline_seconds):
                generated = await asyncio.wrap_future(self._engine.submit(request))
            ended = Ended.ANSWERED
        except TimeoutError as error:
            ended = Ended.TIMED_OUT
            raise self._late("the vLLM engine gave no answer") from error
        except Misconfigured as error:
            ended = Ended.REFUSED
            cause = error.__cause__ if _REFUSES in str(error) else None
            words = "" if cause is None else str(cause)
            found = overflow(_REFUSED, ErrorBody(words), self._spec.max_tokens)
            if found is not None:
                raise self._longest.refused(prompts[0], _REFUSED, words, found) from error
            raise
        except Unavailable:
            ended = Ended.FAILED
            raise
        finally:
            seconds = time.monotonic() - began
            result = RequestResult(ended, seconds, samples=len(prompts))
            await self._model_loop.gate(self._spec).release(result)
        answer = _answer(generated)
        if form is not None:
            answer = self._bound.whole(answer, form)
        return completions(self._spec, prompts, answer, seconds, self.parameters)

    def _request(self, prompts: Sequence[Prompt], form: ReplyForm | None) -> EngineRequest:
        body = self._body(prompts[0], len(prompts))
        if form is not None:
            body = self._bound.body(body, messages(self._spec, prompts[0]), form)
        known = (*_SAMPLING, *self._spec.extra_body)
        return EngineRequest(
            cast(list[dict[str, str]], body["messages"]),
            {name: value for name, value in body.items() if name in known},
            GOES_ON if GOES_ON.keys() <= body.keys() else BEGINS,
        )

    async def _acquire(self, samples: int) -> None:
        try:
            async with asyncio.timeout(self._spec.deadline_seconds):
                await self._model_loop.gate(self._spec).acquire(samples)
        except TimeoutError as error:
            raise self._late("no place at the vLLM engine became free") from error

    def _late(self, event: str) -> Unavailable:
        return Unavailable(f"{event} within {self._spec.deadline_seconds:g} s")

    def _body(self, prompt: Prompt, samples: int) -> dict[str, object]:
        seed = seed_of(self._seed, prompt)
        return chat_request(self._spec, prompt, seed, samples=samples)


def _answer(generated: GeneratedTexts) -> Answer:
    cached = min(generated.prompt_tokens, generated.cached_tokens)
    written = sum(each.tokens for each in generated.choices)
    return Answer(
        tuple(
            AnswerChoice(each.text, each.finish, tokens=each.tokens) for each in generated.choices
        ),
        TokenUsage(generated.prompt_tokens, cached, written),
    )
