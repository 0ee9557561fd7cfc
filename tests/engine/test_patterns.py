"""The patterns as recipes: each does what no other one does, with children that a script names."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.domain.operator import Brief, Conversation, Offspring, Operator, Reads
from app.domain.program import Program
from app.domain.run import Run
from app.domain.search.cohort import CutReason, State
from app.engine import lifecycle, steps
from app.engine.context import Context
from app.ports.history import Settled
from app.ports.runs import NewRun
from tests.engine.conftest import new_run, run_to_the_end, table
from tests.engine.executors import RecordedMessages
from tests.engine.toy import problem

SEED = "x = 0.0\n"
WORSE, CRASH = -1.0, None
"""A child is named by its number: up to 3 the higher the better; the seed has 0."""


@dataclass
class Script:
    """An operator that makes the children of a script, by ordinal, and keeps its briefs."""

    children: Sequence[float | None]

    def __post_init__(self) -> None:
        self.briefs: dict[int, Brief] = {}

    def operator(self) -> Operator:
        return Operator(
            "nudge", self._converse, asks_model=False, reads=Reads(siblings=9, failures=9)
        )

    def _converse(self, brief: Brief) -> Conversation:
        yield from ()
        [draft] = brief.drafts
        self.briefs[draft.ordinal] = brief
        x = self.children[draft.ordinal] if draft.ordinal < len(self.children) else WORSE
        text = "crash" if x is None else str(x)
        return [Offspring(Program(f"x = {text}  # {draft.ordinal}\n"))]

    def parents(self) -> list[float]:
        """Returns the numbers of the parents, in the order of their children."""
        briefs = [brief for _, brief in sorted(self.briefs.items())]
        return [number(brief.known[brief.drafts[0].parents[0]].program) for brief in briefs]


def number(program: Program) -> float:
    return float(program.source.split("=")[1].split("#")[0])


def order(recipe: str, budget: int, **parameters: Any) -> NewRun:
    new = new_run(problem(), budget=budget, in_flight=64, islands=1)
    return replace(new, strategy=recipe, settings={**new.settings, "strategy": parameters})


def searched(
    ctx: Context,
    recipe: str,
    made: Sequence[float | None],
    stages: tuple[str, ...] = ("evaluate",),
    **parameters: Any,
) -> tuple[Run, Script, list[Settled]]:
    """Returns a run of these children, and its settled proposals by ordinal without seeds."""
    script = Script(made)
    ctx = replace(ctx, operators={**ctx.operators, "nudge": script.operator()})
    toy = problem(stages=stages, seeds=(SEED,))
    run = run_to_the_end(ctx, toy, order(recipe, len(made), **parameters))
    with ctx.store.begin() as tx:
        settled = [one for one in tx.history.settled(run) if not one.seed]
        return tx.runs.get(run), script, sorted(settled, key=lambda one: one.ordinal)


def racing(
    ctx: Context, recipe: str, children: Sequence[float | None], **parameters: Any
) -> tuple[Context, Run, tuple[int, ...], RecordedMessages]:
    """Returns a run whose seed is in, and its first cohort, whose steps the test runs."""
    script, messages = Script(children), RecordedMessages()
    operators = {**ctx.operators, "nudge": script.operator()}
    ctx = replace(ctx, executor=messages, operators=operators)
    new = order(recipe, len(children), **parameters)
    run = lifecycle.start(ctx, problem(seeds=(SEED,)), new)
    for _ in range(3):
        step, subjects, _ = messages.take()
        table(ctx)[step](*subjects)
    step, proposals, _ = messages.take()
    assert (step, len(proposals)) == ("generate", len(children))
    return ctx, run, proposals, messages


def measure(ctx: Context, messages: RecordedMessages, proposal: int) -> None:
    """Lets a child be made and measured."""
    steps.generate(ctx, proposal)
    while messages.messages:
        step, trials, _ = messages.take()
        if step == "evaluate":
            steps.evaluate(ctx, *trials)


def outcomes(ctx: Context, run: Run) -> dict[int, CutReason | State]:
    with ctx.store.begin() as tx:
        settled = [one for one in tx.history.settled(run.id) if not one.seed]
    return {one.ordinal: one.cut or one.state for one in settled}


DROPPED = CutReason.BELOW_THRESHOLD


def test_speculate_commits_the_first_that_is_better_and_withdraws_the_others(
    ctx: Context,
) -> None:
    ctx, run, proposals, messages = racing(ctx, "speculate", [WORSE, 1.0, 3.0, 2.0], racers=4)
    steps.generate(ctx, proposals[2])  # under test when the race is won
    messages.take()
    measure(ctx, messages, proposals[0])
    assert outcomes(ctx, run) == {0: DROPPED}, "it is worse: the race goes on"

    measure(ctx, messages, proposals[1])

    expected = {
        0: DROPPED,
        1: State.ADMITTED,
        2: CutReason.WITHDRAWN,
        3: CutReason.RETURNED,
    }
    assert outcomes(ctx, run) == expected
    with ctx.store.begin() as tx:
        assert tx.runs.get(run.id).proposals == 3


def test_a_race_that_nobody_wins_ends_with_its_last_child(ctx: Context) -> None:
    _, script, settled = searched(ctx, "speculate", [WORSE, CRASH, -2.0, 1.0, 2.0], racers=3)

    assert [one.cut or one.state for one in settled[:3]] == [DROPPED, State.FAILED, DROPPED]
    assert script.parents() == [0.0] * 5
    assert [one.cut or one.state for one in settled[3:]] == [State.ADMITTED, CutReason.WITHDRAWN]


def test_best_of_n_waits_for_all_and_commits_the_best(ctx: Context) -> None:
    ctx, run, proposals, messages = racing(ctx, "best_of_n", [1.0, 3.0, CRASH, 2.0], n=4)
    for proposal in proposals[:3]:
        measure(ctx, messages, proposal)
    assert outcomes(ctx, run) == {2: State.FAILED}, "the others wait for the last"

    measure(ctx, messages, proposals[3])

    assert outcomes(ctx, run) == {0: DROPPED, 1: State.ADMITTED, 2: State.FAILED, 3: DROPPED}


def test_best_of_n_has_the_best_of_a_cohort_as_the_parent_of_the_next(ctx: Context) -> None:
    _, script, _ = searched(ctx, "best_of_n", [1.0, 2.0, 1.5, WORSE, 0.5, 1.0], n=3)

    assert script.parents() == [0.0, 0.0, 0.0, 2.0, 2.0, 2.0]


def test_best_of_n_without_commit_has_scores_of_children_of_the_seed_alone(ctx: Context) -> None:
    run, script, settled = searched(ctx, "best_of_n", [1.0, 2.0, 1.5, 3.0], n=2, commit=False)

    assert {one.cut for one in settled} == {DROPPED}
    assert all(one.fitness is not None and one.stages_left == 0 for one in settled)
    assert script.parents() == [0.0] * 4
    with ctx.store.begin() as tx:
        assert [number(p) for p in tx.programs.get([run_best(tx, run)]).values()] == [0.0]


def run_best(tx: Any, run: Run) -> str:
    [elite] = tx.archive.island(run.id, 0).best(9)
    program: str = elite.program
    return program


def test_cascaded_widens_while_nothing_is_better(ctx: Context) -> None:
    children = [WORSE, *[WORSE, CRASH], *[0.5, WORSE, 1.0, WORSE], *[2.0], *[3.0]]

    _, script, settled = searched(ctx, "cascaded", children)

    assert script.parents() == [0.0] * 7 + [1.0, 2.0]
    kept = [one.ordinal for one in settled if one.state is State.ADMITTED]
    assert kept == [5, 7, 8]


def test_cascaded_measures_fewer_at_each_stage(ctx: Context) -> None:
    children = [1.0, 2.0, 3.0, 1.5, 2.5, 0.5, 0.4, 0.3]

    _, _, settled = searched(
        ctx, "cascaded", children, stages=("cheap", "full", "whole"), fan_out=[8], share=0.5
    )

    left = {children[one.ordinal]: one.stages_left for one in settled}
    assert left == {3.0: 0, 2.5: 0, 2.0: 1, 1.5: 1, 1.0: 2, 0.5: 2, 0.4: 2, 0.3: 2}
    assert [one.ordinal for one in settled if one.state is State.ADMITTED] == [2]


def test_reflexion_asks_again_with_what_came_of_the_last_attempt(ctx: Context) -> None:
    children = [1.0, CRASH, 0.5, 2.0, WORSE]

    _, script, _ = searched(ctx, "reflexion", children, attempts=3)

    assert script.parents() == [0.0, 1.0, 1.0, 1.0, 2.0]
    failures = [len(script.briefs[n].ancestry.failures) for n in range(4)]
    assert failures == [0, 0, 1, 1], "each attempt knows the crash of the one before"
    scores = [[number(s.program) for s in script.briefs[n].siblings] for n in (1, 2, 3)]
    assert scores == [[], [], [0.5]], "and what another one scored"


def test_reflexion_goes_on_to_the_next_fittest_after_its_attempts(ctx: Context) -> None:
    children = [1.0, *[CRASH, WORSE], *[CRASH, WORSE], *[CRASH, 3.0], WORSE]

    _, script, _ = searched(ctx, "reflexion", children, attempts=2, parents=2)

    assert script.parents() == [0.0, *[1.0] * 2, *[0.0] * 2, *[1.0] * 2, 3.0]


def test_a_beam_goes_on_from_the_best_of_its_last_level_even_if_they_are_worse(
    ctx: Context,
) -> None:
    level_1 = [1.0, 3.0, 2.0, 0.5]
    level_2 = [0.4, 0.3, 0.2, 0.1]
    level_3 = [CRASH] * 4

    _, script, settled = searched(
        ctx, "beam", [*level_1, *level_2, *level_3, 0.0, 0.0], width=2, children=2
    )

    assert script.parents() == [
        *[0.0] * 4,
        *[3.0, 3.0, 2.0, 2.0],
        *[0.4, 0.4, 0.3, 0.3],
        *[0.4, 0.4],
    ], "a level of which nothing is left has children again"
    assert [one.generation for one in settled] == [1] * 4 + [2] * 4 + [3] * 6


def test_a_tree_of_thoughts_prunes_what_is_no_better_than_its_parent(ctx: Context) -> None:
    level_1 = [1.0, 2.0, WORSE, 0.5]
    level_2 = [1.9, 2.1, 1.5, 0.9]

    _, script, settled = searched(
        ctx, "tree_of_thoughts", [*level_1, *level_2, *[WORSE] * 2], breadth=2, thoughts=2
    )

    assert script.parents() == [*[0.0] * 4, *[2.0, 2.0, 1.0, 1.0], *[2.1, 2.1]]
    kept = [one.ordinal for one in settled if one.state is State.ADMITTED]
    assert kept == [0, 1, 5, 6], "1.9 is better than 1.5, but no better than its parent"


def test_a_tree_of_thoughts_ends_at_its_depth_or_at_a_barren_level(ctx: Context) -> None:
    tree_1 = [1.0, 2.0, *[WORSE, 1.5]]  # of 2.0 and of 1.0
    tree_2 = [*[2.5, WORSE], *[WORSE, CRASH]]  # of 2.0, then nothing of 2.5
    tree_3 = [3.0, WORSE]

    run, script, _ = searched(
        ctx,
        "tree_of_thoughts",
        [*tree_1, *tree_2, *tree_3],
        breadth=2,
        thoughts=1,
        depth=2,
    )

    assert script.parents() == [0.0, 0.0, 2.0, 1.0, 2.0, 2.0, 2.5, 2.5, 2.5, 2.5]
    with ctx.store.begin() as tx:
        [island] = tx.archive.islands(run.id)
    assert island.epoch == 2
