"""Costs of a run, and completions that a later run reuses; with a simulated model over HTTP."""

import json
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


def requests(mock: Mock) -> float:
    return mock.gauge("vllm:request_success_total")


def settings(mock: Mock, *more: str) -> list[str]:
    values = ["llm.model=mock", f"llm.base_url={mock.base_url}", "llm.max_tokens=800", *more]
    return [word for value in values for word in ("--set", value)]


def programs(evoq: Evoq, run: str) -> list[tuple[Any, ...]]:
    rows = evoq("metrics", run, "--json").json
    return [(row["ordinal"], row["state"], row["program"], row["fitness"]) for row in rows]


@pytest.mark.usefixtures("servers")
def test_a_warm_run_asks_no_model_and_finds_the_same_programs(
    evoq: Evoq, mock: Mock, tmp_path: Path
) -> None:
    folder = problem_folder(tmp_path / "sum")
    command = ["run", folder, "--iterations", 8, "--reproducible", "--json"]
    prices = ["llm.usd_per_million_prompt_tokens=1", "llm.usd_per_million_completion_tokens=10"]

    cold = evoq(*command, "--name", "cold", *settings(mock, *prices))
    paid = requests(mock)
    warm = evoq(*command, "--name", "warm", *settings(mock, *prices, "llm.cache=true"))

    assert cold.code == 0, cold.err
    assert warm.code == 0, warm.err
    assert paid == 8
    assert requests(mock) == paid
    assert programs(evoq, "warm") == programs(evoq, "cold")
    assert cold.json["tokens"] > 0
    assert warm.json["tokens"] == 0
    first, second = cold.json["costs"], warm.json["costs"]
    assert (first["completions"], first["reused"]) == (8, 0)
    assert (second["completions"], second["reused"], second["cost_usd"]) == (8, 8, 0.0)
    assert first["prompt_tokens"] + first["completion_tokens"] == cold.json["tokens"]
    assert first["models_usd"] == pytest.approx(
        (first["prompt_tokens"] * 1 + first["completion_tokens"] * 10) / 1e6
    )
    assert second["models"][0]["reused_tokens"] == cold.json["tokens"]
    assert first["per_admitted_usd"] == pytest.approx(first["cost_usd"] / cold.json["admitted"])
    assert 0 < first["prefix_hit_rate"] < 1  # the simulation reports cached tokens
    rows = evoq("metrics", "cold", "--json").json
    assert sum(row["tokens"] for row in rows) == cold.json["tokens"]
    assert sum(row["cost_usd"] or 0 for row in rows) == pytest.approx(first["models_usd"])
    shown = evoq("show", "warm").out
    assert "8 completions, 8 of them reused, 0 tokens" in shown
    assert f"{cold.json['tokens']:,} not spent again" in shown
    best = json.loads((Path(cold.json["out"]) / "best.json").read_text())
    assert best["costs"]["models_usd"] == first["models_usd"]


@pytest.mark.usefixtures("servers")
def test_a_generation_asks_one_strategist_and_an_adversary_of_every_child(
    evoq: Evoq, mock: Mock, tmp_path: Path
) -> None:
    folder = problem_folder(tmp_path / "sum")
    team = ["search.operators={directed: 1}", "search.strategy=funsearch_lite", "search.islands=1"]
    team += ["strategy.mutations=2", "strategy.fresh=1", "llm.roles.strategist.temperature=1"]
    command = ["run", folder, "--iterations", 6, "--reproducible", "--json"]

    result = evoq(*command, *settings(mock, *team, "llm.roles.adversary.max_tokens=300"))

    assert (result.code, result.json["state"]) == (0, "finished"), result.err
    counts = {one["role"]: one["completions"] for one in result.json["costs"]["models"]}
    assert counts["strategist"] == 2
    assert 0 < counts["adversary"] <= 6 <= counts["generator"]


@pytest.mark.usefixtures("servers")
def test_a_run_ends_at_its_tokens_and_resume_continues_with_more(
    evoq: Evoq, mock: Mock, tmp_path: Path
) -> None:
    folder = problem_folder(tmp_path / "sum")
    command = ["run", folder, "--iterations", 50, "--reproducible", "--json", "--name", "capped"]

    ended = evoq(*command, *settings(mock, "budget.tokens=8000", "search.operators={rewrite: 1}"))
    longer = evoq("resume", "capped", "--set", "budget.tokens=12000", "--json")
    refused = evoq("resume", "capped", "--set", "search.islands=3", "--json")
    unpriced = evoq(*command, *settings(mock, "budget.cost_usd=1"))

    assert (ended.code, ended.json["state"]) == (0, "finished")
    assert ended.json["reason"].startswith("budget of 8000 tokens spent")
    assert 4000 < ended.json["tokens"] <= 8000
    assert ended.json["iterations"] < 50
    assert longer.json["reason"].startswith("budget of 12000 tokens spent")
    assert 8000 < longer.json["tokens"] <= 12000
    assert refused.code == 2
    assert unpriced.code == 2
    assert "no price is known of mock" in unpriced.json["error"]["what"]
