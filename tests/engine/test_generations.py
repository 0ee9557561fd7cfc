"""Generations of `funsearch_lite`: what is measured in full, and what leads the run."""

import csv
import json
from dataclasses import asdict, replace
from io import StringIO
from random import Random
from statistics import fmean
from typing import Any

import pytest

from app.domain.problem import Job, Outcome
from app.domain.run import Run
from app.domain.search.cohort import CutReason, State
from app.engine.context import Context
from app.ports.history import Settled
from app.ports.protocols import NEVER, Stop
from app.reports.generations import generations
from app.reports.metrics import history, write_csv, write_jsonl
from tests.engine.conftest import new_run, run_to_the_end
from tests.engine.toy import ToySandbox, problem

GENERATION = 8
STAGES = ("cheap", "full")


def searched(
    ctx: Context, budget: int, in_flight: int = 64, islands: int = 2, **parameters: Any
) -> tuple[Run, list[Settled]]:
    """Returns a run of generations of 8, and its settled proposals without seeds."""
    toy = problem(stages=STAGES)
    order = new_run(toy, budget=budget, in_flight=in_flight, islands=islands)
    own = {"refinements": 2, "mutations": 4, "fresh": 2, "top_k": 3, **parameters}
    settings = {**order.settings, "strategy": own}
    run = run_to_the_end(ctx, toy, replace(order, strategy="funsearch_lite", settings=settings))
    with ctx.store.begin() as tx:
        settled = [one for one in tx.history.settled(run) if not one.seed]
        return tx.runs.get(run), settled


def test_the_best_of_each_generation_are_measured_in_full_and_no_others(ctx: Context):
    run, settled = searched(ctx, budget=4 * GENERATION)

    assert len(settled) == run.proposals == 4 * GENERATION
    for first in range(0, 4 * GENERATION, GENERATION):
        generation = [one for one in settled if first <= one.ordinal < first + GENERATION]
        assert len({one.island for one in generation}) == 1
        kept = [one for one in generation if one.state is State.ADMITTED]
        dropped = [one for one in generation if one.cut is CutReason.BELOW_THRESHOLD]
        assert len(kept) == 3
        assert {one.stages_left for one in kept} == {0}
        assert {one.stages_left for one in dropped} == {1}
        least = min(one.fitness for one in kept if one.fitness is not None)
        assert all(one.fitness is not None and one.fitness <= least for one in dropped)


def test_the_best_program_was_measured_at_every_stage(ctx: Context):
    run, _ = searched(ctx, budget=3 * GENERATION)

    with ctx.store.begin() as tx:
        best = tx.history.best(run.id)
    assert best is not None
    assert best.stages_left == 0


def test_the_last_generation_has_what_the_budget_still_has(ctx: Context):
    run, settled = searched(ctx, budget=2 * GENERATION + 3)

    assert run.state.final
    assert len(settled) == 2 * GENERATION + 3


def test_a_program_from_scratch_is_a_child_of_a_seed(ctx: Context):
    _, settled = searched(ctx, budget=4 * GENERATION, refinements=0, mutations=6)

    scratch = [one for one in settled if one.ordinal % GENERATION >= 6]
    assert {one.generation for one in scratch} == {1}
    assert max(one.generation for one in settled) > 1


def test_the_steady_state_measures_in_full_what_is_among_the_best_of_the_newest(ctx: Context):
    _, settled = searched(ctx, budget=40, in_flight=1, steady=True, top_k=2, window=6)

    full = [one for one in settled if one.state is State.ADMITTED]
    cheap = [one for one in settled if one.cut is CutReason.BELOW_THRESHOLD]
    assert min(len(full), len(cheap)) > 5
    assert {one.stages_left for one in cheap} == {1}
    for late in (one for one in full if one.ordinal > 20):
        before = [one for one in settled if one.island == late.island and one.fitness is not None]
        before = [one for one in before if one.ordinal < late.ordinal][-5:]
        assert sum(one.fitness > late.fitness for one in before if late.fitness) < 2


def test_the_scores_of_elites_by_case_are_read_for_lexicase(ctx: Context):
    run, _ = searched(ctx, budget=3 * GENERATION, selection="lexicase", islands=1)

    with ctx.store.begin() as tx:
        island = tx.archive.island(run.id, 0)
        elites = island.best(5)
        scores = island.scores([elite.program for elite in elites])
    assert len(elites) == 5
    assert scores == {elite.program: {"near": elite.fitness} for elite in elites}


def test_gates_of_the_settings_take_the_place_of_thresholds(ctx: Context):
    toy = problem(stages=STAGES, thresholds=(1000.0,))
    order = new_run(toy, budget=40, gates=["quantile 0.9 of 10"])

    run = run_to_the_end(ctx, toy, order)

    with ctx.store.begin() as tx:
        settled = [one for one in tx.history.settled(run) if not one.seed]
        recent = [island.recent("cheap", 5) for island in tx.archive.islands(run)]
    left = [one.stages_left for one in settled if one.fitness is not None]
    assert min(left.count(0), left.count(1)) > 3, "the first that are measured pass"
    for island, fitness in enumerate(recent):
        here = [one for one in settled if one.island == island and one.fitness is not None]
        newest = sorted(here, key=lambda one: -one.ordinal)[:5]
        assert fitness == tuple(one.fitness for one in newest)


def test_each_generation_has_a_row_of_metrics_that_add_up(ctx: Context):
    run, settled = searched(ctx, budget=4 * GENERATION)

    rows = generations(history(ctx.store, run.id))

    assert [row.generation for row in rows] == [0, 1], "of two islands each"
    assert [row.num_candidates for row in rows] == [2 * GENERATION] * 2
    for number, row in enumerate(rows):
        members = settled_in(settled, range(2 * number, 2 * number + 2))
        kept = sorted(
            (one.fitness for one in members if one.state is State.ADMITTED and one.fitness),
            reverse=True,
        )
        assert row.avg_score == pytest.approx(fmean(kept))
        assert row.top_k_avg_score == pytest.approx(fmean(kept[:5]))
        assert row.num_valid == sum(one.fitness is not None for one in members)
        valid = row.num_valid - row.cut_counts.get("below_threshold", 0)
        assert valid == len(kept)
        assert sum(row.failure_counts.values()) == sum(one.failure is not None for one in members)
    with ctx.store.begin() as tx:
        best = tx.history.best(run.id)
    assert best is not None
    assert rows[0].best_score <= rows[1].best_score == best.fitness


def settled_in(settled: list[Settled], cohorts: range) -> list[Settled]:
    return [one for one in settled if one.ordinal // GENERATION in cohorts]


def test_generations_are_written_as_lines(ctx: Context):
    run, _ = searched(ctx, budget=2 * GENERATION)
    rows, lines, table = generations(history(ctx.store, run.id)), StringIO(), StringIO()

    write_jsonl(rows, lines)
    write_csv(rows, table, ["generation", *list(asdict(rows[0]))[1:]])

    assert json.loads(lines.getvalue()) == asdict(rows[0])
    [row] = csv.DictReader(StringIO(table.getvalue()))
    assert json.loads(row["cut_counts"]) == rows[0].cut_counts


class NoisySandbox(ToySandbox):
    """Measures a number with an error that follows from the seed of the job."""

    def __init__(self) -> None:
        super().__init__()
        self.seeds: list[int] = []

    def run(self, job: Job, stop: Stop = NEVER) -> Outcome:
        outcome = super().run(job)
        self.seeds.append(job.seed)
        if outcome.result is None:
            return outcome
        x = json.loads(outcome.result)["x"] + Random(f"{job.seed}").gauss(0, 0.2)
        return Outcome(json.dumps({"x": x}).encode(), None)


def test_programs_of_a_noisy_evaluator_are_measured_again_and_have_the_mean(ctx: Context):
    sandbox = NoisySandbox()
    order = new_run(problem(), budget=12, measurements=5, islands=1)

    run = run_to_the_end(replace(ctx, sandbox=sandbox), problem(), order)

    with ctx.store.begin() as tx:
        settled = [one for one in tx.history.settled(run) if one.state is State.ADMITTED]
        counts = []
        for one in settled:
            evaluations = tx.history.evaluations(run, one.program or "")
            scores = [e.scores[one.program or ""]["near"] for e in evaluations]
            counts.append(len(scores))
            assert one.fitness == pytest.approx(fmean(scores))
            assert len(set(scores)) == len(scores), "each measurement has a seed of its own"
    assert max(counts) == 5
    assert min(counts) < 5
    assert set(counts) <= {2, 3, 4, 5}
