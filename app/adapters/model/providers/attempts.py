"""When an endpoint is asked, and how often: attempts within a deadline, and what they report.

Threads call, and the event loop asks.  The content of requests and answers is that of a `Wire`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from random import Random
from typing import TypeAlias

import httpx2
import openai
from openai import AsyncOpenAI

from app.adapters.model.congestion.circuit_breaker import CircuitBreaker
from app.adapters.model.congestion.gate import Ended, RequestResult
from app.adapters.model.congestion.silence import Listening, Silence
from app.adapters.model.providers import error_body, refusals
from app.adapters.model.providers.error_body import ErrorBody
from app.adapters.model.providers.event_loop import ModelLoop
from app.adapters.model.providers.events import Events
from app.adapters.model.providers.http_client import is_stream, post, read_to_end, text_of
from app.adapters.model.providers.longest_prompt import LongestPrompt
from app.adapters.model.providers.overflow import overflow
from app.adapters.model.providers.partial_results import merged, partial_results
from app.adapters.model.providers.refusals import TransientFailure
from app.adapters.model.providers.streamed_reply import Answer, StreamedReply
from app.adapters.model.providers.wire import Wire, WireRequest, batches, completions, shaping
from app.domain.operator import Completion, Prompt
from app.domain.prompting.tokens import estimated
from app.ports.protocols import NEVER, Misconfigured, Stop, Stopped, Unavailable

_LONGEST_PAUSE_SECONDS = 60.0
_CHARS_A_TOKEN = 4

log = logging.getLogger(__name__)

_AttemptResult: TypeAlias = list[Completion] | TransientFailure | None
"""None: the request can be repeated at once, in the form to which it was adapted."""


@dataclass(frozen=True, slots=True)
class _Received:
    """What came in answer to a request.

    Attributes:
      response: With its body, where that was not streamed.
      answer: None where there is no completion in it.
      document: The JSON value of a body without one.
    """

    response: httpx2.Response
    answer: Answer | None
    document: object = None


class EndpointModel:
    """Asks one model over HTTP, repeatedly within a deadline.

    Safe to share between threads: what it learns of its endpoint is kept on the event loop.
    """

    def __init__(
        self,
        wire: Wire,
        model_loop: ModelLoop,
        *,
        breaker: CircuitBreaker | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Connects to nothing.

        Args:
          wire: The form of the model's requests and answers.
          model_loop: The process's; not closed here.
          breaker: Receives the result of every attempt, and ends the retries once it is open.
          sleep: Waits so many seconds.
        """
        self._wire = wire
        self._spec = spec = wire.spec
        self._model_loop = model_loop
        self._breaker = breaker
        self._sleep = sleep
        # The jitter differs between processes on purpose, and affects no result.
        self._jitter = Random()
        self._most_samples = min(spec.max_in_flight, spec.parallel_generations or wire.samples)
        self._longest = LongestPrompt(spec)
        self._silence = Silence(spec.min_timeout_seconds, spec.timeout_seconds)
        self._uncounted = False

    @property
    def name(self) -> str:
        return self._spec.name

    @property
    def places(self) -> int:
        """See `LanguageModel.places`."""
        return self._model_loop.places(self._spec)

    def parameters(self, prompt: Prompt) -> dict[str, object]:
        """Returns what shapes the answer to a prompt; see `Completion.parameters`.

        These are the parameters of the settings, whether the model supports them or not, and
        whether the prompt shares a request with other samples or not.
        """
        return shaping(self._spec, self._wire.parameters(prompt))

    def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
        """Returns a completion for each prompt, in order; all are asked side by side.

        Prompts that differ in `sample` alone are one request, where the endpoint takes `n`.

        Raises:
          Stopped: It was asked to stop; the connections of its requests are closed.
          PromptTooLong: A prompt is longer than the model takes.
          Misconfigured: The endpoint refuses what no retry will change.
          Unavailable: The endpoint did not answer within the deadline and the allowed attempts.
        """
        spec = self._spec
        if spec.preset.needs_key and not spec.api_key:
            raise Misconfigured(
                f"{spec} needs a key: set {spec.key_variable}"
                " where the workers are started, or give the model the base_url of an endpoint"
                " that needs none"
            )
        if not prompts:
            return []
        self._longest.check(prompts)
        # Without a limit: a reply may be written for any time, and every other wait has its own.
        return self._model_loop.run(self._complete(prompts), None, stop)

    @property
    def _samples(self) -> int:
        """Most completions for which one request asks."""
        return min(self._most_samples, self._wire.samples)

    async def _complete(self, prompts: Sequence[Prompt]) -> list[Completion]:
        if len(prompts) == 1:
            return await self._batch(prompts)
        alike = batches(prompts, self._samples)
        parts = [self._batch([prompts[place] for place in batch]) for batch in alike]
        return merged(alike, await partial_results(parts))

    async def _batch(self, prompts: Sequence[Prompt]) -> list[Completion]:
        """Returns the completions of prompts of one text; those that are missing, singly."""
        completions: list[Completion] = []
        if len(prompts) == 1 or self._samples > 1:
            completions = await self._with_retries(prompts)
        if len(completions) == len(prompts):
            return completions
        self._most_samples = 1
        missing = range(len(completions), len(prompts))
        results = await partial_results([self._with_retries([prompts[n]]) for n in missing])
        positions = [range(len(completions)), *([n] for n in missing)]
        return merged(positions, [completions, *results])

    async def _with_retries(self, prompts: Sequence[Prompt]) -> list[Completion]:
        """Returns at least one completion; none where so many are too many for one request."""
        spec = self._spec
        left, attempt, timeouts, unanswered = spec.deadline_seconds, 0, 0, 0
        while True:
            await self._acquire(len(prompts), again=attempt > 0)
            try:
                with self._silence.attempt(left, repeated=timeouts > 0) as listening:
                    result = await self._attempt(prompts, listening)
            except asyncio.CancelledError:
                lost = (unanswered + 1) * len(prompts)
                raise Stopped("a request was dropped", unanswered=lost) from None
            left -= listening.waited_seconds
            if isinstance(result, list):
                return [replace(completion, unanswered=unanswered) for completion in result]
            if result is None:
                if len(prompts) > self._samples:
                    return []
                continue
            timeouts += result.ended is Ended.TIMED_OUT
            unanswered += result.billed
            pause, attempt = self._pause(attempt, result), attempt + 1
            breaker_open = self._report_failure(result, left)
            if breaker_open or attempt > spec.retries or pause >= left:
                message = refusals.given_up(spec, result, attempt)
                lost = unanswered * len(prompts)
                raise Unavailable(message, unanswered=lost) from result.cause
            left -= pause
            await self._sleep(pause)

    async def _acquire(self, samples: int, *, again: bool) -> None:
        spec = self._spec
        try:
            async with asyncio.timeout(spec.deadline_seconds):
                await self._model_loop.gate(spec).acquire(samples, again=again)
        except TimeoutError as error:
            raise Unavailable(
                f"{spec}: none of its places became free within "
                f"{spec.deadline_seconds:g} s; raise llm.max_in_flight if the endpoint can do more"
            ) from error

    async def _attempt(self, prompts: Sequence[Prompt], listening: Listening) -> _AttemptResult:
        """Makes one attempt, and reports its result to the gate and the breaker."""
        loop, gate = asyncio.get_running_loop(), self._model_loop.gate(self._spec)
        started, ended, retry_after = loop.time(), Ended.LEFT, 0.0
        gate.replies.begin(listening)
        try:
            result = await self._request(prompts, listening)
            ended = Ended.ANSWERED if isinstance(result, list) else Ended.REFUSED
            if isinstance(result, TransientFailure):
                ended, retry_after = result.ended, result.retry_after_seconds
            elif self._breaker is not None:
                self._breaker.answered()
            return result
        except Misconfigured:
            ended = Ended.REFUSED
            raise
        finally:
            gate.replies.end(listening)
            request_result = RequestResult(ended, loop.time() - started, retry_after, len(prompts))
            await gate.release(request_result)

    async def _request(self, prompts: Sequence[Prompt], listening: Listening) -> _AttemptResult:
        spec, first = self._spec, prompts[0]
        client, loop = self._model_loop.client(spec), asyncio.get_running_loop()
        request = await self._wire.request(client, prompts)
        started = loop.time()
        try:
            async with listening.limited():
                received = await self._received(client, request, first, listening)
        except TimeoutError as error:
            return TransientFailure(Ended.TIMED_OUT, listening.silence, cause=error, billed=True)
        except openai.APIStatusError as error:
            return self._refused(error.response, error.status_code, request, first)
        except refusals.BROKEN as error:
            return refusals.broken(error, spec.base_url, tokens=listening.tokens)
        if isinstance(received, TransientFailure):
            return received
        if received.answer is None or not received.answer.choices:
            return self._without_answer(received, request, first)
        seconds = loop.time() - started
        self._longest.answered(first)
        answer = self._wire.answered(request, received.answer)
        return completions(spec, prompts, answer, seconds, self.parameters)

    async def _received(
        self, client: AsyncOpenAI, request: WireRequest, prompt: Prompt, listening: Listening
    ) -> _Received | TransientFailure:
        """Returns an answer, or why it broke off; reports its tokens."""
        wire = self._wire
        async with aclosing(await post(client, wire.path, request.body, wire.headers)) as raw:
            listening.received = lambda: raw.num_bytes_downloaded
            if not is_stream(raw):
                content = await raw.aread()
                listening.hear(max(1, len(content) // _CHARS_A_TOKEN))
                document = error_body.document(content)
                return _Received(raw, wire.answer(document), document)
            reply, events = StreamedReply(self._spec.max_tokens), Events()
            async with aclosing(raw.aiter_bytes()) as blocks:
                async for block in blocks:
                    try:
                        tokens = sum(wire.add(event, reply) for event in events.read(block))
                    except ValueError:
                        reason = "a part of the answer is no JSON"
                        return TransientFailure(Ended.FAILED, reason, billed=True)
                    if tokens:
                        listening.hear(tokens)
                    reply.complete = reply.complete or events.done
                    if reply.complete or reply.ended or reply.error is not None:
                        break
                if reply.complete:
                    await read_to_end(blocks)
        if reply.error is not None:
            return _Received(raw, None, {"error": reply.error})
        if reply.begun and not reply.whole:
            reason = f"the connection ended after {listening.tokens} tokens of a reply"
            return TransientFailure(Ended.FAILED, reason, billed=True)
        if reply.begun and reply.usage is None:
            self._estimate(reply, prompt)
        return _Received(raw, reply.answer())

    def _estimate(self, reply: StreamedReply, prompt: Prompt) -> None:
        """Estimates the tokens of an answer that ended without a count, and logs it once."""
        if not reply.ended and not self._uncounted:
            self._uncounted = True
            message = "%s at %s counts no tokens of a streamed reply: they are estimated"
            log.warning(message, self._spec.name, self._spec.base_url)
        reply.estimate_usage(estimated(self._spec.system_of(prompt)) + estimated(prompt.user))

    def _without_answer(
        self, received: _Received, request: WireRequest, prompt: Prompt
    ) -> _AttemptResult:
        """Returns what a 200 without a completion means: the error in its body, or garbage."""
        error = error_body.error_in(received.document)
        if error is not None and error.status:
            result = self._refused(received.response, error.status, request, prompt, error)
            return replace(result, billed=True) if isinstance(result, TransientFailure) else result
        text = refusals.shown(self._spec, error.message if error else text_of(received.response))
        reason = f"not a chat completion: {text[:80]!r}"
        return TransientFailure(Ended.FAILED, reason, billed=True)

    def _refused(
        self,
        response: httpx2.Response,
        status: int,
        request: WireRequest,
        prompt: Prompt,
        known: ErrorBody | None = None,
    ) -> _AttemptResult:
        """Returns what a refusal means.

        Raises:
          PromptTooLong: The prompt is longer than the model takes.
          Misconfigured: No retry will change it.
        """
        spec = self._spec
        if response.request.method != "POST":
            address = str(response.request.url).partition("?")[0]
            raise Misconfigured(refusals.moved(spec, address.removesuffix(self._wire.path)))
        if via := refusals.by_proxy(spec, response, status):
            if refusals.transient(status, ()):
                return TransientFailure(Ended.FAILED, via)
            raise Misconfigured(f"{spec}: {via}")
        error = known or error_body.read(text_of(response))
        if refusals.withheld(error.kinds):
            withheld = Completion("", spec.name, "content_filter", role=prompt.role)
            return [replace(withheld, parameters=self.parameters(prompt))]
        found = overflow(status, error, spec.max_tokens)
        if found is not None:
            raise self._longest.refused(prompt, status, error.message, found)
        if refusals.transient(status, error.kinds):
            return refusals.repeated(spec, response, status, error)
        if self._wire.adapt(request, status, error):
            return None
        raise Misconfigured(refusals.refusal(spec, status, error)) from None

    def _report_failure(self, failure: TransientFailure, left: float) -> bool:
        """Reports a failed attempt to the breaker; returns whether it is open."""
        if self._breaker is None:
            return False
        if failure.retry_after_seconds > left:
            self._breaker.rest(failure.retry_after_seconds)
        elif failure.ended is not Ended.BUSY:
            self._breaker.failed()
        return self._breaker.open

    def _pause(self, attempt: int, failure: TransientFailure) -> float:
        """Draws the pause before the next attempt: full jitter on top of the `Retry-After`.

        After a first time-out there is none: the attempt has waited long enough.
        """
        if failure.ended is Ended.TIMED_OUT and not attempt:
            return 0.0
        most = min(_LONGEST_PAUSE_SECONDS, self._spec.retry_delay_seconds * 2.0**attempt)
        return failure.retry_after_seconds + self._jitter.uniform(0.0, most)
