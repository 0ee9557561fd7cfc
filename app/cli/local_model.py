"""`--model auto`: the model of a server on this machine, found when a command begins."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from app.config.layers import Choices, UsageError
from app.config.models import OPENAI_KEY

if TYPE_CHECKING:
    from app.adapters.model.local_servers import LocalServer, NoServer

AUTO = "auto"
_MODEL, _ADDRESS, _PROVIDER = "llm.model", "llm.base_url", "llm.provider"
_LONGEST_PROMPT, _LONGEST_REPLY = "prompts.max_prompt_tokens", "llm.max_tokens"
_USUAL_REPLY = 4096
_REPLY_SHARE = 1 / 3
_MARGIN = 0.1
"""Share of a context that is left free, because tokens of prompts are estimated."""


def with_local_model(layers: Sequence[Choices]) -> list[Choices]:
    """Returns layers in which `llm.model=auto` is replaced by a model that a server here offers.

    With an address in any layer, that server is asked; otherwise those of this machine are, and the
    first that offers a model is taken.  Where the server says how many tokens its context has, the
    longest prompt and reply fit it, unless a layer sets them.

    Raises:
      UsageError: No server offers a model, or a provider is named beside `auto`.
    """
    wanted = _first(layers, _MODEL)
    if wanted is None or wanted[1] != AUTO:
        return list(layers)
    layer = wanted[0]
    if provider := _first(layers, _PROVIDER):
        raise UsageError(
            "`auto` asks the servers of this machine, and a provider names another endpoint",
            where=_PROVIDER,
            value=str(provider[1]),
            remedy="Leave the provider out, or name its model.",
        )
    from app.adapters.model.local_servers import local_servers

    address = _first(layers, _ADDRESS)
    asked = {} if address is None else {"base_urls": (str(address[1]),)}
    found, absent = local_servers(**asked, key=os.environ.get(OPENAI_KEY, "") if asked else "")
    if not found:
        raise _nothing(absent)
    server = found[0]
    values: dict[str, Any] = {**_fitting(server, layers), **layer.values}
    values |= {_MODEL: server.models[0].name, _ADDRESS: server.base_url}
    notices = (*layer.notices, _taken(found, values))
    changed = replace(layer, values=values, notices=notices)
    return [changed if each is layer else each for each in layers]


def _first(layers: Sequence[Choices], name: str) -> tuple[Choices, Any] | None:
    """Returns the first layer that sets a setting, with its value."""
    return next(((layer, layer.values[name]) for layer in layers if name in layer.values), None)


def _fitting(server: LocalServer, layers: Sequence[Choices]) -> dict[str, int]:
    """Returns the longest prompt and reply that fit a server's context, where it says its size."""
    context = server.models[0].context_tokens
    if context is None:
        return {}
    set_reply, set_prompt = _first(layers, _LONGEST_REPLY), _first(layers, _LONGEST_PROMPT)
    reply = min(_USUAL_REPLY, int(context * _REPLY_SHARE))
    fitting = {} if set_reply else {_LONGEST_REPLY: reply}
    longest = set_reply[1] if set_reply and isinstance(set_reply[1], int) else reply
    room = int((context - longest) * (1 - _MARGIN))
    if set_prompt is None and room > 0:
        fitting[_LONGEST_PROMPT] = room
    return fitting


def _taken(found: Sequence[LocalServer], values: dict[str, Any]) -> str:
    """Returns which model was taken, what fits it, and how to take another."""
    server, *others = found
    text = f"model: {server.text}"
    if _LONGEST_PROMPT in values:
        text += f"; prompts have at most {values[_LONGEST_PROMPT]:,} tokens"
    if _LONGEST_REPLY in values:
        text += f"; replies have at most {values[_LONGEST_REPLY]:,} tokens"
    models = [model.name for model in server.models[1:]]
    if models:
        text += f". It also serves {', '.join(models)}: --model NAME --api-base URL takes one"
    if others:
        text += f". Also found: {'; '.join(other.text for other in others)}"
        text += f"; --model {AUTO} --api-base URL takes another server"
    return text


def _nothing(absent: Sequence[NoServer]) -> UsageError:
    asked = "; ".join(f"{each.base_url}: {each.reason}" for each in absent)
    return UsageError(
        "no server on this machine offers a model" if len(absent) > 1 else "no model is offered",
        where=f"{_MODEL}={AUTO}",
        value=asked,
        remedy="Start one (`ollama serve`, `llama-server -m FILE`, LM Studio, `vllm serve`), name "
        "its address with --api-base URL, or search without a model: --no-model.",
    )
