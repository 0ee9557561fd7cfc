"""The wire form of an endpoint: what is sent to a model, and what is read of its answers.

A provider with another API is a module with such a form.  When an endpoint is asked, how often and
for how long, is the same for all of them: see `attempts`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Protocol

from openai import AsyncOpenAI

from app.adapters.model.providers.error_body import ErrorBody
from app.adapters.model.providers.spec import ModelSpec
from app.adapters.model.providers.streamed_reply import (
    Answer,
    AnswerChoice,
    StreamedReply,
    TokenUsage,
)
from app.domain.operator import Completion, Prompt, ReplyForm


@dataclass(frozen=True, slots=True)
class WireRequest:
    """One request for completions of one text.

    Attributes:
      body: Its JSON object.
      form: The form to which the reply is bound; None for a free reply.
    """

    body: Mapping[str, object]
    form: ReplyForm | None = None


class Wire(Protocol):
    """The wire form of one model, with what its endpoint's answers have shown; on one event loop.

    The error in a body of any known form is read by `error_body`.
    """

    @property
    def spec(self) -> ModelSpec: ...

    @property
    def path(self) -> str:
        """Path of a request, after the address of the endpoint."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers with the key; empty: the key is sent in `Authorization`, as OpenAI's."""
        ...

    @property
    def samples(self) -> int:
        """Most completions for which one request asks, >= 1; it may fall."""
        ...

    def parameters(self, prompt: Prompt) -> Mapping[str, object]:
        """Returns the fields of a request that shape its answer, as the settings have them."""
        ...

    async def request(self, client: AsyncOpenAI, prompts: Sequence[Prompt]) -> WireRequest:
        """Returns a request for a streamed answer, where the endpoint gives one.

        Args:
          client: Of the endpoint, which may be asked for its description.
          prompts: They differ in `sample` alone.
        """
        ...

    def add(self, event: object, reply: StreamedReply) -> int:
        """Adds the value of an event to a streamed reply; returns about how many tokens it has."""
        ...

    def answer(self, document: object) -> Answer | None:
        """Returns the answer in a body that is not streamed; None where it is no completion."""
        ...

    def answered(self, request: WireRequest, answer: Answer) -> Answer:
        """Learns from an answer with a text; returns the answer with what the request began."""
        ...

    def adapt(self, request: WireRequest, status: int, error: ErrorBody) -> bool:
        """Leaves out of all further requests what a refusal says that the model does not take.

        Returns:
          Whether the request can be repeated without it.
        """
        ...


def seed_of(seed: int, prompt: Prompt) -> int:
    """Returns a number below 2**31 that distinguishes repeated draws of one text.

    Args:
      seed: Of the run.
      prompt: What is asked.
    """
    digest = sha256(f"{seed}/{prompt.role}/{prompt.sample}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def batches(prompts: Sequence[Prompt], most: int) -> list[list[int]]:
    """Returns the positions of prompts that differ in `sample` alone, at most so many together."""
    alike: dict[Prompt, list[int]] = {}
    for position, prompt in enumerate(prompts):
        alike.setdefault(replace(prompt, sample=0), []).append(position)
    return [
        positions[start : start + most]
        for positions in alike.values()
        for start in range(0, len(positions), most)
    ]


def shaping(spec: ModelSpec, fields: Mapping[str, object]) -> dict[str, object]:
    """Returns what shapes an answer beside its prompt; see `Completion.parameters`.

    Args:
      spec: The model.
      fields: Of the request, without the prompt.
    """
    shaped = {**fields, "endpoint": spec.base_url.rpartition("://")[2].rpartition("@")[2]}
    return shaped if spec.system_message is None else shaped | {"system": spec.system_message}


def completions(
    spec: ModelSpec,
    prompts: Sequence[Prompt],
    answer: Answer,
    latency_seconds: float,
    parameters: Callable[[Prompt], Mapping[str, object]],
) -> list[Completion]:
    """Returns as many completions as there are choices, at most one a prompt.

    A completion without a text is an empty answer.  Usage is that of the whole request: the
    prompt's tokens count with the first completion, and those of the answers are divided by length
    where the endpoint does not count each, so that the sums agree; without usage, no cost is known.

    Args:
      spec: The model.
      prompts: Of the request.
      answer: To the request.
      latency_seconds: From sending to the end of the answer.
      parameters: Returns what shapes the answer to a prompt.
    """
    choices = answer.choices[: len(prompts)]
    counted = answer.usage is not None and answer.usage != TokenUsage()
    return [
        Completion(
            text=choice.text,
            model=spec.name,
            finish=choice.finish,
            prompt_tokens=part.prompt,
            completion_tokens=part.completion,
            latency_seconds=latency_seconds,
            cost_usd=_cost_usd(spec, part) if counted else None,
            cached_tokens=part.cached,
            role=prompt.role,
            revision="@".join(name for name in answer.names if name not in ("", spec.name)),
            parameters=parameters(prompt),
        )
        for prompt, choice, part in zip(
            prompts, choices, _divided(answer.usage or TokenUsage(), choices), strict=False
        )
    ]


def _cost_usd(spec: ModelSpec, usage: TokenUsage) -> float | None:
    """Returns the price of so many tokens; None where it is not known."""
    if spec.prompt_usd is None or spec.completion_usd is None:
        return None
    cached_usd = spec.prompt_usd if spec.cached_usd is None else spec.cached_usd
    fresh = usage.prompt - usage.cached
    paid = fresh * spec.prompt_usd + usage.cached * cached_usd
    return (paid + usage.completion * spec.completion_usd) / 1e6


def _divided(usage: TokenUsage, choices: Sequence[AnswerChoice]) -> list[TokenUsage]:
    """Returns the part of each choice; the sum of all parts is the whole."""
    parts, left, letters = [], usage.completion, sum(len(choice.text) for choice in choices)
    for choice in choices[1:]:
        tokens = choice.tokens
        if tokens is None:
            tokens = usage.completion * len(choice.text) // letters if letters else 0
        parts.append(TokenUsage(completion=tokens))
        left -= tokens
    return [replace(usage, completion=left), *parts]
