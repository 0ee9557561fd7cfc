"""OpenAI-compatible chat, called synchronously: one request a prompt, retried within a deadline."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import sha256
from random import Random
from typing import Any

import openai

from app.adapters.model import chat
from app.adapters.model.chat import ModelSpec
from app.domain.operator import Completion, Prompt
from app.ports import Misconfigured, Unavailable

_AT_ONCE = 8  # requests of one call in flight; more calls bring more
_LONGEST_PAUSE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class _Passing:
    """Why one attempt came to nothing, though the next may not."""

    reason: str
    retry_after_seconds: float = 0.0
    cause: Exception | None = None


class OpenAIModel:
    """One or more models behind OpenAI-compatible endpoints.

    Safe to share between threads.  The client library's own retries are off: two layers of them
    multiply.
    """

    def __init__(
        self,
        specs: Sequence[ModelSpec],
        *,
        seed: int = 0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Prepares the clients; connects to nothing.

        Args:
          specs: The models; which one answers is drawn by weight for each prompt.
          seed: Of that draw, so that the same prompt of the same run meets the same model.
          sleep: Waits so many seconds.

        Raises:
          ValueError: There is no model, or none with a weight.
        """
        if not any(spec.weight > 0 for spec in specs):
            raise ValueError(f"no model with a weight above 0 among {len(specs)}")
        self._specs = tuple(specs)
        self._seed = seed
        self._sleep = sleep
        self._jitter = Random()  # differs between processes on purpose, and shapes no result
        self._clients = {
            (spec.base_url, spec.api_key): openai.OpenAI(
                base_url=spec.base_url,
                api_key=spec.api_key or "none",  # a local server asks for none, the client does
                max_retries=0,
            )
            for spec in specs
        }

    @property
    def name(self) -> str:
        return "+".join(spec.name for spec in self._specs)

    def complete(self, prompts: Sequence[Prompt]) -> list[Completion]:
        """Returns one completion a prompt, in order; several prompts are asked side by side.

        Raises:
          Misconfigured: The endpoint refuses what no retry will change.
          Unavailable: The endpoint did not answer within the deadline and the allowed attempts.
        """
        if len(prompts) <= 1:
            return [self._complete(prompt) for prompt in prompts]
        with ThreadPoolExecutor(min(len(prompts), _AT_ONCE)) as pool:
            return list(pool.map(self._complete, prompts))

    def close(self) -> None:
        """Closes the connections.  Idempotent."""
        for client in self._clients.values():
            client.close()

    def parameters(self, prompt: Prompt) -> dict[str, Any]:
        """Returns what shapes the answer to a prompt; see `Completion.parameters`."""
        spec = self._drawn(prompt)
        return chat.parameters(spec, chat.request(spec, prompt, self._sample_seed(prompt)))

    def _drawn(self, prompt: Prompt) -> ModelSpec:
        drawn = Random(f"{self._seed}/{prompt.role}/{prompt.sample}")
        [spec] = drawn.choices(self._specs, [spec.weight for spec in self._specs])
        return spec

    def _complete(self, prompt: Prompt) -> Completion:
        spec = self._drawn(prompt)
        if spec.preset.needs_key and not spec.api_key:
            raise Misconfigured(
                f"model {spec.name!r} at {spec.base_url} needs a key: set {spec.key_variable},"
                " or llm.base_url for another endpoint"
            )
        deadline = time.monotonic() + spec.deadline_seconds
        attempt = 0
        while True:
            timeout = min(spec.timeout_seconds, max(0.001, deadline - time.monotonic()))
            answer = self._ask(spec, prompt, timeout)
            if isinstance(answer, Completion):
                return replace(answer, parameters=self.parameters(prompt))
            pause = self._pause(spec, attempt, answer.retry_after_seconds)
            attempt += 1
            if attempt > spec.retries or time.monotonic() + pause >= deadline:
                raise Unavailable(
                    f"model {spec.name!r} at {spec.base_url}: {answer.reason}, after {attempt}"
                    " attempt(s). It is asked again later; if this lasts, check the endpoint"
                ) from answer.cause
            self._sleep(pause)

    def _pause(self, spec: ModelSpec, attempt: int, retry_after_seconds: float) -> float:
        """Draws the pause before the next attempt: full jitter on top of what was asked for."""
        most = min(_LONGEST_PAUSE_SECONDS, spec.retry_delay_seconds * 2.0**attempt)
        return retry_after_seconds + self._jitter.uniform(0.0, most)

    def _ask(self, spec: ModelSpec, prompt: Prompt, timeout: float) -> Completion | _Passing:
        client = self._clients[spec.base_url, spec.api_key].with_options(timeout=timeout)
        asked = chat.request(spec, prompt, self._sample_seed(prompt))
        started = time.monotonic()
        try:
            raw = client.chat.completions.with_raw_response.create(**asked)
        except openai.APIStatusError as error:
            if chat.withheld(error.code):
                return Completion("", spec.name, "content_filter", role=prompt.role)
            if not chat.passing(error.status_code, error.code):
                raise Misconfigured(chat.refusal(spec, error.status_code, error.message)) from error
            pause = chat.retry_after_seconds(error.response.headers)
            return _Passing(f"HTTP {error.status_code}", pause, error)
        except openai.APITimeoutError as error:
            return _Passing(f"no answer within {timeout:.1f} s", cause=error)
        except openai.OpenAIError as error:
            return _Passing(f"{error} ({error.__cause__!r})", cause=error)
        content = raw.http_response.content
        answer = chat.completion(spec, prompt, content, time.monotonic() - started)
        return answer or _Passing(f"not a chat completion: {content[:80]!r}")

    def _sample_seed(self, prompt: Prompt) -> int:
        """Returns a number below 2**31 that tells apart repeated draws of one text."""
        digest = sha256(f"{self._seed}/{prompt.role}/{prompt.sample}".encode()).digest()
        return int.from_bytes(digest[:4], "big") >> 1
