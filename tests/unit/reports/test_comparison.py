import json

import pytest

from app.ports.history import Settled
from app.reports.arms import ArmRun, Comparison, ProblemComparison, arm_run, differing, superiority
from app.reports.comparison import document, markdown, write
from app.reports.metrics import rows
from tests.unit.reports.test_metrics import proposal


def arm(*ends: float, budget: int = 4) -> tuple[ArmRun, ...]:
    """Runs that reach their end after two proposals."""
    return tuple(
        ArmRun(f"run-{n}", n, (0.0, 0.0, *[end] * (budget - 1)), budget, 1.5, 0, None)
        for n, end in enumerate(ends)
    )


def compared(**arms: tuple[ArmRun, ...]) -> ProblemComparison:
    return ProblemComparison("toy", arms, "random")


def test_superiority_is_the_share_of_pairs_with_ties_halved():
    assert superiority([2.0, 3.0], [1.0, 2.0]).probability == pytest.approx(3.5 / 4)
    assert superiority([1.0], [1.0]).probability == 0.5


@pytest.mark.parametrize(
    ("ours", "theirs", "low", "high"),
    [([1.0] * 10, [0.0] * 10, 0.80, 1.0), ([0.0] * 10, [1.0] * 10, 0.0, 0.20)],
)
def test_the_interval_has_a_width_where_every_run_wins(ours, theirs, low, high):
    found = superiority(ours, theirs)
    assert (found.low, found.high) == (pytest.approx(low, abs=0.02), pytest.approx(high, abs=0.02))


def test_the_interval_is_narrower_with_more_runs_and_symmetric():
    few = superiority([1.0, 3.0], [0.0, 2.0])
    many = superiority([1.0, 3.0] * 20, [0.0, 2.0] * 20)
    assert few.low < many.low < many.probability == few.probability < many.high < few.high
    other = superiority([0.0, 2.0], [1.0, 3.0])
    assert (other.low, other.high) == (pytest.approx(1 - few.high), pytest.approx(1 - few.low))


def test_a_sentence_claims_a_difference_only_where_the_interval_excludes_a_half():
    better = compared(map_elites=arm(*[5.0] * 8), random=arm(*[1.0] * 8))
    alike = compared(map_elites=arm(5.0, 1.0), random=arm(1.0, 5.0))
    worse = compared(map_elites=arm(*[1.0] * 8), random=arm(*[5.0] * 8))
    assert "map_elites ends above random" in next(better.sentences())
    assert "no difference between map_elites and random is shown" in next(alike.sentences())
    assert "map_elites ends below random" in next(worse.sentences())


def test_the_target_is_what_the_null_arm_ends_with_in_the_median():
    problem = compared(greedy=arm(4.0, 4.0, 1.0), random=arm(1.0, 3.0, 9.0), low=arm(0.5))
    assert problem.target == 3.0
    assert problem.to_target("greedy") == 2
    assert problem.to_target("low") is None


def test_arms_without_a_finished_run_are_left_out(tmp_path):
    problem = compared(map_elites=(), random=arm(1.0))
    result = Comparison("c", 4, (problem,), {}, {"c.toy.map_elites.1": "paused"})
    assert list(document(result).problems[0].arms) == ["random"]
    assert "* c.toy.map_elites.1: paused" in markdown(result)
    assert all(path.stat().st_size for path in write(result, tmp_path).files)
    empty = Comparison("c", 4, (compared(map_elites=(), random=()),), {}, {})
    assert all(path.stat().st_size for path in write(empty, tmp_path).files)


def test_the_files_hold_the_comparison(tmp_path):
    problem = compared(map_elites=arm(5.0, 4.0), random=arm(1.0, 2.0))
    result = Comparison(
        "mine", 4, (problem,), {"search.strategy": {"map_elites": "a|b", "random": "c"}}, {}
    )
    names = [path.name for path in write(result, tmp_path).files]
    assert names == ["comparison.json", "comparison.md", "comparison.html", "toy.png"]
    stored = json.loads((tmp_path / "comparison.json").read_text())
    assert stored["problems"][0]["superiority"][0]["probability"] == 1.0
    page = (tmp_path / "comparison.html").read_text()
    assert "<table>" in page
    assert 'src="data:image/png;base64,' in page
    assert "toy.png" not in page.replace('alt="toy"', "")
    assert r"a\|b" in (tmp_path / "comparison.md").read_text()


def test_settings_that_differ_are_named_with_each_arms_value():
    base = {"search": {"islands": 3, "seed": 1}, "strategy": {}}
    other = {"search": {"islands": 1, "seed": 1}, "strategy": {"patience": 5}}
    assert differing({"a": base, "b": other}) == {
        "search.islands": {"a": 3, "b": 1},
        "strategy.patience": {"a": None, "b": 5},
    }


def curve(*settled: Settled, budget: int) -> tuple[float, ...]:
    found = arm_run("run", 7, budget, list(rows(settled)))
    assert found is not None
    return found.curve


def test_a_curve_begins_with_the_seeds_and_has_a_value_for_each_proposal():
    settled = [proposal(-1, 1.0), proposal(0, 0.5), proposal(1), proposal(2, 2.0)]
    assert curve(*settled, budget=3) == (1.0, 1.0, 1.0, 2.0)
    assert curve(*settled, budget=5) == (1.0, 1.0, 1.0, 2.0, 2.0, 2.0)


def test_a_curve_whose_seeds_settle_late_begins_with_the_first_fitness():
    settled = [proposal(0), proposal(-1, 1.0), proposal(1, 3.0)]
    assert curve(*settled, budget=2) == (1.0, 1.0, 3.0)


def test_a_curve_of_seeds_alone_keeps_their_best():
    assert curve(proposal(-1, 1.0), proposal(-2, 2.0), budget=2) == (2.0, 2.0, 2.0)


def test_a_run_without_a_measurement_is_none():
    assert arm_run("run", 7, 1, list(rows([proposal(0)]))) is None
