"""`--model auto`: the model of a server on this machine, found when a command begins."""

import os
from collections.abc import Sequence
from dataclasses import replace

from app.adapters.model.local_servers import LocalServer, NoServer, local_servers
from app.config.layers import Choices, UsageError
from app.config.models import OPENAI_KEY
from app.config.resolve import PROBLEMS_OWN

AUTO = "auto"
_MODEL, _ADDRESS, _PROVIDER = "llm.model", "llm.base_url", "llm.provider"
_MODELS, _ROLES = "llm.models", "llm.roles"
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

    So is the name of a model in `llm.models` and in `llm.roles`, with the address of its own.

    Raises:
      UsageError: No server offers a model, or a provider is named beside `auto`.
    """
    naming = next((n for n, layer in enumerate(layers) if _names_models(layer)), None)
    replaced = [
        _with_models_of_lists(layer, layers, _counting(n, layers, naming))
        for n, layer in enumerate(layers)
    ]
    if naming is None or layers[naming].values.get(_MODEL) != AUTO:
        return replaced
    layer = replaced[naming]
    if provider := _first(layers, _PROVIDER):
        raise _beside_provider(_PROVIDER, provider[1])
    address = _first(layers, _ADDRESS)
    servers = _servers(None if address is None else str(address[1]), f"{_MODEL}={AUTO}")
    server = servers[0]
    values: dict[str, object] = {**_fitting(server, layers), **layer.values}
    values |= {_MODEL: server.models[0].name, _ADDRESS: server.base_url}
    notices = (*layer.notices, _choice_text(servers, values))
    changed = replace(layer, values=values, notices=notices)
    return [changed if other is layer else other for other in replaced]


def _names_models(layer: Choices) -> bool:
    """Returns whether a layer says which models write children."""
    return _MODEL in layer.values or _MODELS in layer.values


def _servers(address: str | None, where: str) -> Sequence[LocalServer]:
    """Returns the servers of this machine, or the one of an address, that offer a model."""
    asked = {} if address is None else {"base_urls": (address,)}
    servers, absent = local_servers(**asked, key=os.environ.get(OPENAI_KEY, "") if asked else "")
    if not servers:
        raise _nothing(absent, where)
    return servers


def _beside_provider(where: str, provider: object) -> UsageError:
    return UsageError(
        "`auto` asks the servers of this machine, and a provider names another endpoint",
        where=where,
        value=str(provider),
        remedy="Leave the provider out, or name its model.",
    )


def _counting(place: int, layers: Sequence[Choices], naming: int | None) -> set[str]:
    """Returns the lists and roles of models of a layer that no earlier layer replaces.

    Args:
      place: Of the layer.
      layers: Earlier ones win.
      naming: The place of the layer that names the models; None where none does.
    """
    layer = layers[place]
    names = {_MODELS} if place == naming else set()
    if layer.source != PROBLEMS_OWN or naming in (None, place):
        earlier = {name for each in layers[:place] for name in each.values}
        names |= {name for name in layer.values if name.startswith(_ROLES)} - earlier
    return names & layer.values.keys()


def _with_models_of_lists(layer: Choices, layers: Sequence[Choices], counting: set[str]) -> Choices:
    """Returns a layer whose lists and roles of models name a server's in the place of `auto`."""
    values: dict[str, object] = {}
    notices: list[str] = []
    shared = _first(layers, _ADDRESS)

    def of(where: str, provider: object, address: object) -> tuple[str, str]:
        if provider is not None:
            raise _beside_provider(f"{where.rpartition('.')[0]}.provider", provider)
        own = address if address is not None else shared and shared[1]
        servers = _servers(None if own is None else str(own), f"{where}={AUTO}")
        server = servers[0]
        values.update({**_fitting(server, layers), **values})
        notices.append(_choice_text(servers, {**layer.values, **values}))
        return server.models[0].name, server.base_url

    def inside(value: object, where: str) -> object:
        if isinstance(value, list):
            return [inside(each, f"{where}.{n}") for n, each in enumerate(value)]
        if not isinstance(value, dict):
            return value
        changed = {key: inside(each, f"{where}.{key}") for key, each in value.items()}
        for key in ("name", "model"):
            if value.get(key) == AUTO:
                named = of(f"{where}.{key}", value.get("provider"), value.get("base_url"))
                changed[key], changed["base_url"] = named
        return changed

    for name in sorted(counting):
        value = layer.values[name]
        role = name.removesuffix(".model")
        if role != name and value == AUTO:
            provider, own = _first(layers, f"{role}.provider"), _first(layers, f"{role}.base_url")
            model, url = of(name, provider and provider[1], own and own[1])
            values |= {name: model, f"{role}.base_url": url}
        elif (changed := inside(value, name)) != value:
            values[name] = changed
    if not values:
        return layer
    return replace(
        layer, values={**layer.values, **values}, notices=(*layer.notices, *dict.fromkeys(notices))
    )


def _first(layers: Sequence[Choices], name: str) -> tuple[Choices, object] | None:
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


def _choice_text(servers: Sequence[LocalServer], values: dict[str, object]) -> str:
    """Returns which model was taken, what fits it, and how to take another."""
    server, *others = servers
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


def _nothing(absent: Sequence[NoServer], where: str) -> UsageError:
    asked = "; ".join(f"{each.base_url}: {each.reason}" for each in absent)
    return UsageError(
        "no server on this machine offers a model" if len(absent) > 1 else "no model is offered",
        where=where,
        value=asked,
        remedy="Start one (`ollama serve`, `llama-server -m FILE`, LM Studio, `vllm serve`), name "
        "its address with --api-base URL, or search without a model: --no-model.",
    )
