"""What the benchmark of a real model reads of both engines."""

from benchmarks.real_model import COUNTS, Searched, of_evoqueue, of_openevolve, table

AT = "2026-11-28 06:25:"
LOG = f"""\
{AT}27,553 - openevolve.evaluator - INFO - Evaluated program first in 0.02s: combined_score=0.6000
{AT}28,600 - openevolve.evaluator - INFO - Evaluated program a in 0.02s: combined_score=0.5000
{AT}28,649 - x - INFO - Iteration 1: Program a (parent: first) completed in 0.60s | tokens: 602 (…)
{AT}29,000 - x - WARNING - Iteration 2 error [diff]: No valid diffs found in response | tokens: 10
{AT}29,100 - x - WARNING - Iteration 3 error: LLM generation failed: Request timed out
{AT}29,300 - openevolve.evaluator - INFO - Evaluated program b in 0.02s: combined_score=0.7124
{AT}29,400 - x - INFO - Iteration 4: Program b (parent: a) completed in 0.60s | tokens: 8 (…)
{AT}29,500 - openevolve.evaluator - INFO - Evaluated program c in 0.02s: error=0.0000
{AT}29,564 - x - INFO - Iteration 5: Program c (parent: a) completed in 0.60s | tokens: 5 (…)
{AT}29,600 - openevolve.evaluator - INFO - Evaluated program d in 0.02s: combined_score=0, error=no
{AT}29,664 - x - INFO - Iteration 6: Program d (parent: a) completed in 0.60s | tokens: 5 (…)
{AT}29,700 - openevolve.evaluator - INFO - Evaluated program e in 0.02s: combined_score=0.7124
{AT}29,764 - x - INFO - Iteration 7: Program e (parent: a) completed in 0.60s | tokens: 5 (…)
"""


def code(name: str, text: str) -> dict[str, str]:
    return {"child_id": name, "child_code": text, "parent_code": "x = 0\n"}


def counted(*numbers: int) -> dict[str, int]:
    return dict(zip(COUNTS, numbers, strict=True))


def test_iterations_of_openevolve_come_as_far_as_its_log_says() -> None:
    trace = [code("a", "x = 1\n"), code("b", "x = 2\n"), code("e", "x = 2  # again\n")]

    found = of_openevolve(LOG, trace, 7)

    assert found["counts"] == counted(7, 6, 5, 4, 2, 2, 1, 1, 2, 1)
    assert found["lost"] == {
        "with an error": 2,
        "No valid diffs found in response": 1,
        "LLM generation failed: Request timed out": 1,
        "duplicate": 1,
    }
    assert (found["start"], found["end"]) == (0.6, 0.7124)
    assert found["tokens"] == 602 + 10 + 8 + 5 + 5 + 5


def test_proposals_of_evoqueue_are_counted_by_its_funnel_and_its_rows() -> None:
    steps = [{"name": name, "proposals": 9 - n} for n, name in enumerate(COUNTS[:8])]
    summary = {"funnel": {"total": {"steps": steps}}, "tokens": 700}
    settled = {"state": "admitted", "failure": None, "cut": None}
    rows = [
        {**settled, "ordinal": -1, "fitness": -2.0},
        {**settled, "ordinal": 0, "fitness": -1.0},
        {**settled, "ordinal": 1, "fitness": 0.5},
        {**settled, "ordinal": 2, "fitness": -3.0},
        {"ordinal": 3, "fitness": None, "state": "cut", "failure": None, "cut": "duplicate"},
        {"ordinal": 4, "fitness": None, "state": "failed", "failure": "runtime", "cut": None},
    ]

    found = of_evoqueue(summary, rows)

    assert found["counts"] == counted(9, 8, 7, 6, 5, 4, 3, 2, 1, 2)
    assert found["lost"] == {"duplicate": 1, "runtime": 1}
    assert (found["start"], found["end"]) == (-2.0, 0.5)


def test_the_table_sums_the_seeds_of_each_engine_and_mix() -> None:
    def searched(engine: str, seed: int, above: int) -> Searched:
        counts = counted(8, 8, 7, 6, 5, 5, 2, 1, 0, above)
        return Searched(
            engine, "p", "default", seed, 8, "m", counts, {"no_code": 1}, 800, 40.0, -1.0, 0.0
        )

    both = [searched("evoqueue", 1, 2), searched("evoqueue", 2, 0), searched("openevolve", 1, 0)]

    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table(both)]

    assert [len(line) for line in lines] == [len(lines[0])] * 4
    assert lines[2][:7] == ["m", "p", "evoqueue", "default", "2", "16", "16"]
    assert lines[2][-4:] == ["1", "100", "5.0", "2 no_code"]
    assert lines[3][2] == "openevolve"
