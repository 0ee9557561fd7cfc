"""What the benchmark reads of a run of OpenEvolve: lines of its log and of its record."""

from dataclasses import asdict

from app.reports.arms import ArmRun
from benchmarks.openevolve import beside, outcomes, same_score

AT = "2026-11-25 13:25:"
LOG = f"""\
{AT}27,553 - openevolve.evaluator - INFO - Evaluated program first in 0.02s: combined_score=0.6000
{AT}27,564 - openevolve.process_parallel - INFO - Starting process-based evolution from iteration 1
{AT}28,600 - openevolve.evaluator - INFO - Evaluated program a in 0.02s: combined_score=0.5000
{AT}28,649 - x - INFO - Iteration 1: Program a (parent: first) completed in 0.60s | tokens: 602 (…)
{AT}29,000 - x - WARNING - Iteration 2 error: No valid diffs found in response | tokens: 10 (…)
{AT}29,300 - openevolve.evaluator - INFO - Evaluated program b in 0.02s: combined_score=0.7124
{AT}29,400 - x - INFO - Iteration 3: Program b (parent: a) completed in 0.60s | tokens: 8 (…)
{AT}29,500 - openevolve.evaluator - INFO - Evaluated program c in 0.02s: error=0.0000
{AT}29,564 - x - INFO - Iteration 4: Program c (parent: a) completed in 0.60s | tokens: 5 (…)
"""


def child(name: str, parent: str, score: float, parent_score: float) -> dict[str, object]:
    return {
        "child_id": name, "child_metrics": {"combined_score": score}, "child_code": "x = 1\n",
        "parent_id": parent, "parent_metrics": {"combined_score": parent_score},
    }  # fmt: skip


def test_the_curve_is_exact_where_the_record_has_a_child_and_at_its_end() -> None:
    trace = [child("a", "first", 0.5, 0.60004)]
    found = outcomes(trace, LOG, {"combined_score": 0.71236}, 5)
    assert found["curve"] == [0.60004, 0.60004, 0.60004, 0.71236, 0.71236, 0.71236]


def test_iterations_without_a_child_and_failed_children_are_counted() -> None:
    found = outcomes([child("a", "first", 0.5, 0.6)], LOG, {"combined_score": 0.7124}, 5)
    assert (found["evaluated"], found["failed"], found["recorded"]) == (3, 1, 1)
    assert found["lost"] == {"No valid diffs found in response": 1}
    assert found["seconds"] == 2.0
    assert found["tokens"] == 602 + 10 + 8 + 5


def row(seed: int, *curve: float) -> dict[str, object]:
    return {"problem": "nk", "arm": "openevolve-diff", "seed": seed, "curve": curve,
            "evaluated": 4, "seconds": 1.0, "tokens": 0}  # fmt: skip


def test_runs_of_openevolve_are_an_arm_and_both_are_timed_to_its_lower_median() -> None:
    ours = ArmRun("n", 1, (0.1, 0.5, 0.6, 0.6, 0.6), 4, 1.0, 0, None)
    arms = {"map_elites": {"runs": [asdict(ours)]}, "random": {"runs": []}}
    document = {
        "comparison": "c", "budget": 4, "differing_settings": {}, "unfinished": {},
        "problems": [{"problem": "nk", "null_arm": "random", "arms": arms}],
    }  # fmt: skip
    rows = [row(1, 0.1, 0.1, 0.2, 0.5, 0.5), row(2, 0.1, 0.2, 0.2, 0.2, 0.9)]
    comparison = beside(document, rows)
    assert comparison.problems[0].measured["map_elites"] == (ours,)
    assert list(same_score(comparison, ["openevolve-diff"]))[2:] == [
        "| nk | 0.5 | openevolve-diff | 4 | 1 | 0.25 |"
    ]
