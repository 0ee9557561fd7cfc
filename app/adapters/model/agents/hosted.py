"""What a provider would do for an agent beside answering: search, fetch, run code.

Each of these would be a network of the agent's, which has none but its model.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_OF_THE_AGENT = frozenset(
    ["function", "custom", "namespace", "local_shell", "apply_patch", "computer", "tool_search"]
)
"""Types of tools that run where the agent does, or search its tools."""
_OF_THE_AGENT_BY_DATE = ("bash_", "text_editor_", "memory_", "computer_", "tool_search_tool_")
"""Beginnings of such types, before the date of their version."""
_FIELDS = ("mcp_servers", "web_search_options", "search_parameters", "plugins", "container")
"""Fields of a request that let a provider search, or run what it hosts."""
_PARTS = ("image", "image_url", "input_image", "document", "file", "input_file", "input_audio")
"""Types of the parts of a message that a provider may be asked to fetch."""


@dataclass(frozen=True, slots=True)
class Unhosted:
    """A request without what its provider would host.

    Attributes:
      body: The request.
      left_out: Names of the tools and fields that it had.
    """

    body: dict[str, Any]
    left_out: tuple[str, ...] = ()


def without_hosted(body: Mapping[str, Any]) -> Unhosted:
    """Returns a request of any of the interfaces with the agent's own tools alone."""
    kept = {name: value for name, value in body.items() if name not in _FIELDS}
    left_out = [name for name in _FIELDS if name in body]
    if isinstance(kept.get("prompt"), dict):
        # A prompt that is stored at the provider may have tools.
        del kept["prompt"]
        left_out.append("prompt")
    tools = kept.get("tools")
    if isinstance(tools, list):
        own = [tool for tool in tools if _runs_at_the_agent(tool)]
        names = [_name(tool) for tool in tools if not _runs_at_the_agent(tool)]
        if names:
            kept["tools"] = own
            left_out += names
            # It may demand one that is gone.
            kept.pop("tool_choice", None)
            if not own:
                del kept["tools"]
    return Unhosted(kept, tuple(left_out))


def fetched(body: Any) -> str:
    """Returns the first address that a provider would fetch for a request; "" for none."""
    for part in _objects(body):
        if part.get("type") not in _PARTS:
            continue
        places = (part, part.get("image_url"), part.get("source"), part.get("file"))
        for place in places:
            for name in ("url", "image_url", "file_url"):
                address = place.get(name) if isinstance(place, dict) else None
                if isinstance(address, str) and not address.startswith("data:"):
                    return address
    return ""


def _runs_at_the_agent(tool: Any) -> bool:
    kind = tool.get("type", "custom") if isinstance(tool, dict) else ""
    return isinstance(kind, str) and (
        kind in _OF_THE_AGENT or kind.startswith(_OF_THE_AGENT_BY_DATE)
    )


def _name(tool: Any) -> str:
    kind = tool.get("type") if isinstance(tool, dict) else tool
    return str(kind)[:60]


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yields every object of a document; one that is deep is read as far as it was parsed."""
    waiting: list[Any] = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            yield each
            waiting.extend(each.values())
        elif isinstance(each, Sequence) and not isinstance(each, str):
            waiting.extend(each)
