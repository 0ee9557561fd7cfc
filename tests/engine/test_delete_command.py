"""`evoq delete` and `evoq keep`, called in this process, on a ledger of finished runs."""

from pathlib import Path

import pytest

from app.adapters.store.sql import SqlStore
from app.engine.context import Context
from tests.engine.executors import planned
from tests.engine.test_retention import age, counts, finished, names, recorded
from tests.integration.cli import Evoq

__all__ = ["recorded"]


@pytest.fixture
def evoq(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    database: str,
) -> Evoq:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVOQ_DATABASE_URL", database)
    monkeypatch.setenv("EVOQ_REDIS_URL", "redis://127.0.0.1:1/0")
    return Evoq(capsys)


def test_old_runs_are_deleted_but_the_best_and_the_kept_and_are_exported_before(
    ctx: Context, evoq: Evoq, store: SqlStore, database: str, tmp_path: Path
):
    best, kept, old = (
        finished(ctx, name, seed=seed, budget=budget)
        for name, seed, budget in (("best", 1, 40), ("kept", 1, 4), ("old", 2, 2))
    )
    for run in (best, kept, old):
        age(database, run, 40)
    finished(ctx, "young", budget=2)
    evoq("keep", "kept")

    refused = evoq("delete", "--older-than", "30", "--keep-best", "1")
    line = ("delete", "--older-than", "30", "--keep-best", "1", "--export", "out", "--yes")
    deleted = evoq(*line, "--json")
    again = evoq(*line)

    copies = tmp_path / "out" / "any"
    assert (refused.code, "--yes" in refused.err) == (2, True)
    assert "old" in refused.err
    assert [one["run"] for one in deleted.json["deleted"]] == ["old"]
    assert deleted.json["removed"]["runs"] == 1
    assert sorted(names(store)) == ["best", "kept", "young"]
    assert (again.code, "there is no run to delete" in again.err) == (1, True)
    assert deleted.json["deleted"][0]["file"] == "out/old.ledger.gz"
    assert copies.with_name("old.ledger.gz").stat().st_size > 500
    assert not copies.with_name("best.ledger.gz").exists()


def test_a_run_that_may_not_go_is_named_with_the_way_out(ctx: Context, evoq: Evoq, store: SqlStore):
    finished(ctx, "first")
    evoq("keep", "first")

    kept = evoq("delete", "first", "--yes")
    nothing = evoq("delete")
    absent = evoq("delete", "first", "absent", "--yes")
    full = evoq("delete", "--full")
    evoq("keep", "first", "--release")
    deleted = evoq("delete", "first", "--yes", "--full")

    assert (kept.code, "evoq keep first --release" in kept.err) == (1, True)
    assert (nothing.code, "no run is named" in nothing.err) == (2, True)
    assert (absent.code, "'absent'" in absent.err) == (1, True)
    assert full.code == 2
    assert deleted.code == 0
    assert names(store) == []


def test_what_a_refusal_advises_ends_it(
    recorded: Context, ctx: Context, evoq: Evoq, store: SqlStore, tmp_path: Path
):
    finished(ctx, "first")
    planned(recorded, 1, name="going")
    (tmp_path / "taken").write_text("a file")
    line = ("delete", "first", "--yes")

    full, taken = evoq(*line, "--full"), evoq(*line, "--export", "taken")
    paused = evoq("pause", "going")

    assert (full.code, "pause them first, or leave --full out" in full.err) == (1, True)
    assert (taken.code, "Give another path with --export" in taken.err) == (1, True)
    assert sorted(names(store)) == ["first", "going"]
    assert paused.code == 0
    assert evoq(*line, "--full", "--export", "free").code == 0
    assert names(store) == ["going"]


def test_a_deletion_that_was_interrupted_is_ended_by_the_next_one(
    ctx: Context, evoq: Evoq, store: SqlStore, database: str
):
    run = finished(ctx, "first")
    with store.begin() as tx:
        assert tx.retention.delete(run, "asked")

    shown, listed, ended = evoq("show", "first"), evoq("list-runs", "--json"), evoq("delete")

    assert (shown.code, listed.json, ended.code) == (1, [], 0)
    assert counts(database)["proposals"] == 0
