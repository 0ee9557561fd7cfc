"""The chat protocol as plain values: the body of a request, and the completions of an answer."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from app.adapters.model.providers.spec import ModelSpec
from app.domain.operator import Completion, Prompt

_HIGHEST_TEMPERATURE = 2.0
_MOST_TOKENS = 2**31 - 1
"""The ledger's largest number of tokens; a larger count is ignored."""


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


def request(
    spec: ModelSpec,
    prompt: Prompt,
    seed: int,
    *,
    samples: int = 1,
    unsupported: Collection[str] = (),
) -> dict[str, Any]:
    """Returns the body of a chat request.

    Args:
      spec: The model.
      prompt: What to ask.
      seed: Of the draw, where the endpoint takes one.
      samples: Number of answers to ask for.
      unsupported: Parameters that this model does not take.
    """
    system = prompt.system if spec.system_message is None else spec.system_message
    body: dict[str, Any] = {
        "model": spec.name,
        "messages": [
            *([{"role": "system", "content": system}] if system else []),
            {"role": "user", "content": prompt.user},
        ],
    }
    optional = {
        "max_tokens": spec.max_tokens,
        "temperature": _temperature(spec, prompt),
        "top_p": spec.top_p,
        "reasoning_effort": spec.reasoning_effort,
        "seed": seed if spec.seeded else None,
        "n": samples if samples > 1 else None,
    }
    body |= {name: value for name, value in optional.items() if value is not None}
    shaped = dict(spec.preset.shape(body))
    if "max_tokens" in unsupported and "max_tokens" in shaped:
        shaped["max_completion_tokens"] = shaped["max_tokens"]
    return {k: v for k, v in shaped.items() if k not in unsupported} | dict(spec.extra_body)


def _temperature(spec: ModelSpec, prompt: Prompt) -> float | None:
    if spec.temperature is None:
        return None
    return min(_HIGHEST_TEMPERATURE, spec.temperature + prompt.warmer)


def parameters(spec: ModelSpec, body: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what shapes the answer to a request beside its prompt; see `Completion.parameters`.

    Args:
      spec: The model.
      body: The result of `request`.
    """
    shaping = {name: value for name, value in body.items() if name != "messages"}
    shaping["endpoint"] = spec.base_url.rpartition("://")[2].rpartition("@")[2]
    if spec.system_message is not None:
        shaping["system"] = spec.system_message
    return shaping


def completions(
    spec: ModelSpec, prompts: Sequence[Prompt], answer: object, latency_seconds: float
) -> list[Completion]:
    """Reads the value of a 200: as many completions as there are choices, at most one a prompt.

    A completion without a text is an empty answer.  A body without choices gives an empty list, and
    a choice that broke off behind the endpoint is left out.  Usage is that of the whole request:
    the prompt's tokens count with the first completion, and those of the answers are divided by
    length, so that the sums agree; without usage, no cost is known.
    """
    match answer:
        case {"choices": [*choices], **rest}:
            answers = [answer for answer in map(_answer, choices) if answer is not None]
        case _:
            return []
    usage = rest.get("usage")
    answers = answers[: len(prompts)]
    total = _usage(usage if isinstance(usage, dict) else {})
    parts = _divided(total, [len(answer.text) for answer in answers])
    counted = total.prompt > 0 or total.completion > 0
    return [
        Completion(
            text=answer.text,
            model=spec.name,
            finish=answer.finish,
            prompt_tokens=part.prompt,
            completion_tokens=part.completion,
            latency_seconds=latency_seconds,
            cost_usd=_cost_usd(spec, part) if counted else None,
            cached_tokens=part.cached,
            role=prompt.role,
            revision=_revision(spec, rest),
        )
        for prompt, answer, part in zip(prompts, answers, parts, strict=False)
    ]


@dataclass(frozen=True, slots=True)
class _Answer:
    """The text of one choice, and how it ended."""

    text: str
    finish: str


def _answer(choice: object) -> _Answer | None:
    match choice:
        # OpenRouter reports an error in a choice so; see `error_body.error_in`.
        case {"error": {}} | {"finish_reason": "error"}:
            return None
        case {"message": {**message}, **rest}:
            text, finish = content_text(message.get("content")), rest.get("finish_reason")
            refusal = message.get("refusal")
            if not text and isinstance(refusal, str):
                return _Answer(refusal, "refusal")
            return _Answer(text, finish if isinstance(finish, str) else "")
    return None


def content_text(content: Any) -> str:
    """Returns the text of a message; Mistral's reasoning models send it in parts.

    Source: https://docs.mistral.ai/capabilities/reasoning.
    """
    match content:
        case str():
            return content
        case [*parts]:
            return "".join(
                part["text"]
                for part in parts
                if isinstance(part, dict) and isinstance(part.get("text"), str)
            )
    return ""


@dataclass(frozen=True, slots=True)
class _TokenUsage:
    """Tokens of one completion; `cached` is a part of `prompt`."""

    prompt: int
    cached: int
    completion: int


def _usage(usage: Mapping[str, Any]) -> _TokenUsage:
    prompt, details = _count(usage, "prompt_tokens"), usage.get("prompt_tokens_details")
    cached = _count(details, "cached_tokens") if isinstance(details, dict) else 0
    # DeepSeek calls the cached tokens `prompt_cache_hit_tokens`.
    cached = cached or _count(usage, "prompt_cache_hit_tokens")
    completion = _count(usage, "completion_tokens")
    # Gemini's endpoint counts the tokens of its reasoning in the total alone.
    completion = max(completion, _count(usage, "total_tokens") - prompt)
    return _TokenUsage(prompt, min(prompt, cached), completion)


def _divided(usage: _TokenUsage, lengths: Sequence[int]) -> list[_TokenUsage]:
    """Returns the part of each answer; the sum of all parts is the whole."""
    parts, left, letters = [], usage.completion, sum(lengths)
    for length in lengths[1:]:
        tokens = usage.completion * length // letters if letters else 0
        parts.append(_TokenUsage(0, 0, tokens))
        left -= tokens
    return [_TokenUsage(usage.prompt, usage.cached, left), *parts]


def cost_usd(spec: ModelSpec, *, prompt: int, cached: int, completion: int) -> float | None:
    """Returns the price of so many tokens, `cached` of the prompt's; None where it is not known."""
    return _cost_usd(spec, _TokenUsage(prompt, cached, completion))


def _cost_usd(spec: ModelSpec, usage: _TokenUsage) -> float | None:
    if spec.prompt_usd is None or spec.completion_usd is None:
        return None
    cached_usd = spec.prompt_usd if spec.cached_usd is None else spec.cached_usd
    fresh = usage.prompt - usage.cached
    paid = fresh * spec.prompt_usd + usage.cached * cached_usd
    return (paid + usage.completion * spec.completion_usd) / 1e6


def _revision(spec: ModelSpec, body: Mapping[Any, Any]) -> str:
    names = (body.get("model"), body.get("system_fingerprint"))
    return "@".join(name for name in names if isinstance(name, str) and name not in ("", spec.name))


def _count(usage: Mapping[str, Any], name: str) -> int:
    """Returns a number of tokens; some servers write it as 12.0."""
    value = usage.get(name)
    return int(value) if isinstance(value, int | float) and 0 < value <= _MOST_TOKENS else 0
