"""OpenAI, and whoever is not known by name.

Reasoning models take `max_completion_tokens` for `max_tokens` and refuse a `temperature` or `top_p`
of one's own; which models reason is told by their names, as OpenEvolve does.

Source: the endpoint's messages "Unsupported parameter: 'max_tokens' is not supported with this
model. Use 'max_completion_tokens' instead." and "Unsupported value: 'temperature' does not support
0.2 with this model."; https://github.com/BerriAI/litellm/issues/13781 (gpt-5-chat does not reason).
"""

from app.adapters.model.providers.presets.preset import Preset, Request, without

_REASONING = ("o1", "o3", "o4", "gpt-5", "gpt-oss-20b", "gpt-oss-120b")
_CHATTING = ("gpt-5-chat",)


def reasons(model: str) -> bool:
    """Returns whether it is one of OpenAI's reasoning models, by its name."""
    name = model.lower().rpartition("/")[2]
    return name.startswith(_REASONING) and not name.startswith(_CHATTING)


def shape(request: Request) -> Request:
    """Returns the request in the form the model takes."""
    if not reasons(request["model"]):
        return request
    limited = {"max_completion_tokens": request["max_tokens"]} if "max_tokens" in request else {}
    return {**without(request, "temperature", "top_p", "max_tokens"), **limited}


PRESET = Preset("https://api.openai.com/v1", "OPENAI_API_KEY", shape=shape)
