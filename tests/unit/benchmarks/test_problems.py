"""The problem folders of the benchmarks: what they score, and that a search can go up in them."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from app.adapters.problems import load
from app.domain.evaluation import COMBINED
from benchmarks.search import PROBLEMS, TASKS, Search, in_line

NAMES = sorted(folder.name for folder in PROBLEMS.iterdir())
SORTED = [(0, 5), (1, 3), (2, 4), (1, 2), (3, 4), (0, 3), (2, 5), (0, 1), (2, 3), (4, 5), (1, 2),
          (3, 4)]  # fmt: skip
BEST = {
    "constants": ({"constants": lambda: [3.7, -1.2, 12.5, 0.08, 7.0, -4.4]}, 4.0),
    "formula": (
        {"values": lambda points: [x * y - 2.5 * x + 1.7 * y * y for x, y in points]},
        1.0,
    ),
    "sorting": ({"comparators": lambda: SORTED}, 1.0),
    "trap": ({"bits": lambda: [1] * 16}, 1.0),
}


@pytest.mark.parametrize("name", NAMES)
def test_each_folder_is_a_problem_with_a_positive_score(name: str) -> None:
    [seed] = load([Path(PROBLEMS / name)], strict=True).seeds
    names: dict[str, object] = {}
    exec(seed.source, names)
    assert 0.0 < TASKS[name].score(SimpleNamespace(**names))[COMBINED] < 1.0


@pytest.mark.parametrize("name", BEST)
def test_the_best_program_has_the_highest_score(name: str) -> None:
    program, score = BEST[name]
    assert TASKS[name].score(SimpleNamespace(**program))[COMBINED] == pytest.approx(score)


@pytest.mark.parametrize("name", NAMES)
def test_a_search_ends_above_the_initial_program(name: str) -> None:
    task = TASKS[name]
    search = Search(task, "map_elites", "model", 60, 3)
    start = search.memory.best().fitness
    assert search.done(in_line(60, 8)).curve["60"] > start
