"""A search with the smallest real model, served by llama.cpp on this machine.

The model writes text and seldom a program that runs: these test the path, not the search.
They skip where the model is not to be had: `../shared/real-model/prepare small` fetches it.
"""

import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.adapters.model.providers.attempts import EndpointModel
from app.adapters.model.providers.event_loop import ModelLoop
from app.adapters.model.providers.openai import OpenAIWire
from app.adapters.model.providers.spec import ModelSpec
from app.domain.operator import Prompt
from app.domain.problem import EditRules
from app.domain.program import Program
from app.domain.prompting.reply_forms import edits_form
from app.ports.protocols import Stopped
from tests.integration.cli import Evoq, problem_folder
from tests.real_model import served_model

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with served_model() as url:
        yield url


def test_a_run_with_a_real_model_reaches_its_budget(
    endpoint: str, evoq: Evoq, tmp_path: Path
) -> None:
    problem = problem_folder(tmp_path / "problem")
    settings = {
        "llm.model": "small",
        "llm.base_url": endpoint,
        "llm.max_tokens": 40,
        "llm.repair_turns": 0,
        "llm.seeded": "true",
        "search.operators": "{function: 5, rewrite: 3, diff: 1, mend: 1}",
    }
    assignments = [
        part for name, value in settings.items() for part in ("--set", f"{name}={value}")
    ]

    result = evoq(
        *("run", problem, "--iterations", 12, "--name", "real", "--out", tmp_path / "out"),
        *("--json", *assignments),
    )

    assert result.code == 0, result.err
    assert result.json["state"] == "finished"
    shown = evoq("show", "real", "--json").json
    assert shown["iterations"] == 12
    [account] = [one for one in shown["costs"]["models"] if one["model"] == "small"]
    assert account["completions"] >= 12
    assert account["prompt_tokens"] > 12 * 50
    assert 12 <= account["completion_tokens"] <= account["completions"] * 40


def test_a_streamed_reply_of_a_real_model_is_counted_by_its_server(endpoint: str) -> None:
    model_loop = ModelLoop()
    try:
        spec = ModelSpec("small", base_url=endpoint, max_tokens=40)
        [reply] = EndpointModel(OpenAIWire(spec), model_loop).complete(
            [Prompt("", "Count from one to ten.")]
        )
    finally:
        model_loop.close()

    assert reply.text.strip()
    assert reply.prompt_tokens > 0
    assert 0 < reply.completion_tokens <= 40


def test_a_real_model_seeks_only_lines_of_the_program(endpoint: str) -> None:
    program = Program("def area(r):\n    factor = 3\n    return factor * r * r\n", "python")
    form = edits_form(program, EditRules())
    text = f"```python\n{program.source}```\nMake `factor` 3.14159, by SEARCH/REPLACE blocks."
    model_loop = ModelLoop()
    try:
        spec = ModelSpec("small", base_url=endpoint, max_tokens=200, temperature=1.0)
        prompts = [Prompt("", text, sample=n, form=form) for n in range(3)]
        replies = EndpointModel(OpenAIWire(spec), model_loop).complete(prompts)
    finally:
        model_loop.close()

    for reply in replies:
        sought, middle, _ = reply.text.partition("=======\n")
        assert sought.startswith("<<<<<<< SEARCH\n")
        assert middle
        assert sought.removeprefix("<<<<<<< SEARCH\n") in program.source


class StopRequest:
    """A stop that a test asks for; see `Stop`."""

    def __init__(self) -> None:
        self.asked = False
        self._acts: list[Callable[[], None]] = []

    @contextmanager
    def then(self, act: Callable[[], None]) -> Iterator[None]:
        self._acts.append(act)
        try:
            yield
        finally:
            self._acts.remove(act)

    def ask(self) -> None:
        self.asked = True
        for act in list(self._acts):
            act()


def test_a_request_that_is_dropped_in_the_middle_frees_its_place(endpoint: str) -> None:
    model_loop, stop = ModelLoop(), StopRequest()
    spec = ModelSpec("small", base_url=endpoint, max_tokens=3000, temperature=1.0)
    model = EndpointModel(OpenAIWire(spec), model_loop)
    timer = threading.Timer(1.5, stop.ask)
    try:
        timer.start()
        with pytest.raises(Stopped) as dropped:
            model.complete([Prompt("", "Write a very long story about a lighthouse.")], stop)
        assert dropped.value.unanswered == 1
        deadline = time.monotonic() + 30
        while busy_places(endpoint) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert not busy_places(endpoint), "the server goes on writing the reply"
    finally:
        timer.cancel()
        model_loop.close()


def busy_places(endpoint: str) -> int:
    """Returns how many requests the server is working on."""
    with urllib.request.urlopen(f"{endpoint.removesuffix('/v1')}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    [line] = [one for one in lines if one.startswith("llamacpp:requests_processing ")]
    return int(float(line.split()[1]))
