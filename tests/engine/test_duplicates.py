"""A program is evaluated once in a run, on whichever island it is bred."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

import pytest

from app.domain.operator import Brief, Conversation, Offspring, Operator
from app.domain.operators.seed import SEED
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
    assert len(cut) == 11
    assert len(islands) == 1


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
