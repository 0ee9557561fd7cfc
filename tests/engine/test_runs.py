"""A whole run on a real ledger, in one process."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest

from app.adapters.tuning.cma import ask as cma
from app.cli.output import counted_measured
from app.domain.evaluation import Cases, Evaluation, Failure, FailureKind, Trial
from app.domain.events import SETTLING, EventKind
from app.domain.operator import Brief, Conversation, Offspring, Operator
from app.domain.operators.seed import SEED
from app.domain.operators.tune import tuner
from app.domain.problem import Axis, Outcome, Problem
from app.domain.program import Program, ProgramId
from app.domain.run import RunState
from app.domain.search.cohort import State
from app.domain.source.imports import ImportPolicy
from app.engine import lifecycle, steps
from app.engine.context import Context
from app.reports.documents import RunDocument, to_json
from app.reports.progress import Progress, fold
from app.reports.summary import summarise
from tests.engine.conftest import new_run, run_to_the_end, table
from tests.engine.executors import RecordedMessages, planned
from tests.engine.toy import ToySandbox, interpret, problem


def test_a_run_settles_exactly_its_budget_and_finishes(ctx: Context) -> None:
    run_id = run_to_the_end(ctx, problem(), new_run(problem(), budget=36, in_flight=8))
    with ctx.store.begin() as tx:
        run, states, events = tx.runs.get(run_id), tx.history.states(run_id), tx.events.read(run_id)
        best = tx.history.best(run_id)
    assert run.state is RunState.FINISHED
    assert run.proposals == 36
    assert sum(n for state, n in states.items() if state.final) == 36
    assert states[State.FAILED] > 0
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    settled = [e.data["proposal"] for e in events if e.kind in SETTLING]
    assert sorted(settled) == list(range(36))
    assert best is not None
    assert best.fitness is not None
    assert best.fitness > -1.0


def test_the_same_seed_gives_the_same_events(ctx: Context) -> None:
    def history(name: str) -> list[object]:
        new = replace(new_run(problem(), budget=16), name=name)
        run_id = run_to_the_end(ctx, problem(), new)
        with ctx.store.begin() as tx:
            return [(e.kind, e.data) for e in tx.events.read(run_id)]

    assert history("first") == history("second")


def test_a_program_is_measured_on_each_case_by_a_trial_of_its_own(ctx: Context) -> None:
    def one_case(
        trial: Trial, programs: Mapping[ProgramId, Program], outcome: Outcome
    ) -> Evaluation:
        measured, [player], [case] = interpret(trial, programs, outcome), trial.players, trial.cases
        if case == "far" and measured.metrics and measured.metrics[player]["x"] > 1:
            return Evaluation(failure=Failure(FailureKind.RUNTIME, "too far"))
        if measured.failure:
            return measured
        [score] = measured.scores[player].values()
        return replace(measured, scores={player: {case: score}})

    groups = Cases({"evaluate": (("near",), ("far",))}, whole=False)
    toy = replace(problem(), cases=groups, interpret=one_case)

    run_id = run_to_the_end(ctx, toy, new_run(toy, budget=30))

    with ctx.store.begin() as tx:
        states, best = tx.history.states(run_id), tx.history.best(run_id)
        assert best is not None
        assert best.program is not None
        measured = tx.history.evaluations(run_id, best.program)
        seed = tx.history.evaluations(run_id, toy.seeds[0].id)
    assert [evaluation.failure is None for evaluation in measured] == [True, False]
    assert [list(evaluation.scores[toy.seeds[0].id]) for evaluation in seed] == [["near"], ["far"]]
    assert states[State.ADMITTED] > 0
    assert states[State.FAILED] > 0  # by crashes, on both


def test_a_run_stops_when_its_best_is_fit_enough(ctx: Context) -> None:
    run_id = run_to_the_end(ctx, problem(), new_run(problem(), budget=60, stop_fitness=-2.5))
    with ctx.store.begin() as tx:
        run = tx.runs.get(run_id)
        best = tx.history.best_quality(run)
    assert run.state is RunState.FINISHED
    assert 0 < run.proposals < 60
    assert best is not None
    assert best.fitness >= -2.5
    assert "as search.stop_fitness asks" in run.reason


def test_a_run_stops_when_nothing_improves_for_long(ctx: Context) -> None:
    toy = problem()
    run_id = run_to_the_end(ctx, toy, new_run(toy, budget=60, stop_patience=7, stop_threshold=1e9))
    with ctx.store.begin() as tx:
        run = tx.runs.get(run_id)
    assert (run.state, run.proposals) == (RunState.FINISHED, 7)
    assert run.reason == "no improvement in 7 proposals, as search.stop_patience asks"


def test_a_seed_is_evaluated_once_and_founds_every_island(ctx: Context) -> None:
    run_id = run_to_the_end(ctx, problem(), new_run(problem(), budget=1, islands=4))
    with ctx.store.begin() as tx:
        founded = tx.events.read(run_id, kinds=[EventKind.FOUNDED])
        seeds = [one for one in tx.history.settled(run_id) if one.seed]
    assert [event.data["island"] for event in founded] == [0, 1, 2, 3]
    assert len(seeds) == 1


def test_a_seed_is_announced_as_the_best_only_if_it_is_better_than_those_before(
    ctx: Context,
) -> None:
    toy = problem(seeds=("x = 3.0\n", "x = 0.0\n", "x = 3.1\n"))
    run_id = run_to_the_end(ctx, toy, new_run(toy, budget=1))
    with ctx.store.begin() as tx:
        improved = tx.events.read(run_id, kinds=[EventKind.IMPROVED])
    fitness = [event.data["fitness"] for event in improved]
    assert len(fitness) >= 2
    assert fitness == sorted(fitness)


def test_a_run_whose_seeds_all_fail_says_why(ctx: Context) -> None:
    toy = problem(seeds=("x = crash\n",))
    run_id = run_to_the_end(ctx, toy, new_run(toy))
    with ctx.store.begin() as tx:
        run = tx.runs.get(run_id)
    assert run.state is RunState.FAILED
    assert "it crashed" in run.reason


def test_open_axes_are_learnt_once_and_everyone_is_placed_anew(ctx: Context) -> None:
    toy = problem(axes=(Axis("x", 10), Axis("length", 3, 0.0, 40.0)))
    run_id = run_to_the_end(ctx, toy, new_run(toy, budget=40, grid_after=12))
    with ctx.store.begin() as tx:
        run = tx.runs.get(run_id)
        regridded = tx.events.read(run_id, kinds=[EventKind.REGRIDDED])
        elites = tx.archive.elites(run_id)
    assert len(regridded) == 1
    assert all(axis.ranged and not axis.provisional for axis in run.axes)
    assert run.axes[1] == Axis("length", 3, 0.0, 40.0)
    assert all(0 <= elite.cell[0] < 10 for _, elite in elites)
    assert len({elite.cell for _, elite in elites}) > 2


def test_a_cascade_cuts_below_its_threshold_and_spends_no_later_stage(ctx: Context) -> None:
    toy = problem(stages=("cheap", "evaluate"), thresholds=(-3.2,))
    run_id = run_to_the_end(ctx, toy, new_run(toy, budget=30))
    with ctx.store.begin() as tx:
        states = tx.history.states(run_id)
        cut = [
            one
            for one in tx.history.settled(run_id)
            if one.state is State.CUT and one.wall_seconds == 0
        ]
    assert states[State.CUT] > 0
    assert cut


def test_a_run_climbs_towards_a_threshold_from_a_seed_that_stays_below_it(ctx: Context) -> None:
    toy = problem(stages=("cheap", "evaluate"), thresholds=(0.0,))
    run_id = run_to_the_end(ctx, toy, new_run(toy, budget=20))
    with ctx.store.begin() as tx:
        run, best, elites = tx.runs.get(run_id), tx.history.best(run_id), tx.archive.elites(run_id)
        [noticed] = tx.events.read(run_id, kinds=[EventKind.NOTICED])
        seed = tx.history.settled(run_id, limit=1)[0]
    assert (run.state, run.proposals) == (RunState.FINISHED, 20)
    assert best is not None
    assert (seed.ordinal, seed.fitness, seed.stages_left) == (-1, pytest.approx(-math.pi), 1)
    assert best.fitness is not None
    assert best.fitness > -math.pi
    assert all(elite.stages_left == 1 for _, elite in elites)
    assert "below the threshold 0" in noticed.data["text"]


def test_any_program_measured_at_every_stage_ranks_above_a_seed_that_stopped(
    ctx: Context,
) -> None:
    toy = replace(
        problem(axes=(Axis("length", 1, 0.0, 99.0),), stages=("cheap", "full"), thresholds=(5.0,)),
        interpret=_strict_at_the_end,
    )
    run_id = run_to_the_end(ctx, toy, new_run(toy, budget=20, stop_fitness=3.9))
    with ctx.store.begin() as tx:
        best, elites = tx.history.best(run_id), tx.archive.elites(run_id)
        improved = tx.events.read(run_id, kinds=[EventKind.IMPROVED])
        run, seed = tx.runs.get(run_id), tx.history.settled(run_id, limit=1)[0]
    assert seed.fitness == pytest.approx(4.0)
    assert run.reason == "budget of 20 proposals spent"
    assert best is not None
    assert best.fitness is not None
    assert best.fitness < 0.0 < seed.fitness
    assert best.stages_left == 0
    assert best.program in {elite.program for _, elite in elites}
    assert seed.program not in {elite.program for _, elite in elites}
    fitness = [event.data["fitness"] for event in improved]
    assert fitness[0] == seed.fitness
    assert fitness[1:] == sorted(fitness[1:])
    assert fitness[-1] == best.fitness


def _strict_at_the_end(
    trial: Trial, programs: Mapping[ProgramId, Program], outcome: Outcome
) -> Evaluation:
    """Passes a positive x with 6 against 4 at the first stage; scores below -10 at the second."""
    evaluation = interpret(trial, programs, outcome)
    if evaluation.failure is not None:
        return evaluation
    [player] = trial.players
    x = evaluation.metrics[player]["x"]
    near = evaluation.scores[player]["near"]
    score = 6.0 - 2.0 * (x <= 0.0) if trial.stage == "cheap" else near - 10.0
    return replace(evaluation, scores={player: {"combined_score": score}})


def test_a_paused_run_plans_nothing_and_resumes_to_its_budget(ctx: Context) -> None:
    toy = problem()
    run = lifecycle.start(ctx, toy, new_run(toy, budget=30))
    steps = 0

    def later() -> bool:
        nonlocal steps
        steps += 1
        return steps > 25

    ctx.executor.drain(table(ctx), later)  # type: ignore[attr-defined]
    assert lifecycle.pause(ctx, run.id, "lunch")
    ctx.executor.drain(table(ctx), lambda: False)  # type: ignore[attr-defined]
    with ctx.store.begin() as tx:
        paused = tx.runs.get(run.id)
    assert paused.state is RunState.PAUSED
    assert paused.proposals < 30
    assert lifecycle.resume(ctx, run.id)
    ctx.executor.drain(table(ctx), lambda: False)  # type: ignore[attr-defined]
    with ctx.store.begin() as tx:
        finished = tx.runs.get(run.id)
    assert (finished.state, finished.proposals) == (RunState.FINISHED, 30)


def test_a_paused_run_begins_no_step_and_goes_on_where_it_was(ctx: Context) -> None:
    queue, sandbox = RecordedMessages(), ToySandbox()
    ctx = replace(ctx, executor=queue, sandbox=sandbox)
    run, proposals = planned(ctx, 4)
    steps.generate(ctx, *proposals[:2])
    trials = [trial for step, trials, _ in queue.messages if step == "evaluate" for trial in trials]
    queue.messages.clear()
    ran = sandbox.runs

    assert lifecycle.pause(ctx, run.id, "lunch")
    steps.generate(ctx, *proposals[2:])
    steps.evaluate(ctx, *trials)
    with ctx.store.begin() as tx:
        backlog, held = tx.proposals.backlog(run.id), tx.leases.held(run.id)
    assert (backlog.generating, backlog.evaluating, held) == (2, 2, 0)
    assert (sandbox.runs, queue.messages) == (ran, [])

    assert lifecycle.resume(ctx, run.id)
    due = {step: subjects for step, subjects, _ in queue.messages}
    assert sorted(due["generate"]) == sorted(proposals[2:])
    assert sorted(due["evaluate"]) == sorted(trials)


def test_steps_in_progress_keep_their_lease_where_their_worker_may_be_alive(ctx: Context) -> None:
    queue = RecordedMessages()
    ctx = replace(ctx, executor=queue)
    run, proposals = planned(ctx, 2)
    with ctx.store.begin() as tx:
        tx.proposals.claim(proposals[:1], 60.0, attempts=5)
    lifecycle.pause(ctx, run.id)
    with ctx.store.begin() as tx:
        assert tx.leases.held(run.id) == 1

    assert lifecycle.resume(ctx, run.id, keep_leases=True)
    again = [subjects for step, subjects, _ in queue.messages if step == "generate"]
    assert again == [proposals[1:]], "the other would be paid for twice"

    lifecycle.pause(ctx, run.id)
    assert lifecycle.resume(ctx, run.id)
    with ctx.store.begin() as tx:
        assert tx.leases.held(run.id) == 0


def test_a_cancelled_run_withdraws_what_is_in_flight_and_keeps_the_rest_of_its_budget(
    ctx: Context,
) -> None:
    toy = problem()
    run = lifecycle.start(ctx, toy, new_run(toy, budget=30, in_flight=10))
    ran = 0

    def later() -> bool:
        nonlocal ran
        ran += 1
        return ran > 12

    ctx.executor.drain(table(ctx), later)  # type: ignore[attr-defined]
    with ctx.store.begin() as tx:
        before = tx.history.states(run.id)
    assert lifecycle.cancel(ctx, run.id)
    ctx.executor.drain(table(ctx), lambda: False)  # type: ignore[attr-defined]
    with ctx.store.begin() as tx:
        states, known = tx.history.states(run.id), tx.runs.get(run.id)
        backlog, cuts = tx.proposals.backlog(run.id), tx.history.cuts(run.id)
    assert known.state is RunState.CANCELLED
    assert (states, cuts) == (before, {})
    assert backlog.unsettled > 0

    assert lifecycle.resume(ctx, run.id)
    ctx.executor.drain(table(ctx), lambda: False)  # type: ignore[attr-defined]
    with ctx.store.begin() as tx:
        states, known = tx.history.states(run.id), tx.runs.get(run.id)
    assert (known.state, known.proposals) == (RunState.FINISHED, 30)
    assert sum(states.values()) == 30
    assert all(state.final for state in states)


def test_a_name_can_be_used_once(ctx: Context) -> None:
    toy = problem()
    lifecycle.start(ctx, toy, new_run(toy))
    with pytest.raises(ValueError, match="toy-run"):
        lifecycle.start(ctx, toy, new_run(toy))


def test_a_child_that_imports_what_is_not_allowed_costs_no_sandbox(ctx: Context) -> None:
    toy = replace(problem(), imports=ImportPolicy(deny=("socket",)))

    def smuggle(brief: Brief) -> Conversation:
        yield from ()
        source = f"import socket\nx = {len(brief.drafts)}\n"
        return [Offspring(Program(source)) for _ in brief.drafts]

    sandbox = ToySandbox()
    smuggler = Operator("nudge", smuggle, asks_model=False)
    operators = {**ctx.operators, "nudge": smuggler}
    world = replace(ctx, problem=lambda _: toy, operators=operators, sandbox=sandbox)
    run_id = run_to_the_end(world, toy, new_run(toy, budget=5))
    with ctx.store.begin() as tx:
        assert tx.history.failures(run_id) == {"import_blocked": 5}
    assert sandbox.runs <= 2


def test_a_run_begins_before_its_problem_can_be_read_from_the_ledger(ctx: Context) -> None:
    def unread(digest: str) -> Problem:
        raise LookupError(digest)

    run = lifecycle.start(replace(ctx, problem=unread), problem(), new_run(problem()))

    assert run.state is RunState.RUNNING


@pytest.mark.parametrize(("strategy", "deepest"), [("random", 1), ("greedy", 2)])
def test_only_a_recipe_that_breeds_from_children_goes_deeper_than_one(
    ctx: Context, strategy: str, deepest: int
) -> None:
    new = replace(new_run(problem(), budget=24), strategy=strategy)
    run_id = run_to_the_end(ctx, problem(), new)
    with ctx.store.begin() as tx:
        settled = tx.history.settled(run_id)
        improved = tx.events.read(run_id, kinds=(EventKind.IMPROVED,))
    generations = {proposal.generation for proposal in settled if not proposal.seed}
    assert min(generations) == 1
    assert max(generations) == 1 if deepest == 1 else max(generations) >= deepest
    assert len(improved) > 1


def test_tune_tries_the_fittest_skeleton_until_it_stalls(ctx: Context) -> None:
    seed = "x = 0.5\n"
    toy = problem(seeds=(seed,))
    tune = tuner(cma)
    ctx = replace(ctx, operators={"seed": SEED, "tune": tune})
    new = replace(new_run(toy, budget=36), operators={"tune": 1.0})

    run = run_to_the_end(ctx, toy, new)

    with ctx.store.begin() as tx:
        settled = tx.history.settled(run)
        best = tx.history.best(run)
        points = tx.programs.points(run, tune.family(Program(seed)), 200)
        bred = [one for one in settled if not one.seed and one.program and one.state != "cut"]
        younger = tx.programs.born_since(run, tune.family(Program(seed)), toy.seeds[0].id, 100)
        few = tx.programs.born_since(run, tune.family(Program(seed)), toy.seeds[0].id, 5)
    assert best is not None
    assert best.fitness is not None
    assert best.fitness > -0.5
    assert len(points) == len(bred) > 20
    by_newest = sorted(bred, key=lambda one: -one.ordinal)
    assert [point.fitness for point in points] == [one.fitness for one in by_newest]
    texts = [f"x = {point.numbers[0]!r}\n" for point in points]
    assert [Program(text).id for text in texts] == [one.program for one in by_newest]
    assert (younger >= len(bred), few) == (True, 5)
    best_so_far = [toy.seeds[0].id]
    highest = -math.pi
    followed = 0
    for one in reversed(by_newest):
        followed += one.parents[0] == best_so_far[-1]
        assert one.fitness is not None
        assert one.program is not None
        if one.fitness > highest:
            best_so_far.append(one.program)
            highest = one.fitness
    assert followed > 10


PLACES = ((1, 0), (4, 0), (2, 3), (50, 0), (50, 2))
"""How many of an island's fittest, after how many others."""


def test_an_island_counts_the_children_of_its_fittest(ctx: Context) -> None:
    run = run_to_the_end(ctx, problem(), new_run(problem(), budget=24, islands=1))
    with ctx.store.begin() as tx:
        settled = tx.history.settled(run)
        island = tx.archive.island(run, 0)
        few, all_ = island.bred(4, 2), island.bred(50, 1000)
        fittest = tx.archive.island(run, 0).best(50)
        assert [island.best(n, skip) for n, skip in PLACES] == [
            fittest[skip : skip + n] for n, skip in PLACES
        ], "whether or not `bred` has read them"
    children = Counter(one.parents[0] for one in settled if not one.seed and one.parents)
    assert tuple(bred.elite for bred in all_) == fittest
    assert [bred.children for bred in all_] == [children[elite.program] for elite in fittest]
    assert max(bred.children for bred in all_) > 2
    counted = [(one.elite, one.children) for one in few]
    assert counted == [(one.elite, min(2, one.children)) for one in all_[:4]]


def test_what_was_measured_and_what_entered_a_cell_are_counted_apart(ctx: Context) -> None:
    run_id = run_to_the_end(ctx, problem(), new_run(problem(), budget=40))

    summary = summarise(ctx.store, run_id, problem())
    with ctx.store.begin() as tx:
        progress = fold(Progress(), tx.events.read(run_id, limit=10_000))
        states = tx.history.states(run_id)
    assert 0 < summary.entered < summary.measured == states[State.ADMITTED]
    assert (progress.measured, progress.entered) == (summary.measured, summary.entered)
    answer = to_json(RunDocument(summary))
    assert (answer["measured"], answer["entered"]) == (summary.measured, summary.entered)
    assert f"of which {summary.entered} entered" in counted_measured(
        summary.measured, summary.entered
    )
