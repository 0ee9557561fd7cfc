"""A run as a file: the same run comes out of it, and nothing comes out of a broken one."""

import gzip
import io
import json
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.adapters.store.copies import COPIED
from app.adapters.store.tables import metadata
from app.domain.events import EventKind, Played
from app.domain.problem import Problem
from app.domain.run import RunState
from app.engine import lifecycle
from app.engine.context import Context
from app.ports.copies import BadCopy, Row
from app.ports.protocols import Store
from app.ports.workers import Capacity, Worker
from app.reports.ledger_file import VERSION, LedgerFile, read_ledger, verified, write_ledger
from app.reports.report import report
from app.reports.summary import summarise
from tests.engine.conftest import new_run, run_to_the_end
from tests.engine.test_tournament import game, played
from tests.engine.toy import problem

NOT_COPIED = {"deletions", "outcomes", "projects", "project_days"}
"""What later runs may reuse, what was deleted, and what projects use, belong to no run."""

SECRET = "sk-abcdefghijklmnop"

Lines = list[Any]


def toy_again(
    format: str, name: str, files: Mapping[str, bytes], options: Mapping[str, Any]
) -> Problem:
    assert (format, name, options) == ("toy", "toy", {})
    assert files == {"evaluator.py": b"# toy"}
    return problem()


def exported(store: Store, run: int, folder: Path) -> Path:
    path = folder / "run.ledger.gz"
    with store.begin() as tx:
        found = tx.runs.get(run)
    with path.open("wb") as file:
        write_ledger(store, found, file)
    return path


def imported(store: Store, path: Path, name: str) -> int:
    return read_ledger(store, verified(path, toy_again), name).id


def rewritten(path: Path, change: Callable[[Lines], Lines]) -> Path:
    lines = change([json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()])
    text = "\n".join(json.dumps(line, separators=(",", ":")) for line in lines) + "\n"
    path.write_bytes(gzip.compress(text.encode()))
    return path


def canonical(rows: list[Row]) -> list[tuple[str, dict[str, Any]]]:
    """Returns rows with numbers by order of appearance, and without what each ledger has itself."""
    numbers: dict[tuple[str, int], int] = {}
    fresh = count()
    found = []
    for row in rows:
        values = dict(row.values)
        own = {"cohorts": "cohort", "proposals": "proposal", "trials": "trial", "runs": "run"}
        for column in ("run", "cohort", "proposal"):
            if isinstance(values.get(column), int):
                values[column] = numbers.setdefault((column, values[column]), next(fresh))
        if row.table in own:
            key = (own[row.table], values["id"])
            values["id"] = numbers.setdefault(key, next(fresh))
        for column in ("worker", "id"):
            if row.table in ("workers", "worker_times") and column in values:
                values[column] = values[column].rpartition("/")[2]
        for column in ("seen_at", "model_places", "sandbox_places"):
            values.pop(column, None)
        if row.table == "runs":
            del values["name"]
        found.append((row.table, values))
    return found


def rows_of(store: Store, run: int) -> list[Row]:
    with store.begin(snapshot=True) as tx:
        return list(tx.copies.rows(run))


def held(store: Store) -> list[str]:
    with store.begin() as tx:
        return [run.name for run in tx.runs.newest()]


@pytest.fixture(scope="module")
def kept() -> list[bytes]:
    """The file of one run, for the tests of this module."""
    return []


@pytest.fixture
def path(request: pytest.FixtureRequest, kept: list[bytes], tmp_path: Path) -> Path:
    path = tmp_path / "run.ledger.gz"
    if not kept:
        ctx, toy = request.getfixturevalue("ctx"), problem()
        run = run_to_the_end(ctx, toy, new_run(toy, budget=8))
        kept.append(exported(ctx.store, run, tmp_path).read_bytes())
    path.write_bytes(kept[0])
    return path


def test_every_table_is_copied_or_belongs_to_no_run():
    assert {table.name for table in COPIED} | NOT_COPIED == set(metadata.tables)


def test_a_run_comes_back_equal_under_another_name(ctx: Context, tmp_path: Path):
    toy = problem()
    first = run_to_the_end(ctx, toy, new_run(toy, budget=20))

    second = imported(ctx.store, exported(ctx.store, first, tmp_path), "again")

    assert second != first
    assert canonical(rows_of(ctx.store, second)) == canonical(rows_of(ctx.store, first))
    tables = {row.table for row in rows_of(ctx.store, second)}
    assert {"problem_files", "programs", "proposals", "trials", "elites", "events"} <= tables
    ours, theirs = summarise(ctx.store, second, toy), summarise(ctx.store, first, toy)
    assert ours.best is not None
    assert theirs.best is not None
    assert ours.best.source == theirs.best.source
    text = report(ctx.store, [(ours, toy)], [].append)
    assert "<code>again</code>" in text
    assert "<code>toy-run</code>" not in text


def test_the_events_of_an_imported_tournament_name_its_own_cohorts(ctx: Context, tmp_path: Path):
    first = played(ctx, game(), budget=4)
    path = exported(ctx.store, first, tmp_path)

    second = read_ledger(ctx.store, verified(path, lambda *_: game()), "again").id

    with ctx.store.begin() as tx:
        ours, theirs = (
            [e.fact for e in tx.events.read(run, kinds=(EventKind.PLAYED,))]
            for run in (second, first)
        )
        cohorts = {fact.cohort for fact in ours if isinstance(fact, Played)}
        games = [game for cohort in cohorts for game in tx.history.games(second, cohort, 100)]
    assert len(games) == len(ours) == len(theirs)
    assert not cohorts & {fact.cohort for fact in theirs if isinstance(fact, Played)}


def test_a_run_that_goes_on_arrives_paused(ctx: Context, tmp_path: Path):
    toy = problem()
    run = lifecycle.start(replace(ctx, problem=lambda digest: toy), toy, new_run(toy))

    second = imported(ctx.store, exported(ctx.store, run.id, tmp_path), "again")

    with ctx.store.begin() as tx:
        assert tx.runs.get(run.id).state is RunState.RUNNING
        assert tx.runs.get(second).state is RunState.PAUSED


def test_a_name_that_is_taken_adds_nothing_and_another_adds_the_run(ctx: Context, path: Path):
    imported(ctx.store, path, "again")
    before = held(ctx.store)

    with pytest.raises(ValueError, match="a run named 'again' exists; choose another --name"):
        imported(ctx.store, path, "again")

    assert held(ctx.store) == before
    imported(ctx.store, path, "another")


def test_what_looks_like_a_secret_stays_at_home(ctx: Context, tmp_path: Path):
    toy = problem()
    new = new_run(toy, budget=2)
    new = replace(new, settings={**new.settings, "llm": {"model": SECRET}})

    path = exported(ctx.store, run_to_the_end(ctx, toy, new), tmp_path)

    assert SECRET not in gzip.decompress(path.read_bytes()).decode()


@pytest.mark.parametrize(
    ("table", "values"),
    [
        ("runs", {"settings": {"note": SECRET}, "reason": SECRET}),
        ("workers", {"settings": {"image": SECRET}, "fault": SECRET}),
        (
            "proposals",
            {"changes": SECRET, "failure_detail": SECRET, "direction": {"text": SECRET}},
        ),
        ("trials", {"evaluation": {"artifacts": {"stderr": SECRET}}}),
        ("trials", {"evaluation": {"failure": {"kind": "runtime", "detail": SECRET}}}),
        ("completions", {"text": SECRET, "system_text": SECRET, "user_text": None}),
        ("events", {"data": {"reason": SECRET, "text": SECRET}}),
    ],
)
def test_no_text_of_a_table_has_a_secret(table: str, values: dict[str, Any]):
    transaction = SimpleNamespace(
        copies=SimpleNamespace(rows=lambda run: iter([Row(table, values)]))
    )
    ledger: Any = SimpleNamespace(begin=lambda snapshot: nullcontext(transaction))
    run: Any = SimpleNamespace(id=1, name="named")
    file = io.BytesIO()

    assert write_ledger(ledger, run, file) == 1

    assert SECRET not in gzip.decompress(file.getvalue()).decode()


def refused(path: Path, reason: str) -> None:
    """The file is refused before a ledger is opened."""
    with pytest.raises(BadCopy, match=reason):
        verified(path, toy_again)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_truncated_file_is_refused(path: Path, share: float):
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])

    refused(path, "ends too early|damaged")


def test_a_file_without_its_last_line_is_refused(path: Path):
    refused(rewritten(path, lambda lines: lines[:-1]), "ends too early")


def test_a_changed_line_is_refused(path: Path):
    def fitter(lines: Lines) -> Lines:
        row = next(line for line in lines[1:-1] if line[0] == "elites")
        row[1]["fitness"] = 1000.0
        return lines

    refused(rewritten(path, fitter), "the digest differs")


def test_a_changed_byte_is_refused(path: Path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))

    refused(path, "damaged|no JSON|neither a row|digest differs|ends too early")


def test_a_newer_file_is_refused(path: Path):
    def newer(lines: Lines) -> Lines:
        return [lines[0] | {"version": VERSION + 1}, *lines[1:]]

    refused(rewritten(path, newer), f"version {VERSION + 1}.*a newer one")


def test_another_file_is_refused(path: Path):
    path.write_text("x = 1\n")
    refused(path, "no file of `evoq export`")
    path.write_bytes(gzip.compress(b'{"a": 1}\n'))
    refused(path, "no ledger of a run")


@pytest.mark.parametrize(
    ("table", "change", "reason"),
    [
        ("programs", {"source": "x = 2.0\n"}, "does not have its digest"),
        ("events", {"kind": "danced"}, "none of this version"),
        ("trials", {"cohort": -1}, "refers to number -1"),
        ("islands", {"colour": "red"}, "differ from this version's in colour"),
    ],
)
def test_rows_that_cannot_be_of_this_version_add_nothing(
    ctx: Context, path: Path, table: str, change: dict[str, Any], reason: str
):
    before = held(ctx.store)
    broken = rewritten(
        path,
        lambda lines: [
            [line[0], line[1] | change] if isinstance(line, list) and line[0] == table else line
            for line in lines
        ],
    )

    with pytest.raises(BadCopy, match=reason):
        read_ledger(ctx.store, LedgerFile(broken, "toy-run", 1), "again")

    assert held(ctx.store) == before


def test_the_times_of_workers_travel_and_their_places_do_not(ctx: Context, tmp_path: Path):
    toy = problem()
    run = run_to_the_end(ctx, toy, new_run(toy, budget=2))
    with ctx.store.begin() as tx:
        tx.workers.record(Worker("host-1", "cpu", 3.6), {run: 12.5}, Capacity(None, 8))

    second = imported(ctx.store, exported(ctx.store, run, tmp_path), "again")

    with ctx.store.begin() as tx:
        assert tx.workers.of_run(second) == tx.workers.of_run(run) != []
        assert len(tx.workers.live()) == 1
