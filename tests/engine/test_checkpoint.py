"""OpenEvolve's checkpoints: a run becomes one, and a problem begins with the programs of one."""

import json
import math
import sys
from pathlib import Path

import pytest

from app.adapters.problems import load
from app.adapters.problems.openevolve.checkpoint import programs
from app.domain.problem import ProblemError
from app.engine.context import Context
from app.reports.checkpoint import write_checkpoint
from app.reports.summary import summarise
from tests.engine.conftest import new_run, run_to_the_end
from tests.engine.toy import problem


def test_a_run_becomes_a_checkpoint_that_a_problem_can_begin_with(ctx: Context, tmp_path: Path):
    toy = problem()
    run = run_to_the_end(ctx, toy, new_run(toy, budget=24))
    summary = summarise(ctx.store, run, toy)
    assert summary.best is not None

    written = write_checkpoint(ctx.store, summary, toy, tmp_path / "output")

    assert written == tmp_path / "output/checkpoints/checkpoint_24"
    metadata = json.loads((written / "metadata.json").read_text())
    files = {path.stem: json.loads(path.read_text()) for path in written.glob("programs/*")}
    assert metadata["best_program_id"] == summary.best.measured.program
    assert len(metadata["islands"]) == 2
    shown = [program for island in metadata["islands"] for program in island]
    assert {*shown} == {*files} > {*metadata["archive"]}, "the visualiser shows members alone"
    for island, members in enumerate(metadata["islands"]):
        own = {name for name, one in files.items() if one["metadata"]["island"] == island}
        assert own <= {*members} <= own | {*metadata["archive"]}
    assert {p for cells in metadata["island_feature_maps"] for p in cells.values()} <= {*files}
    assert all(one["parent_id"] in {None, *files} for one in files.values())
    best = files[metadata["best_program_id"]]
    assert best["metrics"]["combined_score"] == summary.best.measured.fitness
    assert best["code"] == summary.best.source

    folder = tmp_path / "problem"
    folder.mkdir()
    (folder / "initial_program.py").write_text("x = 9\n")
    (folder / "evaluator.py").write_text("def evaluate(path):\n    return {'combined_score': 1}\n")
    begun = load([folder], options={"problem.checkpoint": str(tmp_path / "output")})

    assert begun.seeds[0].source == "x = 9\n"
    assert begun.seeds[1].source == summary.best.source
    assert len(begun.seeds) == 1 + len(metadata["archive"])

    with pytest.raises(ProblemError, match=r"problem\.checkpoint: there is no checkpoint"):
        load([folder], options={"problem.checkpoint": str(folder)})


def test_a_checkpoint_with_any_numbers_gives_its_fittest_programs(tmp_path: Path):
    (tmp_path / "programs").mkdir()
    (tmp_path / "metadata.json").write_text(json.dumps({"archive": ["low", "high", "none"]}))
    for name, metrics in {
        "low": {"a": -sys.float_info.max, "b": -sys.float_info.max},
        "high": {"a": sys.float_info.max, "b": sys.float_info.max, "c": 10**400},
        "none": {"combined_score": math.inf, "other": -math.inf},
    }.items():
        document = {"code": f"# {name}", "metrics": metrics}
        (tmp_path / "programs" / f"{name}.json").write_text(json.dumps(document))

    found = programs(tmp_path, ".py")

    assert list(found.values()) == [b"# high", b"# none", b"# low"]
