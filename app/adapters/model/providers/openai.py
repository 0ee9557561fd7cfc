"""One model behind an OpenAI-compatible endpoint: called by threads, answered on the event loop."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from random import Random
from typing import Any, TypeAlias

import aiohttp

from app.adapters.model.congestion.circuit_breaker import CircuitBreaker
from app.adapters.model.congestion.gate import Ended, RequestResult
from app.adapters.model.congestion.timeouts import Attempts
from app.adapters.model.providers import chat, error_body, refusals
from app.adapters.model.providers.event_loop import ModelLoop
from app.adapters.model.providers.http_session import HttpResponse, post_json
from app.adapters.model.providers.longest_prompt import LongestPrompt
from app.adapters.model.providers.overflow import overflow
from app.adapters.model.providers.partial_results import merged, partial_results
from app.adapters.model.providers.proxies import answered_by_proxy, environment_proxy
from app.adapters.model.providers.refusals import TransientFailure, UnsupportedParameter
from app.adapters.model.providers.spec import ModelSpec
from app.domain.operator import Completion, Prompt
from app.ports.protocols import NEVER, Misconfigured, Stop, Stopped, Unavailable

_LONGEST_PAUSE_SECONDS = 60.0
_MOST_SAMPLES = 8  # Google's limit on candidates; more take several requests

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
        self._address = spec.base_url.rstrip("/") + "/chat/completions"
        self._model_loop = model_loop
        self._seed = seed
        self._breaker = breaker
        self._sleep = sleep
        self._jitter = Random()  # differs between processes on purpose, and shapes no result
        most = min(_MOST_SAMPLES, spec.max_in_flight, spec.parallel_generations or _MOST_SAMPLES)
        self._samples = most if spec.preset.samples else 1
        self._unsupported: set[str] = set()
        self._longest = LongestPrompt(spec)
        self._attempts = Attempts(spec.min_timeout_seconds, spec.timeout_seconds)

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
        # Twice the deadline: the wait for a slot may be as long as the wait for an answer.
        return self._model_loop.run(self._complete(prompts), 2 * spec.deadline_seconds, stop)

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
        loop = asyncio.get_running_loop()
        while True:
            await self._acquire(len(prompts), again=attempt > 0)
            started = loop.time()
            earlier = None if attempt == spec.retries else timeouts
            limit = self._attempts.limited(min(spec.timeout_seconds, left), earlier)
            try:
                result = await self._attempt(prompts, limit)
            except asyncio.CancelledError:
                lost = (unanswered + 1) * len(prompts)
                raise Stopped("a request was dropped", unanswered=lost) from None
            left -= loop.time() - started
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

    async def _attempt(
        self, prompts: Sequence[Prompt], limit: AbstractAsyncContextManager[None]
    ) -> _AttemptResult:
        """Makes one attempt, and reports its result to the gate and the breaker."""
        loop = asyncio.get_running_loop()
        started, ended, retry_after = loop.time(), Ended.LEFT, 0.0
        try:
            result = await self._request(prompts, limit)
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
            request_result = RequestResult(ended, loop.time() - started, retry_after, len(prompts))
            await self._model_loop.gate(self._spec).release(request_result)

    async def _request(
        self, prompts: Sequence[Prompt], limit: AbstractAsyncContextManager[None]
    ) -> _AttemptResult:
        spec, first = self._spec, prompts[0]
        seed = chat.seed_of(self._seed, first)
        body = chat.request(spec, first, seed, samples=len(prompts), unsupported=self._unsupported)
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            async with limit:
                response = await post_json(self._model_loop.session(spec), self._address, body)
        except TimeoutError as error:
            reason = f"no answer within {loop.time() - started:.1f} s"
            return TransientFailure(Ended.TIMED_OUT, reason, cause=error, billed=True)
        except aiohttp.ClientError as error:
            return refusals.broken(spec, error)
        if not 200 <= response.status < 300:
            return self._refused(response, response.status, body, first)
        seconds = loop.time() - started
        self._attempts.answered(seconds)
        completions = chat.completions(spec, prompts, response.content, seconds)
        if not completions:
            return self._without_completion(response, body, first)
        self._longest.answered(first)
        return [
            replace(completion, parameters=self.parameters(prompt))
            for completion, prompt in zip(completions, prompts, strict=False)
        ]

    def _without_completion(
        self, response: HttpResponse, body: dict[str, Any], prompt: Prompt
    ) -> _AttemptResult:
        """Returns what a 200 without a completion means: the error in its body, or garbage."""
        error = error_body.error_in(error_body.document(response.content))
        if error is not None and error.status:
            result = self._refused(response, error.status, body, prompt)
            return replace(result, billed=True) if isinstance(result, TransientFailure) else result
        text = refusals.shown(self._spec, response.text)
        reason = f"not a chat completion: {text[:80]!r}"
        return TransientFailure(Ended.FAILED, reason, billed=True)

    def _refused(
        self, response: HttpResponse, status: int, body: dict[str, Any], prompt: Prompt
    ) -> _AttemptResult:
        if response.method != "POST":
            raise Misconfigured(refusals.moved(self._spec, response.url))
        proxy = environment_proxy(self._spec.base_url)
        if proxy and answered_by_proxy(status, response.headers, response.text):
            return refusals.refused_by_proxy(self._spec, proxy, status)
        error = error_body.read(response.text)
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
        if unsupported is not None:
            return UnsupportedParameter(unsupported, message)
        raise Misconfigured(refusals.refusal(self._spec, status, error)) from None

    def _leave_out(self, unsupported: UnsupportedParameter) -> None:
        """Leaves a parameter out of all further requests, and logs it once."""
        if unsupported.parameter not in self._unsupported:
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
