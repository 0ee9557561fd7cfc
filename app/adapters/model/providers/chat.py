"""The chat protocol as plain values: what is asked, and what was answered."""

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.adapters.model.providers.error_body import document
from app.adapters.model.providers.presets import UNKNOWN, openai
from app.adapters.model.providers.presets.preset import Preset
from app.domain.operator import Completion, Prompt

_MOST_TOKENS = 2**31 - 1  # what the ledger counts to; more is no count
OPENAI_URL = openai.PRESET.base_url


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One model and how it is asked.

    Attributes:
      weight: Its share of the prompts, relative to the other models'.
      api_key: "" where the endpoint asks for none.
      key_variable: Where the key was looked for; named in messages, the key never is.
      preset: What the endpoint takes.
      temperature, top_p: None leaves them to the endpoint.
      max_tokens: Longest completion, reasoning included.
      timeout_seconds: Of one attempt, at most.
      min_timeout_seconds: What measured answers make of that at least.
      deadline_seconds: For one prompt, with all its attempts and pauses.
      retries: Attempts after the first.
      retry_delay_seconds: Longest first pause; doubled for each further one.
      max_in_flight: Requests of this process at the endpoint at once.
      min_in_flight: What their window never falls below.
      target_in_flight: Where it begins; None leaves it to the gate.
      parallel_generations: Requests of the whole deployment at the endpoint; None: no such limit.
      seeded: Whether a seed is sent, where the endpoint takes one.
      system_message: Takes the place of every prompt's system text; None leaves it.
      extra_body: Fields of the request that only this endpoint knows; see `app.config.models`.
      prompt_usd, cached_usd, completion_usd: Price of a million tokens; None: not known, and for
        cached prompt tokens that of the others.
    """

    name: str
    weight: float = 1.0
    base_url: str = OPENAI_URL
    api_key: str = field(default="", repr=False)
    key_variable: str = "OPENAI_API_KEY"
    preset: Preset = UNKNOWN
    temperature: float | None = 0.7
    top_p: float | None = None
    max_tokens: int = 4096
    timeout_seconds: float = 60.0
    min_timeout_seconds: float = 2.0
    deadline_seconds: float = 300.0
    retries: int = 5
    retry_delay_seconds: float = 0.5
    max_in_flight: int = 128
    min_in_flight: int = 1
    target_in_flight: int | None = None
    parallel_generations: int | None = None
    seeded: bool = True
    reasoning_effort: str | None = None
    system_message: str | None = None
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    prompt_usd: float | None = None
    cached_usd: float | None = None
    completion_usd: float | None = None

    @property
    def gate_key(self) -> Hashable:
        """What models must share to share their places: an endpoint and its limits."""
        limits = (self.min_in_flight, self.target_in_flight, self.max_in_flight)
        return self.base_url, limits, self.parallel_generations


def request(
    spec: ModelSpec, prompt: Prompt, seed: int, *, samples: int = 1, untaken: Collection[str] = ()
) -> dict[str, Any]:
    """Returns the body of a chat request.

    Args:
      spec: The model.
      prompt: What to ask.
      seed: Of the draw, where the endpoint takes one.
      samples: How many answers to ask for.
      untaken: Parameters that this model was found not to take.
    """
    system = prompt.system if spec.system_message is None else spec.system_message
    asked: dict[str, Any] = {
        "model": spec.name,
        "messages": [
            *([{"role": "system", "content": system}] if system else []),
            {"role": "user", "content": prompt.user},
        ],
    }
    told = {
        "max_tokens": spec.max_tokens,
        "temperature": spec.temperature,
        "top_p": spec.top_p,
        "reasoning_effort": spec.reasoning_effort,
        "seed": seed if spec.seeded else None,
        "n": samples if samples > 1 else None,
    }
    asked |= {name: value for name, value in told.items() if value is not None}
    shaped = dict(spec.preset.shape(asked))
    if "max_tokens" in untaken and "max_tokens" in shaped:
        shaped["max_completion_tokens"] = shaped["max_tokens"]
    return {k: v for k, v in shaped.items() if k not in untaken} | dict(spec.extra_body)


def parameters(spec: ModelSpec, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what shapes the answer to a request beside its prompt; see `Completion.parameters`.

    Args:
      spec: Who is asked.
      asked: What `request` made of the prompt.
    """
    told = {name: value for name, value in asked.items() if name != "messages"}
    told["endpoint"] = spec.base_url.rpartition("://")[2].rpartition("@")[2]
    if spec.system_message is not None:
        told["system"] = spec.system_message
    return told


def completions(
    spec: ModelSpec, prompts: Sequence[Prompt], content: bytes, latency_seconds: float
) -> list[Completion]:
    """Reads the body of a 200: as many completions as there are choices, at most one a prompt.

    A completion without a text is the model's answer, and empty; a body without choices is none,
    and gives an empty list, as does a choice that broke off behind the endpoint.  Usage is told of
    a request as a whole: the prompt's tokens are the first one's, the others share by length, so
    that all together are what was told; where it is not told, no cost is known.
    """
    match document(content):
        case {"choices": [*choices], **rest}:
            answers = [one for one in map(_answer, choices) if one is not None]
        case _:
            return []
    told = rest.get("usage")
    answers = answers[: len(prompts)]
    whole = _spent(told if isinstance(told, dict) else {})
    spent = _shared(whole, [len(one.text) for one in answers])
    counted = whole.prompt > 0 or whole.completion > 0
    return [
        Completion(
            text=answer.text,
            model=spec.name,
            finish=answer.finish,
            prompt_tokens=own.prompt,
            completion_tokens=own.completion,
            latency_seconds=latency_seconds,
            cost_usd=_cost_usd(spec, own) if counted else None,
            cached_tokens=own.cached,
            role=prompt.role,
            revision=_revision(spec, rest),
        )
        for prompt, answer, own in zip(prompts, answers, spent, strict=False)
    ]


@dataclass(frozen=True, slots=True)
class _Answer:
    """One choice."""

    text: str
    finish: str


def _answer(choice: object) -> _Answer | None:
    match choice:
        case {"error": {}} | {"finish_reason": "error"}:  # OpenRouter's; see `said.error_in`
            return None
        case {"message": {**message}, **rest}:
            text, finish = _text(message.get("content")), rest.get("finish_reason")
            refusal = message.get("refusal")
            if not text and isinstance(refusal, str):
                return _Answer(refusal, "refusal")
            return _Answer(text, finish if isinstance(finish, str) else "")
    return None


def _text(content: Any) -> str:
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
class _Spent:
    """Tokens of one completion; `cached` are among `prompt`."""

    prompt: int
    cached: int
    completion: int


def _spent(usage: Mapping[str, Any]) -> _Spent:
    prompt, details = _count(usage, "prompt_tokens"), usage.get("prompt_tokens_details")
    cached = _count(details, "cached_tokens") if isinstance(details, dict) else 0
    cached = cached or _count(usage, "prompt_cache_hit_tokens")  # DeepSeek's name for the same
    completion = _count(usage, "completion_tokens")
    # Gemini's endpoint counts what was thought in the total alone.
    completion = max(completion, _count(usage, "total_tokens") - prompt)
    return _Spent(prompt, min(prompt, cached), completion)


def _shared(spent: _Spent, lengths: Sequence[int]) -> list[_Spent]:
    """Returns the part of each answer; all parts together are the whole."""
    shares, left, letters = [], spent.completion, sum(lengths)
    for length in lengths[1:]:
        part = spent.completion * length // letters if letters else 0
        shares.append(_Spent(0, 0, part))
        left -= part
    return [_Spent(spent.prompt, spent.cached, left), *shares]


def cost_usd(spec: ModelSpec, *, prompt: int, cached: int, completion: int) -> float | None:
    """Returns the price of so many tokens, `cached` of the prompt's; None where it is not known."""
    return _cost_usd(spec, _Spent(prompt, cached, completion))


def _cost_usd(spec: ModelSpec, spent: _Spent) -> float | None:
    if spec.prompt_usd is None or spec.completion_usd is None:
        return None
    cached_usd = spec.prompt_usd if spec.cached_usd is None else spec.cached_usd
    fresh = spent.prompt - spent.cached
    paid = fresh * spec.prompt_usd + spent.cached * cached_usd
    return (paid + spent.completion * spec.completion_usd) / 1e6


def _revision(spec: ModelSpec, answered: Mapping[Any, Any]) -> str:
    told = (answered.get("model"), answered.get("system_fingerprint"))
    return "@".join(one for one in told if isinstance(one, str) and one not in ("", spec.name))


def _count(usage: Mapping[str, Any], name: str) -> int:
    """Returns a number of tokens; some servers write it as 12.0."""
    value = usage.get(name)
    return int(value) if isinstance(value, int | float) and 0 < value <= _MOST_TOKENS else 0
