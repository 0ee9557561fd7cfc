"""One model behind an OpenAI-compatible endpoint: asked synchronously, answered on the exchange."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from hashlib import sha256
from random import Random
from typing import Any

import aiohttp
import httpx2
import openai

from app.adapters.model.congestion.circuit_breaker import Breaker
from app.adapters.model.congestion.gate import Ended, Outcome
from app.adapters.model.congestion.timeouts import Attempts
from app.adapters.model.providers import chat, refusals
from app.adapters.model.providers import error_body as said
from app.adapters.model.providers.chat import ModelSpec
from app.adapters.model.providers.http import Exchange
from app.adapters.model.providers.partial_results import all_ended, joined
from app.adapters.model.providers.refusals import Passing, Untaken
from app.domain.operator import Completion, Prompt
from app.ports.protocols import Misconfigured, Unavailable

_LONGEST_PAUSE_SECONDS = 60.0
_MOST_SAMPLES = 8  # Google's limit on candidates; more are asked for in several requests

log = logging.getLogger(__name__)


_Answer = list[Completion] | Passing | Untaken


class OpenAIModel:
    """Asks one model, again and again within a deadline.

    Safe to share between threads: what it learns of its endpoint is kept on the exchange's loop.
    """

    def __init__(
        self,
        spec: ModelSpec,
        exchange: Exchange,
        *,
        seed: int = 0,
        breaker: Breaker | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Prepares; connects to nothing.

        Args:
          spec: The model.
          exchange: The process's; not closed here.
          seed: Tells apart the runs whose prompts are alike.
          breaker: Is told of every attempt, and ends the retries once it is open.
          sleep: Waits so many seconds.
        """
        self._spec = spec
        self._exchange = exchange
        self._seed = seed
        self._breaker = breaker
        self._sleep = sleep
        self._jitter = Random()  # differs between processes on purpose, and shapes no result
        most = min(_MOST_SAMPLES, spec.max_in_flight, spec.parallel_generations or _MOST_SAMPLES)
        self._samples = most if spec.preset.samples else 1
        self._untaken: set[str] = set()
        self._attempts = Attempts(spec.min_timeout_seconds, spec.timeout_seconds)

    @property
    def name(self) -> str:
        return self._spec.name

    def complete(self, prompts: Sequence[Prompt]) -> list[Completion]:
        """Returns one completion a prompt, in order; all are asked side by side.

        Prompts that differ in `sample` alone are one request, where the endpoint takes `n`.

        Raises:
          Misconfigured: The endpoint refuses what no retry will change.
          Unavailable: The endpoint did not answer within the deadline and the allowed attempts.
        """
        spec = self._spec
        if spec.preset.needs_key and not spec.api_key:
            raise Misconfigured(
                f"model {spec.name!r} at {spec.base_url} needs a key: set {spec.key_variable},"
                " or llm.base_url for another endpoint"
            )
        if not prompts:
            return []
        # Twice: a place may be waited for as long as an answer.
        return self._exchange.run(self._every(prompts), 2 * spec.deadline_seconds)

    def parameters(self, prompt: Prompt) -> dict[str, Any]:
        """Returns what shapes the answer to a prompt; see `Completion.parameters`.

        It is what settings ask for: neither what the model was found not to take, nor with how many
        other samples the prompt shares a request.
        """
        asked = chat.request(self._spec, prompt, self._seed_of(prompt))
        return chat.parameters(self._spec, asked)

    async def _every(self, prompts: Sequence[Prompt]) -> list[Completion]:
        alike: dict[tuple[str, str, str], list[int]] = {}
        for place, one in enumerate(prompts):
            alike.setdefault((one.system, one.user, one.role), []).append(place)
        batches = [
            places[start : start + self._samples]
            for places in alike.values()
            for start in range(0, len(places), self._samples)
        ]
        if len(prompts) == 1:
            return await self._batch(prompts)
        asked = [self._batch([prompts[place] for place in batch]) for batch in batches]
        return joined(batches, await all_ended(asked))

    async def _batch(self, prompts: Sequence[Prompt]) -> list[Completion]:
        """Returns the answers to prompts of one text; those `n` did not bring are asked singly."""
        answers: list[Completion] = []
        if len(prompts) == 1 or self._samples > 1:
            answers = await self._answered(prompts)
        if len(answers) == len(prompts):
            return answers
        self._samples = 1
        missing = range(len(answers), len(prompts))
        ends = await all_ended([self._answered([prompts[place]]) for place in missing])
        return joined([range(len(answers)), *([place] for place in missing)], [answers, *ends])

    async def _answered(self, prompts: Sequence[Prompt]) -> list[Completion]:
        """Returns at least one answer; empty when the endpoint turns out to take no `n`."""
        spec = self._spec
        left, attempt, hung, unanswered = spec.deadline_seconds, 0, 0, 0
        loop = asyncio.get_running_loop()
        while True:
            await self._place(len(prompts), again=attempt > 0)
            started = loop.time()
            last = attempt == spec.retries
            bound = self._attempts.limited(min(spec.timeout_seconds, left), None if last else hung)
            answer = await self._attempt(prompts, bound)
            left -= loop.time() - started
            if isinstance(answer, list):
                return [replace(one, unanswered=unanswered) for one in answer]
            if isinstance(answer, Untaken):
                if self._leave_out(answer) == "n":
                    return []
                continue
            hung += answer.ended is Ended.TIMED_OUT
            unanswered += answer.billed
            pause, attempt = self._pause(attempt, answer), attempt + 1
            if self._given_up(answer, left) or attempt > spec.retries or pause >= left:
                told, lost = refusals.given_up(spec, answer, attempt), unanswered * len(prompts)
                raise Unavailable(told, unanswered=lost) from answer.cause
            left -= pause
            await self._sleep(pause)

    async def _place(self, samples: int, *, again: bool) -> None:
        spec = self._spec
        try:
            async with asyncio.timeout(spec.deadline_seconds):
                await self._exchange.gate(spec).acquire(samples, again=again)
        except TimeoutError as error:
            raise Unavailable(
                f"model {spec.name!r} at {spec.base_url}: none of its places became free within "
                f"{spec.deadline_seconds:g} s; raise llm.max_in_flight if the endpoint can do more"
            ) from error

    async def _attempt(
        self, prompts: Sequence[Prompt], bound: AbstractAsyncContextManager[None]
    ) -> _Answer:
        loop = asyncio.get_running_loop()
        started, ended, retry_after = loop.time(), Ended.LEFT, 0.0
        try:
            answer = await self._ask(prompts, bound)
            ended = Ended.ANSWERED if isinstance(answer, list) else Ended.REFUSED
            if isinstance(answer, Passing):
                ended, retry_after = answer.ended, answer.retry_after_seconds
            elif self._breaker is not None:
                self._breaker.answered()
            return answer
        except Misconfigured:
            ended = Ended.REFUSED
            raise
        finally:
            took = loop.time() - started
            outcome = Outcome(ended, took, retry_after, len(prompts))
            await self._exchange.gate(self._spec).release(outcome)

    async def _ask(
        self, prompts: Sequence[Prompt], bound: AbstractAsyncContextManager[None]
    ) -> _Answer:
        spec, first = self._spec, prompts[0]
        body = chat.request(
            spec, first, self._seed_of(first), samples=len(prompts), untaken=self._untaken
        )
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            async with bound:
                # The typed call would walk the body to rename nothing: a third of a call's time.
                response = await self._exchange.client(spec).post(
                    "/chat/completions", cast_to=httpx2.Response, body=body
                )
        except openai.APIStatusError as error:
            return self._refused(error.response, error.status_code, body, first)
        except TimeoutError as error:
            waited = loop.time() - started
            reason = f"no answer within {waited:.1f} s"
            return Passing(Ended.TIMED_OUT, reason, cause=error, billed=True)
        except (openai.OpenAIError, aiohttp.ClientError) as error:
            return refusals.broken(error)
        took = loop.time() - started
        self._attempts.answered(took)
        answers = chat.completions(spec, prompts, response.content, took)
        if not answers:
            return self._no_completion(response, body, first)
        return [
            replace(answer, parameters=self.parameters(prompt))
            for answer, prompt in zip(answers, prompts, strict=False)
        ]

    def _no_completion(
        self, response: httpx2.Response, body: dict[str, Any], prompt: Prompt
    ) -> _Answer:
        """Returns what a 200 that answers nothing means: an error that it tells of, or garbage."""
        found = said.error_in(said.document(response.content))
        if found is not None and found.status:
            answer = self._refused(response, found.status, body, prompt)
            return replace(answer, billed=True) if isinstance(answer, Passing) else answer
        text = refusals.shown(self._spec, response.text)
        return Passing(Ended.FAILED, f"not a chat completion: {text[:80]!r}", billed=True)

    def _refused(
        self, response: httpx2.Response, status: int, body: dict[str, Any], prompt: Prompt
    ) -> _Answer:
        if response.request.method != "POST":
            raise Misconfigured(refusals.moved(self._spec, str(response.url)))
        found = said.read(response.text)
        if refusals.withheld(found.kinds):
            withheld = Completion("", self._spec.name, "content_filter", role=prompt.role)
            return [replace(withheld, parameters=self.parameters(prompt))]
        if refusals.passing(status, found.kinds):
            return Passing(
                Ended.BUSY if refusals.busy(status) else Ended.FAILED,
                f"HTTP {status}",
                refusals.retry_after_seconds(response.headers, response.text),
                said=refusals.shown(self._spec, found.message),
            )
        untaken = refusals.parameter(body, status, found)
        if untaken is not None:
            return Untaken(untaken, refusals.shown(self._spec, found.message))
        raise Misconfigured(refusals.refusal(self._spec, status, found)) from None

    def _leave_out(self, found: Untaken) -> str:
        """Remembers what the model does not take, and says so once."""
        if found.parameter not in self._untaken:
            self._untaken.add(found.parameter)
            told = "%s does not take %s, which is left out from now on: %s"
            log.warning(told, self._spec.name, found.parameter, found.message)
        return found.parameter

    def _given_up(self, answer: Passing, left: float) -> bool:
        """Tells the breaker of a failed attempt; returns whether others should be asked now."""
        if self._breaker is None:
            return False
        if answer.retry_after_seconds > left:
            self._breaker.rest(answer.retry_after_seconds)
        elif answer.ended is not Ended.BUSY:
            self._breaker.failed()
        return self._breaker.open

    def _pause(self, attempt: int, answer: Passing) -> float:
        """Draws the pause before the next attempt: full jitter on top of what was asked for.

        After a first time-out there is none: it was waited long enough.
        """
        if answer.ended is Ended.TIMED_OUT and not attempt:
            return 0.0
        most = min(_LONGEST_PAUSE_SECONDS, self._spec.retry_delay_seconds * 2.0**attempt)
        return answer.retry_after_seconds + self._jitter.uniform(0.0, most)

    def _seed_of(self, prompt: Prompt) -> int:
        """Returns a number below 2**31 that tells apart repeated draws of one text."""
        digest = sha256(f"{self._seed}/{prompt.role}/{prompt.sample}".encode()).digest()
        return int.from_bytes(digest[:4], "big") >> 1
