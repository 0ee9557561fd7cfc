"""Runs that are deleted disappear at once, and what only they had follows."""

import threading
from collections.abc import Sequence
from dataclasses import replace

import psycopg
import pytest

from app.adapters.store.sql import SqlStore
from app.adapters.store.tables import metadata
from app.config.settings import Settings
from app.domain.evaluation import Trial
from app.domain.problem import Outcome
from app.domain.program import Program
from app.domain.run import RunState
from app.domain.search.quotas import ProjectUse
from app.engine import branches, lifecycle, retention, steps
from app.engine.context import Context
from app.engine.retention import Limits
from app.ports.workers import Capacity, Worker
from tests.engine.conftest import new_run, run_to_the_end, table
from tests.engine.executors import RecordedMessages, planned
from tests.engine.test_quotas import begun, put
from tests.engine.test_quotas import planned as planned_by_quota
from tests.engine.toy import problem
from workers.metrics import step_metrics
from workers.sweeping import sweep_ledger

DAY = 86400.0


@pytest.fixture
def recorded(ctx: Context) -> Context:
    return replace(ctx, executor=RecordedMessages())


def counts(database: str) -> dict[str, int]:
    with psycopg.connect(database.replace("+psycopg", ""), autocommit=True) as c:
        found = {}
        for name in metadata.tables:
            [(found[name],)] = c.execute(f'SELECT count(*) FROM "{name}"').fetchall()  # type: ignore[arg-type]
    return found


def age(database: str, run: int, days: float) -> None:
    with psycopg.connect(database.replace("+psycopg", ""), autocommit=True) as c:
        c.execute("UPDATE events SET at = at - %s * interval '1 day' WHERE run = %s", (days, run))


def finished(ctx: Context, name: str, seed: int = 1, budget: int = 12) -> int:
    new = new_run(problem(), budget=budget, seed=seed)
    return run_to_the_end(ctx, problem(), replace(new, name=name))


def delete(store: SqlStore, run: int) -> bool:
    with store.begin() as tx:
        return tx.retention.delete(run, "asked")


def names(store: SqlStore) -> list[str]:
    with store.begin() as tx:
        return [run.name for run in tx.runs.newest()]


def programs_of(database: str) -> int:
    with psycopg.connect(database.replace("+psycopg", ""), autocommit=True) as c:
        [(n,)] = c.execute("SELECT count(DISTINCT program) FROM proposals").fetchall()
    return int(n)


def test_a_deletion_leaves_the_rows_that_other_runs_use(
    ctx: Context, store: SqlStore, database: str
):
    finished(ctx, "first")
    alone = counts(database)
    second = finished(ctx, "second", seed=2)

    assert delete(store, second)
    assert names(store) == ["first"]
    retention.sweep(store)

    assert counts(database) == {**alone, "deletions": 1}
    assert counts(database)["programs"] == programs_of(database)


def test_the_last_deletion_empties_the_ledger(ctx: Context, store: SqlStore, database: str):
    for name in ("first", "second"):
        finished(ctx, name)
    for name in names(store):
        with store.begin() as tx:
            run = tx.runs.named(name)
        assert run is not None
        assert delete(store, run.id)

    removed = retention.sweep(store)

    left = {name: n for name, n in counts(database).items() if n and name != "deletions"}
    assert left == {}
    assert (removed["runs"], removed["problems"]) == (2, 1)
    assert removed["programs"] > 2


def test_a_run_whose_project_has_a_quota_goes(
    recorded: Context, store: SqlStore, database: str
) -> None:
    """A deletion gives no quota back within the day."""
    ctx = replace(recorded, problem=lambda digest: problem())
    put(ctx, tokens_per_day=100)
    run = begun(ctx, "one")
    planned_by_quota(ctx, run)
    assert counts(database)["project_days"] == 1
    address = database.replace("+psycopg", "")
    with psycopg.connect(address, autocommit=True) as c:
        c.execute("UPDATE runs SET tokens = 100, cost_usd = 0.5")
        lifecycle.cancel(ctx, run.id)
        assert delete(store, run.id)
        retention.sweep(store)
        assert {counts(database)[name] for name in ("runs", "project_days")} == {0}

        second = begun(ctx, "two")
        assert planned_by_quota(ctx, second) == 0
        with store.begin() as tx:
            assert tx.projects.use("team") == ProjectUse(runs=1, tokens=100, usd=0.5)
            tx.retention.sweep(run.id, 10)
            assert tx.projects.use("team").tokens == 100
        # Another day began.
        c.execute("UPDATE deletions SET swept_at = swept_at - interval '1 day'")
    assert planned_by_quota(ctx, second) == 8


def test_outcomes_and_workers_leave_with_the_runs_of_their_time(
    ctx: Context, store: SqlStore, database: str
) -> None:
    with store.begin() as tx:
        tx.outcomes.keep("first", Outcome(b"{}", None, b"", b"", 1.0, 1.0))
        for name in ("idle", "busy"):
            tx.workers.record(Worker(name, "cpu"), {None: 2.0}, Capacity())
    run = finished(ctx, "first")
    address = database.replace("+psycopg", "")
    with psycopg.connect(address, autocommit=True) as c:
        c.execute("UPDATE runs SET created_at = created_at - interval '3 days'")
        c.execute("UPDATE outcomes SET kept_at = kept_at - interval '2 days'")
        c.execute("UPDATE workers SET seen_at = seen_at - interval '2 days'")
    with store.begin() as tx:
        tx.outcomes.keep("second", Outcome(b"{}", None, b"", b"", 1.0, 1.0))
        tx.workers.record(Worker("live", "cpu"), {None: 2.0}, Capacity())
    assert retention.sweep(store) == {}

    second = finished(ctx, "second")
    with store.begin() as tx:
        tx.workers.record(Worker("busy", "cpu"), {second: 2.0}, Capacity())
    with psycopg.connect(address, autocommit=True) as c:
        c.execute("UPDATE workers SET seen_at = seen_at - interval '2 days' WHERE id = 'busy'")
    assert delete(store, run)
    removed = retention.sweep(store)

    assert (removed["outcomes"], removed["workers"]) == (1, 1)
    with store.begin() as tx:
        assert (tx.outcomes.recall("first"), tx.outcomes.recall("second") is None) == (None, False)
        assert [worker.id for worker in tx.workers.live()] == ["live"]
        assert [worker.id for worker in tx.workers.at_work_for(second)] == ["busy", "live"]


def test_a_candidate_that_another_group_has_stays(recorded: Context, store: SqlStore) -> None:
    ctx, toy, candidate = recorded, problem(), Program("{}", "json")
    trial = Trial("evaluate", (candidate.id,), ("0",))
    groups = []
    for name in ("first", "second"):
        run, _ = branches.open_group(ctx, toy, replace(new_run(toy), name=name, operators={}))
        branches.add(ctx, run.id, candidate, trial)
        groups.append(run.id)
    lifecycle.cancel(ctx, groups[0])
    assert delete(store, groups[0])
    retention.sweep(store)
    with store.begin() as tx:
        assert candidate.id in tx.programs.get([candidate.id])


def test_a_group_that_was_deleted_says_so_to_its_pattern(
    recorded: Context, store: SqlStore
) -> None:
    ctx, toy, candidate = recorded, problem(), Program("{}", "json")
    trial = Trial("evaluate", (candidate.id,), ("0",))
    run, _ = branches.open_group(ctx, toy, replace(new_run(toy), operators={}))
    number = branches.add(ctx, run.id, candidate, trial)
    lifecycle.cancel(ctx, run.id)
    assert delete(store, run.id)
    for sweep in (lambda: None, lambda: retention.sweep(store)):
        sweep()
        assert branches.standing(ctx, run.id, [number]).halted == "the group was deleted"
        with pytest.raises(branches.GroupTaken, match="the group was deleted"):
            branches.add(ctx, run.id, candidate, trial)


def test_a_sweep_that_is_killed_goes_on_where_it_was(
    ctx: Context, store: SqlStore, database: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(retention, "BATCH", 2)
    run = finished(ctx, "first")
    delete(store, run)
    budget = iter([True] * 3)

    retention.sweep(store, lambda: next(budget, False))
    partly = counts(database)
    with store.begin() as tx:
        assert tx.retention.unswept() == [run]
        assert tx.runs.named("first") is None
        with pytest.raises(LookupError):
            tx.runs.get(run)
    again = finished(ctx, "first", seed=3)
    retention.sweep(store)

    assert 0 < partly["proposals"] < 12
    assert names(store) == ["first"]
    with store.begin() as tx:
        assert tx.retention.unswept() == []
        assert tx.runs.get(again).state is RunState.FINISHED


def test_running_kept_and_leased_runs_are_not_deleted(recorded: Context, store: SqlStore):
    run, (proposal,) = planned(recorded, 1)

    assert not delete(store, run.id)
    with store.begin() as tx:
        tx.proposals.claim([proposal], 30.0, attempts=5)
    lifecycle.pause(recorded, run.id)
    assert not delete(store, run.id)
    with store.begin() as tx:
        tx.leases.release([proposal], [], 0.0)
        tx.retention.keep(run.id, kept=True)
    assert not delete(store, run.id)
    with store.begin() as tx:
        tx.retention.keep(run.id, kept=False)
    assert delete(store, run.id)
    assert not delete(store, run.id)


def test_a_deleted_run_cannot_be_resumed_and_its_late_steps_do_nothing(
    recorded: Context, store: SqlStore, database: str
):
    ctx = recorded
    run, (proposal,) = planned(ctx, 1)
    lifecycle.pause(ctx, run.id)
    delete(store, run.id)

    table(ctx)["generate"](proposal)
    with pytest.raises(LookupError):
        lifecycle.resume(ctx, run.id)
    with store.begin() as tx:
        assert not tx.runs.set_state(run.id, (RunState.CANCELLED,), RunState.RUNNING)
    retention.sweep(store)
    table(ctx)["generate"](proposal)
    steps.produce_all(ctx)

    assert counts(database)["runs"] == 0


def test_old_runs_go_and_kept_running_and_young_ones_stay(
    ctx: Context, recorded: Context, store: SqlStore, database: str
):
    old, kept, young = (finished(ctx, name) for name in ("old", "kept", "young"))
    run, _ = planned(recorded, 1, name="going")
    for each in (old, kept, run.id):
        age(database, each, 10)
    age(database, young, 1)
    with store.begin() as tx:
        tx.retention.keep(kept, kept=True)

    retired = retention.retire(store, Limits(days=5))

    assert [(one.run.name, one.reason) for one in retired] == [("old", "age")]
    assert sorted(names(store)) == ["going", "kept", "young"]
    assert retention.retire(store, Limits()) == []


def test_a_full_ledger_loses_its_oldest_run_and_the_next_one_when_it_grows_again(
    ctx: Context, store: SqlStore, database: str
):
    for name, days in (("first", 3), ("second", 2), ("third", 1)):
        age(database, finished(ctx, name), days)

    def retired() -> Sequence[str]:
        return [one.run.name for one in retention.retire(store, Limits(size_bytes=1.0))]

    assert retired() == ["first"]
    assert retired() == []
    retention.sweep(store)
    assert retired() == []
    with psycopg.connect(database.replace("+psycopg", ""), autocommit=True) as c:
        c.execute("UPDATE deletions SET database_bytes = database_bytes / 2")
    assert retired() == ["second"]


def test_prompts_of_old_runs_go_and_their_replies_stay(
    ctx: Context, store: SqlStore, database: str
):
    run = finished(ctx, "old")
    address = database.replace("+psycopg", "")
    with psycopg.connect(address, autocommit=True) as c:
        c.execute(
            "INSERT INTO completions (cohort, proposal, asker, turn, place, text, model, finish,"
            " prompt_tokens, completion_tokens, latency_seconds, prompt, sample, parameters,"
            " system_text, user_text) SELECT cohort, id, 'operator', 0, 0, 'reply', 'm', 'stop',"
            " 1, 1, 0.1, 'p', 0, '{}', 'system', 'user' FROM proposals WHERE run = %s",
            (run,),
        )
    age(database, run, 10)

    assert retention.strip_prompts(store, Limits(prompt_days=20)) == {}
    removed = retention.strip_prompts(store, Limits(prompt_days=5))
    assert removed["prompts"] == counts(database)["completions"] > 10
    assert retention.strip_prompts(store, Limits(prompt_days=5)) == {}
    with psycopg.connect(address, autocommit=True) as c:
        rows = c.execute("SELECT DISTINCT system_text, user_text, text FROM completions").fetchall()
    assert rows == [(None, None, "reply")]


def test_a_program_that_another_run_stores_during_a_sweep_stays(
    ctx: Context, store: SqlStore, database: str
):
    """Given a transaction that stores a program of a deleted run again and has not committed, when
    the run is swept, I expect the sweep to wait for it and to leave the program."""
    first, second = finished(ctx, "first"), finished(ctx, "second", seed=2)
    delete(store, first)
    with psycopg.connect(database.replace("+psycopg", "")) as c:
        [(program,)] = c.execute(
            "SELECT program FROM proposals WHERE run = %s AND program NOT IN"
            " (SELECT program FROM proposals WHERE run = %s AND program IS NOT NULL) LIMIT 1",
            (first, second),
        ).fetchall()
        c.execute(
            "INSERT INTO programs (id, source, language, length)"
            " SELECT id, source, language, length FROM programs WHERE id = %s"
            " ON CONFLICT DO NOTHING",
            (program,),
        )
        sweeping = threading.Thread(target=retention.sweep, args=(store,))
        sweeping.start()
        sweeping.join(0.3)
        assert sweeping.is_alive()
        c.execute(
            "INSERT INTO proposals (run, cohort, island, ordinal, seed, state, program, fitness,"
            " settled_at) SELECT run, max(id), 0, 999, false, 'admitted', %s, 0, now() FROM cohorts"
            " WHERE run = %s GROUP BY run",
            (program, second),
        )
    sweeping.join(60)

    assert not sweeping.is_alive()
    with store.begin() as tx:
        assert program in tx.programs.get([program])
        assert tx.retention.unswept() == []


def test_a_tick_deletes_by_the_limits_of_the_environment_and_says_so(
    ctx: Context,
    store: SqlStore,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    age(database, finished(ctx, "old", budget=2), 10)
    monkeypatch.setenv("EVOQ_LEDGER_KEEP_DAYS", "5")
    before = step_metrics.deleted_runs.labels("age")._value.get()

    with caplog.at_level("INFO"):
        sweep_ledger(store, Settings())

    assert names(store) == []
    assert counts(database)["proposals"] == 0
    assert step_metrics.deleted_runs.labels("age")._value.get() == before + 1
    assert "deleted run old" in caplog.text
    assert "EVOQ_LEDGER_KEEP_DAYS" in caplog.text
    assert "proposals 3" in caplog.text


def test_a_run_goes_with_the_runs_inside_it(ctx: Context, store: SqlStore, database: str):
    around, inside = finished(ctx, "around"), finished(ctx, "around:1", seed=2)
    with psycopg.connect(database.replace("+psycopg", ""), autocommit=True) as c:
        c.execute(
            "UPDATE runs SET parent = (SELECT max(id) FROM proposals WHERE run = %s) WHERE id = %s",
            (around, inside),
        )
        c.execute(
            "UPDATE runs SET settings = jsonb_set(settings, '{nested,strategy}', '\"map_elites\"')"
            " WHERE id = %s",
            (around,),
        )
    with store.begin() as tx:
        [stored] = tx.retention.stored()

    assert (stored.name, stored.inside) == ("around", ("around:1",))
    assert delete(store, around)
    assert retention.sweep(store)["runs"] == 2
    assert {n for name, n in counts(database).items() if name != "deletions"} == {0}
