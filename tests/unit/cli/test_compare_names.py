"""How the runs of a comparison are named."""

from typing import Any, cast

from app.cli.compare import _PlannedRun


def name_of(problem: str) -> str:
    return _PlannedRun(problem, "greedy", 2, cast(Any, None)).run_name("first")


def test_a_short_name_of_a_problem_is_in_the_name_of_its_run() -> None:
    assert name_of("bin_packing") == "first.bin_packing.greedy.2"


def test_problems_that_begin_alike_have_runs_of_different_names() -> None:
    problems = ["online_bin_packing", "online_bin_packing_weibull", "a b", "a-b", "日本", "中国"]
    names = [name_of(problem) for problem in problems]
    assert len(set(names)) == len(problems)
    assert names[0].startswith("first.online_b-")
    assert all(name.isascii() for name in names)
    assert names == [name_of(problem) for problem in problems]
