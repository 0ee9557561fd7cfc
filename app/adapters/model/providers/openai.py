"""One model behind an OpenAI-compatible endpoint: called by threads, answered on the event loop."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from random import Random
from typing import Any, TypeAlias

import openai

from app.adapters.model.congestion.circuit_breaker import CircuitBreaker
from app.adapters.model.congestion.gate import Ended, RequestResult
from app.adapters.model.congestion.silence import Listening, Silence
from app.adapters.model.providers import chat, error_body, refusals
from app.adapters.model.providers.bound_replies import BoundReplies
from app.adapters.model.providers.error_body import ErrorBody
from app.adapters.model.providers.event_loop import ModelLoop
from app.adapters.model.providers.events import Events
from app.adapters.model.providers.http_client import (
    HttpResponse,
    is_stream,
    post,
    read_to_end,
    response_of,
)
from app.adapters.model.providers.longest_prompt import LongestPrompt
from app.adapters.model.providers.overflow import overflow
from app.adapters.model.providers.partial_results import merged, partial_results
from app.adapters.model.providers.refusals import TransientFailure, UnsupportedParameter
from app.adapters.model.providers.spec import ModelSpec
from app.adapters.model.providers.streamed_reply import StreamedReply
from app.domain.operator import Completion, Prompt
from app.ports.protocols import NEVER, Misconfigured, Stop, Stopped, Unavailable

_LONGEST_PAUSE_SECONDS = 60.0
_CHARS_A_TOKEN = 4
_MOST_SAMPLES = 8
"""Google's limit on candidates; more samples take several requests."""

_OPENING = "the beginning of a reply"

log = logging.getLogger(__name__)

_AttemptResult: TypeAlias = list[Completion] | TransientFailure | UnsupportedParameter


class OpenAIModel:
    """Asks one model, repeatedly within a deadline.

    Safe to share between threads: what it learns of its endpoint is kept on the event loop.
    """

    def __init__(
        self,
        spec: ModelSpec,
        model_loop: ModelLoop,
        *,
        seed: int = 0,
        breaker: CircuitBreaker | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Connects to nothing.

        Args:
          spec: The model.
          model_loop: The process's; not closed here.
          seed: Distinguishes runs with equal prompts.
          breaker: Receives the result of every attempt, and ends the retries once it is open.
          sleep: Waits so many seconds.
        """
        self._spec = spec
        self._model_loop = model_loop
        self._seed = seed
        self._breaker = breaker
        self._sleep = sleep
        # The jitter differs between processes on purpose, and affects no result.
        self._jitter = Random()
        most = min(_MOST_SAMPLES, spec.max_in_flight, spec.parallel_generations or _MOST_SAMPLES)
        self._samples = most if spec.preset.samples else 1
        self._unsupported: set[str] = set()
        self._longest = LongestPrompt(spec)
        self._silence = Silence(spec.min_timeout_seconds, spec.timeout_seconds)
        self._bound = BoundReplies(spec)
        self._uncounted = False

    @property
    def name(self) -> str:
        return self._spec.name

    @property
    def places(self) -> int:
        """See `LanguageModel.places`."""
        return self._model_loop.places(self._spec)

    def parameters(self, prompt: Prompt) -> dict[str, Any]:
        """Returns what shapes the answer to a prompt; see `Completion.parameters`.

        These are the parameters of the settings, whether the model supports them or not, and
        whether the prompt shares a request with other samples or not.
        """
        body = chat.request(self._spec, prompt, chat.seed_of(self._seed, prompt))
        return chat.parameters(self._spec, body)

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
                f"model {spec.name!r} at {spec.base_url} needs a key: set {spec.key_variable}"
                " where the workers are started, or give the model the base_url of an endpoint"
                " that needs none"
            )
        if not prompts:
            return []
        self._longest.check(prompts)
        # Without a limit: a reply may be written for any time, and every other wait has its own.
        return self._model_loop.run(self._complete(prompts), None, stop)

    async def _complete(self, prompts: Sequence[Prompt]) -> list[Completion]:
        if len(prompts) == 1:
            return await self._batch(prompts)
        batches = chat.batches(prompts, self._samples)
        parts = [self._batch([prompts[place] for place in batch]) for batch in batches]
        return merged(batches, await partial_results(parts))

    async def _batch(self, prompts: Sequence[Prompt]) -> list[Completion]:
        """Returns the completions of prompts of one text; those that `n` left out, singly."""
        completions: list[Completion] = []
        if len(prompts) == 1 or self._samples > 1:
            completions = await self._with_retries(prompts)
        if len(completions) == len(prompts):
            return completions
        self._samples = 1
        missing = range(len(completions), len(prompts))
        results = await partial_results([self._with_retries([prompts[n]]) for n in missing])
        positions = [range(len(completions)), *([n] for n in missing)]
        return merged(positions, [completions, *results])

    async def _with_retries(self, prompts: Sequence[Prompt]) -> list[Completion]:
        """Returns at least one completion; none when the endpoint turns out to take no `n`."""
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
            if isinstance(result, UnsupportedParameter):
                self._leave_out(result)
                if result.parameter == "n":
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
                f"model {spec.name!r} at {spec.base_url}: none of its places became free within "
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
        seed = chat.seed_of(self._seed, first)
        body = chat.request(spec, first, seed, samples=len(prompts), unsupported=self._unsupported)
        body = self._streamed(body)
        form = await self._bound.form(self._model_loop.client(spec), first)
        if form is not None:
            body = self._bound.body(body, form)
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            async with listening.limited():
                answer = await self._answer(body, listening)
        except TimeoutError as error:
            return TransientFailure(Ended.TIMED_OUT, listening.silence, cause=error, billed=True)
        except openai.APIStatusError as error:
            return self._refused(response_of(error.response), error.status_code, body, first)
        except refusals.BROKEN as error:
            return refusals.broken(error, spec.base_url, tokens=listening.tokens)
        if isinstance(answer, TransientFailure):
            return answer
        response, value = answer
        seconds = loop.time() - started
        completions = chat.completions(spec, prompts, value, seconds)
        if not completions:
            return self._without_completion(response, value, body, first)
        self._longest.answered(first)
        if form is None:
            self._bound.learn(completions, value)
        else:
            completions = self._bound.whole(completions, form)
        return [
            replace(completion, parameters=self.parameters(prompt))
            for completion, prompt in zip(completions, prompts, strict=False)
        ]

    def _streamed(self, body: dict[str, Any]) -> dict[str, Any]:
        """Returns the body of a request for a streamed answer, where the endpoint gives one."""
        if "stream" in self._unsupported or not body.get("stream", True):
            return body
        counted = {} if "stream_options" in self._unsupported else {"include_usage": True}
        return {"stream": True, **({"stream_options": counted} if counted else {}), **body}

    async def _answer(
        self, body: dict[str, Any], listening: Listening
    ) -> tuple[HttpResponse, Any] | TransientFailure:
        """Returns an answer and the value in it, or why it broke off; reports its tokens."""
        client = self._model_loop.client(self._spec)
        async with aclosing(await post(client, "/chat/completions", body)) as raw:
            listening.received = lambda: raw.num_bytes_downloaded
            if not is_stream(raw):
                content = await raw.aread()
                listening.hear(max(1, len(content) // _CHARS_A_TOKEN))
                return response_of(raw), error_body.document(content)
            reply, events = StreamedReply(self._spec.max_tokens), Events()
            async with aclosing(raw.aiter_bytes()) as blocks:
                async for block in blocks:
                    try:
                        tokens = sum(map(reply.add, events.read(block)))
                    except ValueError:
                        reason = "a part of the answer is no JSON"
                        return TransientFailure(Ended.FAILED, reason, billed=True)
                    if tokens:
                        listening.hear(tokens)
                    if events.done or reply.ended or reply.error is not None:
                        break
                if events.done:
                    await read_to_end(blocks)
        response = HttpResponse(
            raw.status_code, raw.request.method, str(raw.request.url), raw.headers, b""
        )
        if reply.error is not None:
            return response, {"error": reply.error}
        value = reply.document()
        if reply.choices and not (reply.finished or reply.ended or events.done):
            reason = f"the connection ended after {listening.tokens} tokens of a reply"
            return TransientFailure(Ended.FAILED, reason, billed=True)
        if reply.choices and reply.usage is None:
            value["usage"] = self._estimated(reply, body)
        return response, value

    def _estimated(self, reply: StreamedReply, body: dict[str, Any]) -> dict[str, int]:
        """Returns the tokens of an answer that ended without a count, and logs it once."""
        if not reply.ended and not self._uncounted:
            self._uncounted = True
            message = "%s at %s counts no tokens of a streamed reply: they are estimated"
            log.warning(message, self._spec.name, self._spec.base_url)
        return reply.estimated_usage(body["messages"])

    def _without_completion(
        self, response: HttpResponse, value: Any, body: dict[str, Any], prompt: Prompt
    ) -> _AttemptResult:
        """Returns what a 200 without a completion means: the error in its body, or garbage."""
        error = error_body.error_in(value)
        if error is not None and error.status:
            result = self._refused(response, error.status, body, prompt, error)
            return replace(result, billed=True) if isinstance(result, TransientFailure) else result
        text = refusals.shown(self._spec, error.message if error else response.text)
        reason = f"not a chat completion: {text[:80]!r}"
        return TransientFailure(Ended.FAILED, reason, billed=True)

    def _refused(
        self,
        response: HttpResponse,
        status: int,
        body: dict[str, Any],
        prompt: Prompt,
        known: ErrorBody | None = None,
    ) -> _AttemptResult:
        if response.method != "POST":
            raise Misconfigured(refusals.moved(self._spec, response.url))
        if via := refusals.by_proxy(self._spec.base_url, status, response.headers, response.text):
            if refusals.transient(status, ()):
                return TransientFailure(Ended.FAILED, via)
            raise Misconfigured(f"model {self._spec.name!r} at {self._spec.base_url}: {via}")
        error = known or error_body.read(response.text)
        if refusals.withheld(error.kinds):
            withheld = Completion("", self._spec.name, "content_filter", role=prompt.role)
            return [replace(withheld, parameters=self.parameters(prompt))]
        found = overflow(status, error, self._spec.max_tokens)
        if found is not None:
            raise self._longest.refused(prompt, status, error.message, found)
        message = refusals.shown(self._spec, error.message)
        if refusals.transient(status, error.kinds):
            return TransientFailure(
                Ended.BUSY if refusals.busy(status) else Ended.FAILED,
                f"HTTP {status}",
                refusals.retry_after_seconds(response.headers, response.text),
                message=message,
            )
        unsupported = refusals.unsupported_parameter(body, status, error)
        opened = body["messages"][-1]["role"] == "assistant"
        if status in (400, 422) and opened and unsupported != "n":
            return UnsupportedParameter(_OPENING, message)
        if unsupported is not None:
            return UnsupportedParameter(unsupported, message)
        raise Misconfigured(refusals.refusal(self._spec, status, error)) from None

    def _leave_out(self, unsupported: UnsupportedParameter) -> None:
        """Leaves a parameter out of all further requests, and logs it once."""
        if unsupported.parameter == _OPENING:
            self._bound.give_up(unsupported.message)
        elif unsupported.parameter not in self._unsupported:
            self._unsupported.add(unsupported.parameter)
            message = "%s does not take %s, which is left out from now on: %s"
            log.warning(message, self._spec.name, unsupported.parameter, unsupported.message)

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
