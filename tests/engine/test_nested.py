"""Runs inside a run: a slice of the budget each, set aside, spent, and given back once."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.adapters.queue.inline import InlineExecutor
from app.config.settings import NestedSettings, RunSettings
from app.domain.operators.search import SEARCH
from app.domain.operators.seed import SEED
from app.domain.problem import Job, Outcome
from app.domain.run import Run, RunState
from app.domain.search.budget import Budget
from app.domain.search.cohort import CutReason, State
from app.engine import lifecycle, steps
from app.engine.context import Context
from app.engine.inside import WITH_THE_RUN_AROUND, give_back
from app.ports.history import Settled
from app.ports.protocols import NEVER, Misconfigured, Stop
from app.ports.runs import InsideRun, NewRun
from tests.engine.conftest import new_run, table
from tests.engine.executors import Numbers
from tests.engine.test_interleavings import (
    DEADLINE,
    EXAMPLES,
    NAMES,
    Network,
    deadlines_pass,
    interrupted,
)
from tests.engine.toy import ASKED, NUDGE, ToySandbox, problem

SLICE = 5


def nested_run(
    strategy: str = "best_of_n",
    inside: str = "reflexion",
    *,
    budget: int = 24,
    proposals: int = SLICE,
    mix: dict[str, float] = {SEARCH.name: 1.0},  # noqa: B006
    mix_inside: dict[str, float] = {NUDGE.name: 1.0},  # noqa: B006
    parameters: dict[str, Any] = {},  # noqa: B006
    parameters_inside: dict[str, Any] = {},  # noqa: B006
    caps: dict[str, Any] = {},  # noqa: B006
    in_flight: int | None = None,
) -> NewRun:
    """Returns a run whose proposals are runs inside it."""
    new = new_run(problem(), budget=budget, in_flight=8, islands=1)
    nested = NestedSettings(
        strategy=inside, proposals=proposals, operators=mix_inside, parameters=parameters_inside
    )
    stored = RunSettings.model_validate(new.settings)
    queue = replace(stored.queue, generating=in_flight, evaluating=in_flight)
    stored = stored.model_copy(update={"nested": nested, "strategy": parameters, "queue": queue})
    return replace(
        new,
        strategy=strategy,
        operators=mix,
        settings=stored.model_dump(mode="json"),
        budget=Budget(budget, **caps),
    )


@pytest.fixture
def around(ctx: Context) -> Context:
    """Returns a context whose operators search, nudge, and ask a model."""
    return replace(ctx, operators={one.name: one for one in (SEED, NUDGE, ASKED, SEARCH)})


def worked(ctx: Context, run: int, *, until: Callable[[], bool] = lambda: False) -> Run:
    """Returns a run after all that this process can do for it and for those inside it."""
    assert isinstance(ctx.executor, InlineExecutor)
    for _ in range(500):
        ctx.executor.drain(table(ctx), until)
        with ctx.store.begin() as tx:
            found = tx.runs.get(run)
        if found.state is not RunState.RUNNING or until():
            return found
        steps.reap_all(ctx)
        steps.produce_all(ctx)
    raise AssertionError(f"it does not end: {found}")


def inside_of(ctx: Context, run: int) -> list[InsideRun]:
    with ctx.store.begin() as tx:
        return tx.runs.inside(run, reserving=False)


def settled_of(ctx: Context, run: int) -> list[Settled]:
    with ctx.store.begin() as tx:
        return [one for one in tx.history.settled(run, limit=1000) if not one.seed]


def check_accounts(ctx: Context, run: Run) -> list[InsideRun]:
    """Makes sure that what a finished run has spent is what it and those inside it have."""
    inside, own = inside_of(ctx, run.id), settled_of(ctx, run.id)
    counted = [one for one in own if one.cut is not CutReason.RETURNED]
    runs = [each.run for each in inside if each.run is not None]
    assert all(each.state.final for each in runs), runs
    assert [each.reserved for each in inside] == [0] * len(inside)
    assert len({each.ordinal for each in inside}) == len(inside)
    assert run.proposals == len(counted) + sum(each.proposals for each in runs)
    assert run.proposals <= run.budget.proposals
    assert all(each.proposals <= each.budget.proposals for each in runs)
    with ctx.store.begin() as tx:
        totals = tx.runs.sum_inside(run.id)
        assert not tx.runs.inside(run.id, reserving=True)
        backlog = tx.proposals.backlog(run.id)
    assert (totals.runs, totals.proposals) == (len(runs), sum(each.proposals for each in runs))
    assert (backlog.unsettled, backlog.reserved) == (0, 0)
    return inside


def test_a_child_is_the_best_program_of_a_run_inside_that_begins_at_its_parent(
    around: Context,
) -> None:
    run = lifecycle.start(around, problem(), nested_run(parameters={"n": 3}))

    run = worked(around, run.id)

    assert run.state is RunState.FINISHED
    inside = check_accounts(around, run)
    own = {one.ordinal: one for one in settled_of(around, run.id)}
    assert sorted(own) == [each.ordinal for each in inside]
    for each in inside:
        assert each.run is not None
        with around.store.begin() as tx:
            best = tx.history.best(each.run.id)
            [seed] = [one for one in tx.history.settled(each.run.id) if one.seed]
        assert best is not None
        assert own[each.ordinal].parents[0] == seed.program
        assert own[each.ordinal].program == best.program
        assert each.run.name == f"{run.name}:{each.ordinal}"


def test_what_is_found_lies_further_away_than_one_step_of_the_operator(around: Context) -> None:
    """It fails where the inner pattern is left out, and children are made by the operator alone."""
    new = nested_run(
        budget=66, proposals=10, parameters={"n": 2}, parameters_inside={"attempts": 9}
    )

    run = worked(around, lifecycle.start(around, problem(), new).id)

    with around.store.begin() as tx:
        own = [one for one in tx.history.settled(run.id) if not one.seed and one.program]
        sources = tx.programs.get([p for one in own for p in (one.program, *one.parents) if p])
    values = {key: float(p.source.split("=")[1].split("#")[0]) for key, p in sources.items()}
    steps_taken = [abs(values[one.program or ""] - values[one.parents[0]]) for one in own]
    assert len(own) == 6
    assert max(steps_taken) > 1.0, steps_taken


def test_the_budget_is_spent_whole_and_returned_slices_are_planned_again(around: Context) -> None:
    ended_early = {"parameters": {"n": 2}, "parameters_inside": {"attempts": 1, "parents": 1}}
    new = nested_run(budget=30, **ended_early)
    stored = RunSettings.model_validate(new.settings)
    # A run inside may end sooner.
    search = replace(stored.search, stop_fitness=-2.9)
    new = replace(
        new, settings=stored.model_copy(update={"search": search}).model_dump(mode="json")
    )
    rules_stop = worked(around, lifecycle.start(around, problem(), new).id)
    check_accounts(around, rules_stop)

    plain = replace(nested_run(budget=30, **ended_early), name="whole")
    run = worked(around, lifecycle.start(around, problem(), plain).id)

    inside = check_accounts(around, run)
    assert run.proposals in (29, 30)
    assert len(inside) >= 30 // (SLICE + 1)


def test_runs_inside_are_chosen_by_the_mix_and_a_rest_of_one_proposal_ends_the_run(
    around: Context,
) -> None:
    new = nested_run("greedy", budget=30, mix={SEARCH.name: 0.5, NUDGE.name: 0.5})

    run = worked(around, lifecycle.start(around, problem(), new).id)

    inside = check_accounts(around, run)
    made_by = {one.operator for one in settled_of(around, run.id)}
    assert made_by == {SEARCH.name, NUDGE.name}
    assert 0 < len(inside) < len(settled_of(around, run.id))
    assert run.proposals >= 29


def test_a_cancelled_run_ends_those_inside_it_and_both_go_on_after_a_resume(
    around: Context,
) -> None:
    new = nested_run(parameters={"n": 3})
    run = lifecycle.start(around, problem(), new)
    worked(around, run.id, until=lambda: len(inside_of(around, run.id)) == 3)

    assert lifecycle.cancel(around, run.id)

    inside = [each.run for each in inside_of(around, run.id)]
    assert {each.state for each in inside if each} == {RunState.CANCELLED}
    assert {each.reason for each in inside if each} == {WITH_THE_RUN_AROUND}
    around.executor.drain(table(around), lambda: False)  # type: ignore[attr-defined]
    assert [each.run for each in inside_of(around, run.id)] == inside or all(
        each.run.state is RunState.CANCELLED for each in inside_of(around, run.id) if each.run
    )
    assert lifecycle.resume(around, run.id)
    run = worked(around, run.id)
    assert run.state is RunState.FINISHED
    check_accounts(around, run)


def test_a_paused_run_pauses_those_inside_it(around: Context) -> None:
    run = lifecycle.start(around, problem(), nested_run(parameters={"n": 2}))
    worked(around, run.id, until=lambda: len(inside_of(around, run.id)) == 2)

    assert lifecycle.pause(around, run.id, "to look at it")

    assert {each.run.state for each in inside_of(around, run.id) if each.run} == {RunState.PAUSED}
    assert lifecycle.resume(around, run.id)
    check_accounts(around, worked(around, run.id))


@pytest.mark.parametrize("state", [RunState.CANCELLED, RunState.PAUSED])
def test_a_run_inside_that_was_missed_when_the_run_around_stopped_stops_by_itself(
    around: Context, state: RunState
) -> None:
    run = lifecycle.start(around, problem(), nested_run(parameters={"n": 1}))
    worked(around, run.id, until=lambda: len(inside_of(around, run.id)) == 1)
    with around.store.begin() as tx:  # as a process leaves it that dies before the others
        tx.runs.set_state(run.id, (RunState.RUNNING,), state, "by hand")

    steps.produce_all(around)

    [each] = inside_of(around, run.id)
    assert each.run is not None
    assert each.run.state is state
    lifecycle.resume(around, run.id)
    check_accounts(around, worked(around, run.id))


def test_a_run_inside_gets_back_what_was_not_begun_until_its_slice_is_returned(
    around: Context,
) -> None:
    run = lifecycle.start(around, problem(), nested_run(parameters={"n": 1}))
    worked(around, run.id, until=lambda: bool(measured_inside(around, run.id)))
    lifecycle.cancel(around, run.id)
    [each] = inside_of(around, run.id)
    assert each.run is not None
    assert each.run.proposals >= 1

    with around.store.begin() as tx:
        tx.runs.give_back(each.run.id, 1)
    lifecycle.cut_unsettled(around, run.id, "by hand")
    with around.store.begin() as tx:
        spent = tx.runs.get(run.id)
        around_it = replace(spent, state=RunState.RUNNING)
    give_back(around, around_it)
    with around.store.begin() as tx:
        tx.runs.give_back(each.run.id, 1)

    [after] = inside_of(around, run.id)
    assert after.run is not None
    assert after.run.proposals == each.run.proposals - 1
    with around.store.begin() as tx:
        left = tx.runs.get(run.id).proposals
    assert left == spent.proposals - SLICE + after.run.proposals


def measured_inside(ctx: Context, run: int) -> list[Settled]:
    return [one for each in inside_of(ctx, run) if each.run for one in settled_of(ctx, each.run.id)]


def test_losers_of_a_race_are_ended_with_the_runs_inside_them(around: Context) -> None:
    new = nested_run("speculate", budget=124, parameters={"racers": 4}, proposals=30)
    stored = RunSettings.model_validate(new.settings)
    # The fastest ends first.
    search = replace(stored.search, stop_fitness=-2.0)
    new = replace(
        new, settings=stored.model_copy(update={"search": search}).model_dump(mode="json")
    )
    run = lifecycle.start(around, problem(), new)

    run = worked(around, run.id)

    inside = check_accounts(around, run)
    withdrawn = [each for each in inside if each.state is State.CUT]
    cancelled = [each for each in withdrawn if each.run and each.run.state is RunState.CANCELLED]
    assert len(cancelled) == 3
    assert all(each.run.proposals < each.run.budget.proposals for each in cancelled if each.run)


def test_what_models_cost_inside_is_charged_once_and_counts_in_the_run_around(
    around: Context,
) -> None:
    model = Numbers(tokens=100)
    around = replace(around, model=lambda run: model)
    new = nested_run(mix_inside={ASKED.name: 1.0}, budget=24, parameters={"n": 2})

    run = worked(around, lifecycle.start(around, problem(), new).id)

    inside = check_accounts(around, run)
    spent = sum(each.run.tokens for each in inside if each.run)
    assert spent == run.tokens > 0
    with around.store.begin() as tx:
        completions = sum(
            account.completions
            for each in inside
            if each.run
            for account in tx.completions.accounts(each.run.id)
        )
    assert spent == 100 * completions


def test_slices_of_tokens_keep_the_cap_of_the_run_around(around: Context) -> None:
    model = Numbers(tokens=100)
    around = replace(around, model=lambda run: model)
    new = nested_run(
        mix_inside={ASKED.name: 1.0}, budget=30, parameters={"n": 2}, caps={"tokens": 1_500}
    )
    stored = RunSettings.model_validate(new.settings)
    llm = replace(stored.llm, models=[], max_tokens=100)
    new = replace(new, settings=stored.model_copy(update={"llm": llm}).model_dump(mode="json"))

    run = worked(around, lifecycle.start(around, problem(), new).id)

    check_accounts(around, run)
    assert 0 < run.tokens <= 1_500


class Broken(ToySandbox):
    """Measures the seeds of the first run only."""

    def run(self, job: Job, stop: Stop = NEVER) -> Outcome:
        if self.runs:
            raise Misconfigured("the image is missing")
        return super().run(job)


def test_a_run_is_paused_for_the_reason_for_which_one_inside_it_is(around: Context) -> None:
    around = replace(around, sandbox=Broken())
    run = lifecycle.start(around, problem(), nested_run(parameters={"n": 1}))
    worked(around, run.id, until=lambda: any(_paused(around, run.id)))

    [each] = inside_of(around, run.id)
    steps.generate(around, each.proposal)

    with around.store.begin() as tx:
        run = tx.runs.get(run.id)
    assert (run.state, run.reason) == (
        RunState.PAUSED,
        f"{run.name}:0 is paused: the image is missing",
    )
    around = replace(around, sandbox=ToySandbox())
    assert lifecycle.resume(around, run.id)
    check_accounts(around, worked(around, run.id))


def _paused(ctx: Context, run: int) -> list[bool]:
    return [
        each.run is not None and each.run.state is RunState.PAUSED for each in inside_of(ctx, run)
    ]


class Crashing(ToySandbox):
    """Measures the first program once; every later measurement of it fails."""

    def __init__(self, sources: Sequence[str]) -> None:
        super().__init__()
        self._left = list(sources)

    def run(self, job: Job, stop: Stop = NEVER) -> Outcome:
        source = job.programs[0][1].decode()
        if source in self._left:
            self._left.remove(source)
            return super().run(job)
        return super().run(replace(job, programs=((".py", b"x = crash\n"),)))


def test_a_run_inside_without_a_measured_seed_fails_its_proposal_alone(around: Context) -> None:
    around = replace(around, sandbox=Crashing(["x = 0.0\n"]))
    run = lifecycle.start(around, problem(), nested_run(budget=13, parameters={"n": 2}))

    run = worked(around, run.id)

    assert run.state is RunState.FINISHED
    check_accounts(around, run)
    own = settled_of(around, run.id)
    assert {one.state for one in own} == {State.FAILED}
    assert {one.failure.detail for one in own if one.failure} == {"it crashed"}


PATTERNS: dict[str, dict[str, Any]] = {
    "best_of_n": {"n": 3, "deadline_seconds": DEADLINE},
    "speculate": {"racers": 3, "deadline_seconds": DEADLINE},
    "reflexion": {"attempts": 2},
    "map_elites": {},
    "tree_of_thoughts": {"breadth": 2, "thoughts": 2, "depth": 2},
}


@pytest.mark.parametrize("strategy", list(PATTERNS))
@given(seed=st.integers(0, 2**32), inside=st.sampled_from(sorted(PATTERNS)))
@settings(max_examples=2 * EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_budgets_add_up_under_any_order_loss_and_duplication(
    ctx: Context, database: str, strategy: str, seed: int, inside: str
) -> None:
    rng = Random(seed)
    network = Network(rng)
    ctx = interrupted(ctx, network)
    ctx = replace(ctx, operators={**ctx.operators, SEARCH.name: SEARCH})
    network.answers = dict(table(ctx))
    pass_time = deadlines_pass(ctx, database)
    budget = rng.randint(8, 16)
    new = nested_run(
        *(strategy, inside),
        budget=budget,
        proposals=rng.randint(1, 6),
        mix={SEARCH.name: 0.7, "answering": 0.3},
        mix_inside={"answering": 0.5, "nudge": 0.5},
        parameters=PATTERNS[strategy],
        parameters_inside=PATTERNS[inside],
    )
    run = lifecycle.start(ctx, problem(), replace(new, name=f"nested-{next(NAMES)}"))
    network.pass_time = pass_time

    for _ in range(5000):
        if rng.random() < 0.01:
            lifecycle.pause(ctx, run.id) if rng.random() < 0.5 else lifecycle.cancel(ctx, run.id)
        if not network.deliver():
            steps.reap_all(ctx)
            steps.produce_all(ctx)
        with ctx.store.begin() as tx:
            run = tx.runs.get(run.id)
            assert run.proposals <= run.budget.proposals
        if run.state in (RunState.PAUSED, RunState.CANCELLED):
            lifecycle.resume(ctx, run.id)
        if run.state is RunState.FINISHED:
            break

    assert run.state is RunState.FINISHED, run
    assert run.proposals in (budget - 1, budget)
    for each in check_accounts(ctx, run):
        assert each.run is not None
        own = [one for one in settled_of(ctx, each.run.id) if one.cut is not CutReason.RETURNED]
        if each.run.state is RunState.FINISHED:
            assert len(own) == each.run.proposals
