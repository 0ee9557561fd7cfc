"""The wire form of OpenAI's chat completions, which most endpoints take, each with its own limits.

The presets say what an endpoint is known not to take; the rest is learnt from its refusals.
"""

import logging
import re
from collections.abc import Collection, Mapping, Sequence

from openai import AsyncOpenAI

from app.adapters.model.providers.bound_replies import BoundReplies, continuation
from app.adapters.model.providers.error_body import ErrorBody
from app.adapters.model.providers.refusals import shown
from app.adapters.model.providers.spec import ModelSpec
from app.adapters.model.providers.streamed_reply import (
    BROKEN_OFF,
    Answer,
    AnswerChoice,
    StreamedReply,
    TokenUsage,
    answer_choice,
)
from app.adapters.model.providers.wire import WireRequest, seed_of
from app.domain.operator import Prompt

_HIGHEST_TEMPERATURE = 2.0
_MOST_SAMPLES = 8
"""Google's limit on candidates; more samples take several requests."""
_MOST_TOKENS = 2**31 - 1
"""The ledger's largest number of tokens; a larger count is ignored."""
_REASONING = ("reasoning_content", "reasoning")
"""Fields of a message in which servers write the thoughts of a model."""
_NAMES = ("model", "system_fingerprint")
_ADJUSTABLE = (
    "stream_options",
    "stream",
    "max_tokens",
    "top_p",
    "temperature",
    "reasoning_effort",
    "seed",
    "n",
)
_STREAMING = re.compile(r"(?<![\w.])stream(ing)?(?![\w.])", re.IGNORECASE)
_FEWER = re.compile(r"\bfield '?n'?: value must be between", re.IGNORECASE)
"""llama.cpp's answer to more samples than it has slots."""
_UNKNOWN = re.compile(
    r"unsupported|not support|not stream|unknown|unrecognized|unexpected|not permitted|not allowed"
    r"|deprecated|cannot find|must be exactly 1|cannot both|only the default",
    re.IGNORECASE,
)

log = logging.getLogger(__name__)


class OpenAIWire:
    """The chat completions of one model; see `Wire`."""

    path = "/chat/completions"
    headers: Mapping[str, str] = {}

    def __init__(self, spec: ModelSpec, seed: int = 0) -> None:
        """Asks nothing.

        Args:
          spec: The model.
          seed: Distinguishes runs with equal prompts.
        """
        self.spec = spec
        self.samples = _MOST_SAMPLES if spec.preset.samples else 1
        self._seed = seed
        self._unsupported: set[str] = set()
        self._bound = BoundReplies(spec)

    def parameters(self, prompt: Prompt) -> dict[str, object]:
        """Returns the parameters of the settings, whether the model supports them or not."""
        return shaping_fields(chat_request(self.spec, prompt, seed_of(self._seed, prompt)))

    async def request(self, client: AsyncOpenAI, prompts: Sequence[Prompt]) -> WireRequest:
        """See `Wire.request`."""
        spec, first = self.spec, prompts[0]
        body = chat_request(
            spec,
            first,
            seed_of(self._seed, first),
            samples=len(prompts),
            unsupported=self._unsupported,
        )
        if "stream" not in self._unsupported and body.get("stream", True):
            counted = {"stream_options": {"include_usage": True}}
            uncounted = "stream_options" in self._unsupported
            body = {"stream": True, **({} if uncounted else counted), **body}
        form = await self._bound.form(lambda: continuation(client), first)
        if form is not None:
            body = self._bound.body(body, messages(spec, first), form)
        return WireRequest(body, form)

    def add(self, event: object, reply: StreamedReply) -> int:
        """See `Wire.add`."""
        if not isinstance(event, dict):
            return 0
        if event.get("error"):
            reply.error = event["error"]
            return 0
        parts = event.get("choices")
        if isinstance(usage := event.get("usage"), dict):
            reply.count(_usage(usage), apart=not parts)
        for name in _NAMES:
            if name not in reply.names and isinstance(event.get(name), str) and event[name]:
                reply.names[name] = event[name]
        tokens = 0
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, dict):
                tokens += _add(part, reply)
        return tokens

    def answer(self, document: object) -> Answer | None:
        """See `Wire.answer`."""
        match document:
            case {"choices": [*choices], **rest}:
                found = tuple(choice for choice in map(_choice, choices) if choice is not None)
            case _:
                return None
        usage = rest.get("usage")
        names = tuple(name for each in _NAMES if isinstance(name := rest.get(each), str))
        return Answer(found, _usage(usage) if isinstance(usage, dict) else None, names)

    def answered(self, request: WireRequest, answer: Answer) -> Answer:
        """See `Wire.answered`."""
        if request.form is None:
            self._bound.learn(answer)
            return answer
        return self._bound.whole(answer, request.form)

    def adapt(self, request: WireRequest, status: int, error: ErrorBody) -> bool:
        """See `Wire.adapt`; what is left out is logged once."""
        if status not in (400, 422):
            return False
        message = shown(self.spec, error.message)
        unsupported = unsupported_parameter(request.body, error)
        if request.form is not None and request.form.opening and unsupported != "n":
            self._bound.give_up(message)
        elif unsupported is None:
            return False
        elif unsupported not in self._unsupported:
            self._unsupported.add(unsupported)
            if unsupported == "n":
                self.samples = 1
            text = "%s does not take %s, which is left out from now on: %s"
            log.warning(text, self.spec.name, unsupported, message)
        return True


def messages(spec: ModelSpec, prompt: Prompt) -> list[dict[str, str]]:
    """Returns the messages of a chat request."""
    system = spec.system_of(prompt)
    user = {"role": "user", "content": prompt.user}
    return [{"role": "system", "content": system}, user] if system else [user]


def chat_request(
    spec: ModelSpec,
    prompt: Prompt,
    seed: int,
    *,
    samples: int = 1,
    unsupported: Collection[str] = (),
) -> dict[str, object]:
    """Returns the body of a chat request.

    Args:
      spec: The model.
      prompt: What to ask.
      seed: Of the draw, where the endpoint takes one.
      samples: Number of answers to ask for.
      unsupported: Parameters that this model does not take.
    """
    asked, warmer = spec.temperature, prompt.warmer
    optional = {
        "max_tokens": spec.max_tokens,
        "temperature": None if asked is None else min(_HIGHEST_TEMPERATURE, asked + warmer),
        "top_p": spec.top_p,
        "reasoning_effort": spec.reasoning_effort,
        "seed": seed if spec.seeded else None,
        "n": samples if samples > 1 else None,
    }
    given = {name: value for name, value in optional.items() if value is not None}
    shaped = dict(
        spec.preset.shape({"model": spec.name, "messages": messages(spec, prompt), **given})
    )
    if "max_tokens" in unsupported and "max_tokens" in shaped:
        shaped["max_completion_tokens"] = shaped["max_tokens"]
    return {k: v for k, v in shaped.items() if k not in unsupported} | dict(spec.extra_body)


def shaping_fields(body: Mapping[str, object]) -> dict[str, object]:
    """Returns the fields of a chat request that shape its answer beside the prompt."""
    return {name: value for name, value in body.items() if name != "messages"}


def unsupported_parameter(body: Mapping[str, object], error: ErrorBody) -> str | None:
    """Returns the parameter that a model does not take and can be asked without; None for others.

    Endpoints use words of their own; a wrong reading costs one more refusal.
    """
    if "n" in body and _FEWER.search(error.message):
        return "n"
    if not _UNKNOWN.search(error.message):
        return None
    sent = [name for name in _ADJUSTABLE if name in body]
    if error.param is not None:
        return error.param if error.param in sent else None
    if "stream" in sent and _STREAMING.search(error.message):
        return "stream"
    return next(
        (name for name in sent if re.search(rf"(?<![\w.]){name}(?![\w.])", error.message)), None
    )


def _add(part: Mapping[str, object], reply: StreamedReply) -> int:
    """Adds a part of one choice to a reply; returns about how many tokens it has."""
    index, delta = part.get("index"), part.get("delta")
    number = index if isinstance(index, int) else 0
    if not isinstance(delta, dict):
        delta = {}
    if isinstance(finish := part.get("finish_reason"), str):
        reply.finish(number, finish)
    content = delta.get("content")
    # Nearly every part is a text and nothing else.
    if isinstance(content, str) and len(delta) == 1:
        return reply.write(number, content)
    thought = next((delta[name] for name in _REASONING if isinstance(delta.get(name), str)), "")
    thought = thought or _thoughts(content)
    refusal = _text(delta.get("refusal"))
    return reply.write(number, _text(content), thought=thought, refusal=refusal)


def _choice(choice: object) -> AnswerChoice | None:
    """Returns a choice of an answer that is not streamed; None where it broke off."""
    match choice:
        # OpenRouter reports an error in a choice so; see `error_body.error_in`.
        case {"error": {}}:
            return None
        case {"finish_reason": finish} if finish == BROKEN_OFF:
            return None
        case {"message": {**message}, **rest}:
            finish = rest.get("finish_reason")
            return answer_choice(
                _text(message.get("content")),
                _text(message.get("refusal")),
                finish if isinstance(finish, str) else "",
                thoughts=any(bool(message.get(name)) for name in _REASONING),
            )
    return None


def _text(content: object) -> str:
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


def _thoughts(content: object) -> str:
    """Returns the reasoning in a part of Mistral's, which is a list of pieces."""
    pieces = content if isinstance(content, list) else ()
    return "".join(_text(each.get("thinking")) for each in pieces if isinstance(each, dict))


def _usage(usage: Mapping[str, object]) -> TokenUsage:
    prompt, details = _count(usage, "prompt_tokens"), usage.get("prompt_tokens_details")
    cached = _count(details, "cached_tokens") if isinstance(details, dict) else 0
    # DeepSeek calls the cached tokens `prompt_cache_hit_tokens`.
    cached = cached or _count(usage, "prompt_cache_hit_tokens")
    completion = _count(usage, "completion_tokens")
    # Gemini's endpoint counts the tokens of its reasoning in the total alone.
    completion = max(completion, _count(usage, "total_tokens") - prompt)
    return TokenUsage(prompt, min(prompt, cached), completion)


def _count(usage: Mapping[str, object], name: str) -> int:
    """Returns a number of tokens; some servers write it as 12.0."""
    value = usage.get(name)
    return int(value) if isinstance(value, int | float) and 0 < value <= _MOST_TOKENS else 0
