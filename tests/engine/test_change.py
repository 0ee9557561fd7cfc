"""Settings of a run that change in its middle."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from app.adapters.model.per_run import Models
from app.adapters.problems.catalogue import ProblemCatalogue
from app.adapters.problems.loading import load
from app.adapters.queue.inline import InlineExecutor
from app.adapters.store.sql import SqlStore
from app.config.changes import revision_of
from app.domain.events import Changed, EventKind
from app.domain.operators.search import SEARCH
from app.domain.operators.seed import SEED
from app.domain.run import Run, RunState
from app.domain.search.budget import Budget
from app.engine import lifecycle
from app.engine.context import Context
from tests.engine.conftest import new_run, table
from tests.engine.test_nested import nested_run
from tests.engine.toy import ASKED, NUDGE, problem


def change(ctx: Context, run: int, values: dict[str, Any]) -> bool:
    with ctx.store.begin() as tx:
        stored = tx.runs.get(run)
    return lifecycle.change(ctx, stored, revision_of(stored, values, problem(), ctx.operators))


def read(ctx: Context, run: int) -> Run:
    with ctx.store.begin() as tx:
        return tx.runs.get(run)


def test_a_change_is_an_event_and_holds_on_every_connection(ctx: Context, store: SqlStore) -> None:
    run = lifecycle.start(ctx, problem(), new_run(problem()))
    with store.begin() as earlier:
        assert earlier.runs.get(run.id).rules.search.stop_fitness is None
        assert change(ctx, run.id, {"search.stop_fitness": 2.0, "queue.weight": 3.0})
        assert earlier.runs.get(run.id).rules.search.stop_fitness == 2.0
    with store.begin() as tx:
        events = tx.events.read(run.id, kinds=(EventKind.CHANGED,))

    assert {event.fact for event in events if isinstance(event.fact, Changed)} == {
        Changed(setting="search.stop_fitness", before=None, after=2.0),
        Changed(setting="queue.weight", before=1.0, after=3.0),
    }


def test_a_run_that_goes_on_ends_at_the_budget_that_it_is_given(ctx: Context) -> None:
    run = lifecycle.start(ctx, problem(), new_run(problem(), budget=40))
    assert isinstance(ctx.executor, InlineExecutor)
    settled = iter(range(10))
    ctx.executor.drain(table(ctx), lambda: next(settled, None) is None)
    assert read(ctx, run.id).state is RunState.RUNNING

    assert change(ctx, run.id, {"budget.proposals": 20})
    ctx.executor.drain(table(ctx), lambda: False)

    ended = read(ctx, run.id)
    assert (ended.state, ended.proposals, ended.budget) == (RunState.FINISHED, 20, Budget(20))


def test_of_two_changes_at_the_same_moment_one_is_stored(ctx: Context) -> None:
    run = lifecycle.start(ctx, problem(), new_run(problem()))
    stored = read(ctx, run.id)
    made = [
        revision_of(stored, {"search.stop_patience": n}, problem(), ctx.operators) for n in (3, 4)
    ]

    assert [lifecycle.change(ctx, stored, revision) for revision in made] == [True, False]
    assert read(ctx, run.id).rules.search.stop_patience == 3


def test_runs_inside_a_run_change_with_it(ctx: Context) -> None:
    around = replace(ctx, operators={one.name: one for one in (SEED, NUDGE, ASKED, SEARCH)})
    run = lifecycle.start(around, problem(), nested_run())
    assert isinstance(ctx.executor, InlineExecutor)
    with_inside: list[int] = []

    def begun() -> bool:
        with ctx.store.begin() as tx:
            with_inside[:] = [
                each.run.id
                for each in tx.runs.inside(run.id, reserving=True)
                if each.run and not each.run.state.final
            ]
        return bool(with_inside)

    ctx.executor.drain(table(around), begun)
    assert change(around, run.id, {"llm.retries": 9, "search.stop_patience": 5})

    for inside in with_inside:
        changed = read(ctx, inside)
        assert changed.settings["llm"]["retries"] == 9
        assert changed.settings["search"]["stop_patience"] is None
        with ctx.store.begin() as tx:
            [event] = tx.events.read(inside, kinds=(EventKind.CHANGED,))
        assert event.data == {"setting": "llm.retries", "before": 5, "after": 9}


def test_a_model_is_built_anew_for_the_steps_that_begin_after_a_change(ctx: Context) -> None:
    models = Models(ctx.store)
    run = lifecycle.start(ctx, problem(), new_run(problem()))
    assert change(ctx, run.id, {"llm.model": "first", "search.operators": {"nudge": 1}})
    before = read(ctx, run.id)
    first = models(before)
    assert change(ctx, run.id, {"search.stop_patience": 50})
    assert models(read(ctx, run.id)) is first

    assert change(ctx, run.id, {"llm.model": "second"})

    assert models(read(ctx, run.id)).name == "second"
    assert models(before).name == "second"
    models.close()


def test_trials_after_a_change_have_the_limits_that_the_run_has_now(
    ctx: Context, tmp_path: Path
) -> None:
    (tmp_path / "initial_program.py").write_text("x = 1.0\n")
    (tmp_path / "evaluator.py").write_text("def evaluate(path):\n    return {'score': 1.0}\n")
    loaded = load([tmp_path], options={"sandbox.memory_mib": 300})
    run = lifecycle.start(
        replace(ctx, problem=lambda digest: loaded), loaded, new_run(loaded, islands=1)
    )
    catalogue = ProblemCatalogue(ctx.store)

    assert change(ctx, run.id, {"sandbox.memory_mib": 512, "sandbox.wall_seconds": 7})
    limits = catalogue.limited(read(ctx, run.id)).first_job().limits

    assert (limits.memory_mib, limits.wall_seconds, limits.cpu_seconds) == (512, 7.0, 14.0)
    assert catalogue(loaded.digest).first_job().limits.memory_mib == 300
