"""Changed settings, and a model whose context is small, from the command line."""

from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli import Evoq, problem_folder
from tests.integration.test_model_openai import Endpoint, Reply, refused, said

WORDS = "the prompt has {count} tokens, and the context size is {context} tokens"


@pytest.fixture
def evoq(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Evoq:
    monkeypatch.chdir(tmp_path)
    for variable in ("EVOQ_DATABASE_URL", "EVOQ_REDIS_URL", "EVOQ_HOME", "OPENAI_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    return Evoq(capsys)


@pytest.mark.slow
def test_a_run_over_the_context_of_its_model_goes_on_with_a_model_that_it_is_given(
    evoq: Evoq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(body: dict[str, Any]) -> Reply:
        size = sum(len(message["content"]) for message in body["messages"])
        if body["model"] == "small" and size > 200:
            return refused(400, WORDS.format(count=size // 3, context=66))
        return said("```python\ndef nothing():\n    return 1\n```")

    endpoint = Endpoint(answer)
    try:
        settings = [f"llm.base_url={endpoint.url}", "llm.model=small"]
        line = [part for one in settings for part in ("--set", one)]
        folder = str(problem_folder(tmp_path / "problem"))
        began = evoq("run", folder, "--reproducible", "--iterations", "5", "--name", "r", *line)
        refusal = evoq("change", "r", "--set", "search.seed=9", "--json")
        monkeypatch.setenv("EVOQ_LLM__MODEL", "another")
        ended = evoq("resume", "r", "--set", "llm.model=large")
        shown = evoq("show", "r", "--json")
    finally:
        endpoint.close()

    assert began.code == 1
    assert "the prompt of every proposal was too long so far" in began.err
    assert (refusal.code, "every random draw" in refusal.json["error"]["what"]) == (2, True)
    assert (ended.code, "EVOQ_LLM__MODEL of the environment: not used" in ended.err) == (0, True)
    assert 'changed llm.model: "small" became "large"' in shown.json["notices"]
