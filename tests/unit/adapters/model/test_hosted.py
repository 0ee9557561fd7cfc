"""What a provider would do for an agent beside answering is left out of the agent's requests."""

from typing import Any

import pytest

from app.adapters.model.agents.hosted import fetched, without_hosted

OWN: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "edit"}},
    {"name": "edit", "input_schema": {}},
    {"type": "custom", "name": "apply"},
    {"type": "bash_20250124", "name": "bash"},
    {"type": "text_editor_20250728", "name": "edit"},
    {"type": "local_shell"},
]
HOSTED: list[dict[str, Any]] = [
    {"type": "web_search_20250305", "name": "web_search"},
    {"type": "web_fetch_20250910", "name": "web_fetch"},
    {"type": "code_execution_20250825", "name": "code_execution"},
    {"type": "mcp_toolset", "mcp_server_name": "x"},
    {"type": "web_search_preview"},
    {"type": "code_interpreter", "container": {"type": "auto"}},
    {"type": "file_search", "vector_store_ids": []},
    {"type": "mcp", "server_url": "https://example.org"},
    {"type": "shell", "environment": {"type": "container_auto"}},
    {"type": 7},
]


def test_the_tools_that_run_at_the_agent_are_kept() -> None:
    body = {"messages": [], "tools": OWN, "tool_choice": "auto"}
    assert without_hosted(body).body == body


@pytest.mark.parametrize("tool", HOSTED, ids=lambda tool: str(tool["type"]))
def test_a_tool_that_the_provider_hosts_is_left_out_and_named(tool: dict[str, Any]) -> None:
    beside = without_hosted({"tools": [OWN[0], tool], "tool_choice": {"type": "any"}})
    alone = without_hosted({"tools": [tool], "tool_choice": "required", "input": "x"})

    assert beside.body == {"tools": [OWN[0]]}
    assert beside.left_out == (str(tool["type"]),)
    assert alone.body == {"input": "x"}


@pytest.mark.parametrize(
    "name", ["mcp_servers", "web_search_options", "search_parameters", "plugins", "container"]
)
def test_a_field_that_lets_the_provider_search_is_left_out(name: str) -> None:
    found = without_hosted({"input": "x", name: [{}]})
    assert (found.body, found.left_out) == ({"input": "x"}, (name,))


def test_only_a_prompt_that_is_stored_at_the_provider_is_left_out() -> None:
    assert without_hosted({"prompt": {"id": "p"}}).body == {}
    assert without_hosted({"prompt": "def f("}).body == {"prompt": "def f("}


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "https://example.org/?key"}},
        {"type": "input_image", "image_url": "https://example.org/?key"},
        {"type": "input_file", "file_url": "https://example.org/?key"},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/?key"}},
        {"type": "document", "source": {"type": "url", "url": "https://example.org/?key"}},
    ],
)
def test_an_address_that_the_provider_would_fetch_is_found(part: dict[str, Any]) -> None:
    assert fetched({"messages": [{"content": [part]}]}) == "https://example.org/?key"


def test_contents_and_the_arguments_of_tools_are_not_fetched() -> None:
    call = {"type": "tool_use", "input": {"url": "https://example.org"}}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    assert fetched({"messages": [{"content": [call, image, "text"]}]}) == ""
