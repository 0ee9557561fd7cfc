"""A program is evaluated once in a run, and clones of an elite open no cell of its island."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

import pytest

from app.domain.events import EventKind, Refused
from app.domain.operator import Brief, Conversation, Offspring, Operator
from app.domain.operators.seed import SEED
from app.domain.problem import Axis
from app.domain.program import Program
from app.domain.search.archive import IslandView, best, grid
from app.domain.search.promotion import cascade
from app.domain.search.recipes import RECIPES
from app.domain.search.strategy import Lineage, Move, RecipeInputs, Strategy, Upkeep
from app.engine.context import Context
from tests.engine.conftest import new_run, run_to_the_end
from tests.engine.toy import ToySandbox, problem


def _one_program(brief: Brief) -> Conversation:
    yield from ()
    return [Offspring(Program("x = 1.0\n")) for _ in brief.drafts]


def with_one_program(ctx: Context) -> tuple[Context, ToySandbox]:
    """Returns a context whose operator always makes the same program, and its sandbox."""
    sandbox = ToySandbox()
    operator = Operator("nudge", _one_program, asks_model=False)
    operators = {"seed": SEED, "nudge": operator}
    return replace(ctx, sandbox=sandbox, operators=operators), sandbox


def test_a_program_is_evaluated_once_for_all_islands(ctx: Context) -> None:
    ctx, sandbox = with_one_program(ctx)

    run = run_to_the_end(ctx, problem(), new_run(problem(), budget=12, islands=3, in_flight=4))

    assert sandbox.runs == 2, "the seed, and the child of the first proposal"
    with ctx.store.begin() as tx:
        cut = [one for one in tx.history.settled(run) if one.state == "cut"]
        islands = {island for island, elite in tx.archive.elites(run) if elite.generation}
        counted = tx.history.cuts(run)
    assert [one.cut for one in cut] == ["duplicate"] * 11
    assert counted == {"duplicate": 11}
    assert len(islands) == 1


def test_an_island_counts_the_duplicates_among_the_children_of_its_fittest(ctx: Context) -> None:
    ctx, _ = with_one_program(ctx)
    run = run_to_the_end(ctx, problem(), new_run(problem(), budget=12, islands=1))
    with ctx.store.begin() as tx:
        cut = [one for one in tx.history.settled(run) if one.cut == "duplicate"]
        bred = tx.archive.island(run, 0).bred(5, 100)
        [first, *_] = tx.archive.island(run, 0).bred(5, 1)

    parents = Counter(one.parents[0] for one in cut)
    assert {b.elite.program: b.duplicates for b in bred if b.duplicates} == parents
    assert sum(parents.values()) == 11
    assert first.duplicates <= 1, "only the children that are counted"


def test_the_program_of_one_island_migrates_to_the_others(ctx: Context) -> None:
    ctx, sandbox = with_one_program(ctx)
    new = new_run(problem(), budget=12, islands=3, migration_interval=1)

    run = run_to_the_end(ctx, problem(), new)

    assert sandbox.runs == 2
    with ctx.store.begin() as tx:
        islands = {island for island, elite in tx.archive.elites(run) if elite.generation}
    assert islands == {0, 1, 2}


def test_an_island_that_was_reset_may_evaluate_a_program_again(
    ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reset(islands: Sequence[IslandView], rng: Random) -> tuple[Move, ...]:
        [founder] = islands[0].best(1, skip=islands[0].size - 1)
        return (Move(founder, 0, 1, reset=True),)

    @dataclass(frozen=True)
    class Resetting:
        def strategy(self, inputs: RecipeInputs) -> Strategy:
            return Strategy(
                grid(inputs.axes),
                best(1),
                lambda island, rng: Lineage(island.uniform(1, rng)),
                cascade(inputs.stages),
                Upkeep(6, reset),
            )

    monkeypatch.setitem(RECIPES, "resetting", Resetting)  # type: ignore[arg-type]
    ctx, sandbox = with_one_program(ctx)

    run_to_the_end(ctx, problem(), replace(new_run(problem(), budget=12), strategy="resetting"))

    assert sandbox.runs == 3, "the seed, and the child in each of two epochs"


LENGTHS = (Axis("length", 10, 4.0, 24.0),)
"""Places programs by their text alone, as `complexity` does."""


def _longer(brief: Brief) -> Conversation:
    """Makes a program that does what its parent does, by another text."""
    yield from ()
    return [
        Offspring(Program(f"{'x' * (2 + draft.ordinal % 16)} = 0.0\n")) for draft in brief.drafts
    ]


@pytest.mark.parametrize("regridded", [False, True])
def test_a_clone_opens_no_cell_of_its_island(ctx: Context, regridded: bool) -> None:
    toy = problem(axes=(Axis("length", 10),) if regridded else LENGTHS)
    operator = Operator("nudge", _longer, asks_model=False)
    ctx = replace(ctx, operators={"seed": SEED, "nudge": operator})

    run = run_to_the_end(ctx, toy, new_run(toy, budget=16, grid_after=6, migration_interval=2))

    with ctx.store.begin() as tx:
        elites = tx.archive.elites(run)
        refused = tx.events.read(run, kinds=[EventKind.REFUSED])
        learnt = tx.events.read(run, kinds=[EventKind.REGRIDDED])
    seed = toy.seeds[0].id
    assert {elite.program for _, elite in elites} == {seed}
    clones = [event.fact for event in refused if event.data.get("clone_of")]
    assert len(clones) > 8
    assert {fact.clone_of for fact in clones if isinstance(fact, Refused)} == {seed}
    assert bool(learnt) == regridded


def test_a_seed_opens_a_cell_though_another_seed_behaves_alike(ctx: Context) -> None:
    toy = problem(axes=LENGTHS, seeds=("x = 3.0\n", "xxxxxxxx = 3.0\n"))
    run = run_to_the_end(ctx, toy, new_run(toy, budget=1, islands=2))

    with ctx.store.begin() as tx:
        elites = [(island, elite.program) for island, elite in tx.archive.elites(run)]
    assert {(island, seed.id) for seed in toy.seeds for island in (0, 1)} <= set(elites)


def test_clones_open_cells_where_the_setting_says_so(ctx: Context) -> None:
    toy = problem(axes=LENGTHS)
    operator = Operator("nudge", _longer, asks_model=False)
    ctx = replace(ctx, operators={"seed": SEED, "nudge": operator})
    new = new_run(toy, budget=16)
    settings = {**new.settings, "strategy": {"refuse_clones": False}}

    run = run_to_the_end(ctx, toy, replace(new, settings=settings))

    with ctx.store.begin() as tx:
        elites = tx.archive.elites(run)
    assert len(elites) > 6


def test_a_clone_of_a_better_elite_still_takes_the_cell_of_a_worse_one(ctx: Context) -> None:
    toy = problem(axes=LENGTHS, seeds=("x = 3.0\n", "xxxxxxxx = 1.0\n"))

    def clone(brief: Brief) -> Conversation:
        yield from ()
        return [Offspring(Program("yyyyyyyy = 3.0\n")) for _ in brief.drafts]

    operator = Operator("nudge", clone, asks_model=False)
    ctx = replace(ctx, operators={"seed": SEED, "nudge": operator})

    run = run_to_the_end(ctx, toy, new_run(toy, budget=1, islands=1))

    with ctx.store.begin() as tx:
        elites = {elite.program for _, elite in tx.archive.elites(run)}
    assert elites == {toy.seeds[0].id, Program("yyyyyyyy = 3.0\n").id}
