"""Bound replies: a model goes on from the beginning of its reply, or keeps to a grammar.

The endpoint is asked for its own description, once, without a token, and not known by its name.
vLLM and others publish the fields of a request (`openapi.json`); llama.cpp publishes the template
of its model (`props`), and goes on from a last message of the assistant.  The engine of this
process has the template of its model at hand.

A model that thinks before it answers would be kept from thinking.  So a reply is bound where the
template has no room for thoughts, else from the first reply on that had none.

Source: https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html
(`continue_final_message`, `add_generation_prompt`, `structured_outputs`); the README in
`tools/server` of github.com/ggml-org/llama.cpp (`/props`, `grammar`), and its
`tools/server/server-common.cpp` (a last message of the assistant).
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import openai
from openai import AsyncOpenAI

from app.adapters.model.providers.http_client import get_document
from app.adapters.model.providers.spec import ModelSpec
from app.adapters.model.providers.streamed_reply import Answer
from app.domain.operator import Prompt, ReplyForm
from app.domain.replies.reasoning import without_thoughts

log = logging.getLogger(__name__)

GOES_ON = {"continue_final_message": True, "add_generation_prompt": False}
"""Fields with which vLLM goes on from a last message of the assistant."""
_THOUGHTS = "think"
"""Part of every template with room for thoughts: `<think>`, `enable_thinking`, `thinking`."""


@dataclass(frozen=True, slots=True)
class Continuation:
    """How an endpoint is asked to go on from the last message, and to keep to a grammar.

    Attributes:
      fields: Of the request, beside that message.
      thinks: Whether the model may think before it answers; None where the endpoint does not say.
      grammar: Returns the fields for a grammar; None where the endpoint takes none.
    """

    fields: Mapping[str, object] = field(default_factory=dict)
    thinks: bool | None = None
    grammar: Callable[[str], Mapping[str, object]] | None = None


async def continuation(client: AsyncOpenAI) -> Continuation | None:
    """Returns how an endpoint goes on from the beginning of a reply; None where it cannot.

    Raises:
      openai.APIConnectionError: It does not answer.
    """
    root = str(client.base_url).rstrip("/").removesuffix("/v1")
    match await get_document(client, f"{root}/props"):
        case {"chat_template": str(template)}:
            return Continuation(thinks=_THOUGHTS in template, grammar=_as_llama_cpp)
    match await get_document(client, f"{root}/openapi.json"):
        case {"components": {"schemas": {"ChatCompletionRequest": {"properties": {**known}}}}}:
            grammar = _as_vllm if "structured_outputs" in known else None
            goes_on = known.keys() >= GOES_ON.keys()
            return Continuation(GOES_ON, grammar=grammar) if goes_on else None
    return None


def engine_continuation(template: str) -> Continuation | None:
    """Returns how the engine of this process goes on; None for a model without a template."""
    if not template:
        return None
    return Continuation(GOES_ON, thinks=_THOUGHTS in template, grammar=_as_vllm)


def _as_llama_cpp(grammar: str) -> Mapping[str, object]:
    return {"grammar": grammar}


def _as_vllm(grammar: str) -> Mapping[str, object]:
    return {"structured_outputs": {"grammar": grammar}}


class BoundReplies:
    """What a process knows about the bound replies of one model; used on the event loop alone."""

    def __init__(self, spec: ModelSpec) -> None:
        """Asks nothing yet: the hosts of vendors, which refuse bound replies, never."""
        self._spec = spec
        self._possible = spec.bind_replies and not spec.preset.needs_key
        self._known: Continuation | None = None

    async def form(
        self, ask: Callable[[], Awaitable[Continuation | None]], prompt: Prompt
    ) -> ReplyForm | None:
        """Returns the form to which the reply to a prompt is bound; None for a free reply.

        Args:
          ask: Asks the endpoint how it goes on; as `continuation` does.
          prompt: What is asked.
        """
        if prompt.form is None or not self._possible:
            return None
        if self._known is None:
            try:
                self._known = await ask()
            except openai.APIConnectionError:
                return None
            self._possible = self._known is not None
        if self._known is None or self._known.thinks is not False:
            return None
        return None if prompt.form.grammar and not self._known.grammar else prompt.form

    def body(
        self, body: Mapping[str, object], messages: Sequence[Mapping[str, str]], form: ReplyForm
    ) -> dict[str, object]:
        """Returns the body of a request for a bound reply.

        Args:
          body: That of the request for a free one.
          messages: Of that request.
          form: As `form` returned it.
        """
        assert self._known is not None
        bound: dict[str, object] = {}
        if form.opening:
            opening = {"role": "assistant", "content": form.opening}
            bound = {**self._known.fields, "messages": [*messages, opening]}
        if form.grammar and self._known.grammar:
            bound |= self._known.grammar(form.grammar)
        stops = {"stop": list(form.stops)} if form.stops else {}
        return {**stops, **body, **bound}

    def whole(self, answer: Answer, form: ReplyForm) -> Answer:
        """Returns bound replies with the text that the request began, and with their ending."""
        choices = (
            replace(each, text=form.whole(each.text, stopped=each.finish == "stop"))
            for each in answer.choices
        )
        return replace(answer, choices=tuple(choices))

    def learn(self, answer: Answer) -> None:
        """Learns from free replies, at least one, whether the model thinks before it answers."""
        if self._known is not None and self._known.thinks is None:
            thinks = any(
                each.thoughts or each.text != without_thoughts(each.text) for each in answer.choices
            )
            self._known = replace(self._known, thinks=thinks)

    def give_up(self, message: str) -> None:
        """Binds no reply any more, and logs why."""
        self._possible = False
        log.warning("%s takes no bound replies: %s", self._spec.name, message)
