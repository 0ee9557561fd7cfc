"""What a run costs, and what the next one need not pay again; a simulated model over HTTP."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli import Evoq, problem_folder
from tests.integration.mock_llm import Mock, mock_llm


@pytest.fixture(scope="module")
def mock() -> Iterator[Mock]:
    with mock_llm("--latency", "0.01") as running:
        yield running


@pytest.fixture
def evoq(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Evoq:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVOQ_SANDBOX__BACKEND", "process")
    for variable in ("EVOQ_DATABASE_URL", "EVOQ_REDIS_URL", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    return Evoq(capsys)


def asked(mock: Mock) -> float:
    return mock.gauge("vllm:request_success_total")


def settings(mock: Mock, *more: str) -> list[str]:
    told = ["llm.model=mock", f"llm.base_url={mock.base_url}", "llm.max_tokens=800", *more]
    return [word for one in told for word in ("--set", one)]


def programs(evoq: Evoq, run: str) -> list[tuple[Any, ...]]:
    rows = evoq("metrics", run, "--json").json
    return [(row["ordinal"], row["state"], row["program"], row["fitness"]) for row in rows]


def test_a_warm_run_asks_no_model_and_finds_the_same_programs(
    evoq: Evoq, mock: Mock, tmp_path: Path
) -> None:
    folder = problem_folder(tmp_path / "sum")
    order = ["run", folder, "--iterations", 8, "--reproducible", "--json"]
    prices = ["llm.usd_per_million_prompt_tokens=1", "llm.usd_per_million_completion_tokens=10"]

    cold = evoq(*order, "--name", "cold", *settings(mock, *prices))
    paid = asked(mock)
    warm = evoq(*order, "--name", "warm", *settings(mock, *prices, "llm.cache=true"))

    assert cold.code == 0, cold.err
    assert warm.code == 0, warm.err
    assert paid == 8
    assert asked(mock) == paid
    assert programs(evoq, "warm") == programs(evoq, "cold")
    assert cold.json["tokens"] > 0
    assert warm.json["tokens"] == 0
