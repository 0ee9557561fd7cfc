"""The report on runs: what it shows, and that nothing in it is markup or comes from elsewhere."""

import re
from dataclasses import replace
from itertools import pairwise

from app.engine.context import Context
from app.reports.report import lineage, report
from app.reports.summary import summarise
from tests.engine.conftest import new_run, run_to_the_end
from tests.engine.toy import problem

HOSTILE = "x = 0.0  # ``` <script>alert(1)</script> ![a](http://127.0.0.1/a.png)\n"


def test_a_report_is_one_file_with_everything_in_it(ctx: Context):
    toy = problem(seeds=(HOSTILE,))
    run = run_to_the_end(ctx, toy, new_run(toy, budget=24))

    text = report(ctx.store, [(summarise(ctx.store, run, toy), toy)], [].append)

    assert text.count('src="data:image/png;base64,') == 3
    assert re.findall(r'(?:src|href)="(?!data:)[^"]*"', text) == []
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert "runtime" in text
    assert "cut: duplicate" in text
    assert "grid_after" in text


def test_the_lineage_goes_from_a_seed_to_the_best_with_what_changed(ctx: Context):
    toy = problem()
    run = run_to_the_end(ctx, toy, new_run(toy, budget=30))
    summary = summarise(ctx.store, run, toy)
    best = summary.best
    assert best is not None

    steps = lineage(ctx.store, summary.run, best)

    assert steps[0].settled.seed
    assert steps[0].diff == "x = 0.0\n"
    assert steps[-1].settled.program == best.measured.program
    assert len(steps) > 2
    for before, after in pairwise(steps):
        assert after.settled.parents[0] == before.settled.program
        assert re.search(r"^-x = .*\n\+x = ", after.diff, re.MULTILINE)


def test_several_runs_share_a_report_and_keep_their_own_pictures(ctx: Context):
    toy = problem()
    runs = []
    for name in ("one", "two"):
        runs.append(run_to_the_end(ctx, toy, replace(new_run(toy, budget=5), name=name)))

    text = report(ctx.store, [(summarise(ctx.store, run, toy), toy) for run in runs], [].append)

    assert text.count("data:image/png") == 6
    assert text.index("<code>one</code>") < text.index("<code>two</code>")
