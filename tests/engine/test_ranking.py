"""What fitness means: which stages make it, who keeps it, and whether it is comparable for ever."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from app.domain.evaluation import Evaluation, Trial
from app.domain.events import Crowned, EventKind
from app.domain.problem import Problem
from app.domain.search.archive import Cell, Elite, best, everyone_together
from app.domain.search.cohort import Cohort, State, Verdict
from app.domain.search.promotion import cascade
from app.domain.search.recipes import RECIPES
from app.domain.search.strategy import Lineage, Ranking, RecipeInputs, Strategy
from app.engine.context import Context
from tests.engine.conftest import new_run, run_to_the_end
from tests.engine.toy import interpret, problem

Register = Callable[..., None]


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> Register:
    """Registers a recipe with one cell an island, changed as the test has it."""

    def register(**changes: Any) -> None:
        @dataclass(frozen=True)
        class Podium:
            def strategy(self, inputs: RecipeInputs) -> Strategy:
                plain = Strategy(
                    everyone_together,
                    best(1),
                    lambda island, rng: Lineage(island.best(1)),
                    cascade(inputs.stages),
                )
                return replace(plain, **changes)

        monkeypatch.setitem(RECIPES, "podium", Podium)  # type: ignore[arg-type]

    return register


def staged(scores: dict[str, float]) -> Problem:
    """Returns a problem whose stages score every program alike."""

    def alike(trial: Trial, programs: Any, outcome: Any) -> Evaluation:
        measured = {player: {trial.stage: scores[trial.stage]} for player in trial.players}
        features = {player: {"x": 0.0} for player in trial.players}
        return Evaluation(scores=measured, features=features, verified=True)

    return replace(problem(stages=tuple(scores)), interpret=alike)


def ended(ctx: Context, toy: Problem, **settings: Any) -> int:
    new = replace(new_run(toy, islands=1, **settings), strategy="podium")
    return run_to_the_end(ctx, toy, new)


@pytest.mark.parametrize(("rated", "fitness"), [((), 3.0), (("full",), 5.0), (("quick",), 1.0)])
def test_fitness_is_made_of_the_rated_stages(
    ctx: Context, recipe: Register, rated: tuple[str, ...], fitness: float
) -> None:
    recipe(rated=rated)

    run = ended(ctx, staged({"quick": 1.0, "full": 5.0}), budget=1)

    with ctx.store.begin() as tx:
        found = tx.history.best(run)
    assert found is not None
    assert found.fitness == fitness


def test_a_program_that_is_cut_keeps_the_fitness_it_was_measured_at(
    ctx: Context, recipe: Register
) -> None:
    def seeds_only(cohort: Cohort, island: Any) -> Verdict:
        verdict = cascade(("full",))(cohort, island)
        if cohort.seeding:
            return verdict
        passed = [m.id for m in cohort.living if m.program in verdict.admit]
        return replace(verdict, admit=(), cut=tuple(passed))

    recipe(promotion=seeds_only)

    run = ended(ctx, staged({"full": 5.0}), budget=8)

    with ctx.store.begin() as tx:
        settled = [one for one in tx.history.settled(run) if one.ordinal >= 0]
    measured = [one.fitness for one in settled if one.state is State.CUT and one.wall_seconds >= 0]
    assert 5.0 in measured
    assert all(one.state is not State.ADMITTED for one in settled)


def test_the_best_of_a_relative_ranking_is_the_champion_and_not_the_highest_number(
    ctx: Context, recipe: Register
) -> None:
    measured: list[str] = []

    def falling(trial: Trial, programs: Any, outcome: Any) -> Evaluation:
        if outcome.result is None:
            return interpret(trial, programs, outcome)
        [player] = trial.players
        measured.append(player)
        return Evaluation(
            scores={player: {"wins": 1.0 / len(measured)}},
            features={player: {"x": 0.0}},
            verified=True,
        )

    def latest(cell: Cell, elite: Elite) -> Cell:
        return replace(cell, occupants=(elite,))

    recipe(occupancy=latest, ranking=Ranking.RELATIVE)

    toy = replace(problem(), interpret=falling)
    run_id = ended(ctx, toy, budget=10)

    with ctx.store.begin() as tx:
        run, found = tx.runs.get(run_id), tx.history.best(run_id)
        quality = tx.history.best_quality(run)
        events = tx.events.read(run_id, kinds=(EventKind.IMPROVED, EventKind.CROWNED))
    assert run.ranking is Ranking.RELATIVE
    assert found is not None
    assert quality is not None
    assert (found.program, found.fitness) == (measured[-1], 1.0 / len(measured))
    assert quality.fitness == found.fitness
    assert all(isinstance(event.fact, Crowned) for event in events)
    assert [e.fact.program for e in events if isinstance(e.fact, Crowned)] == measured
