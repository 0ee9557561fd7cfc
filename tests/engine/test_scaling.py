"""`evoq scale` and what KEDA reads: sizes of fleets that follow from a real ledger."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from app.adapters.store.sql import SqlStore
from app.dashboard.server import Place, serving
from app.engine import lifecycle
from app.engine.context import Context
from app.ports.workers import Capacity, Worker
from tests.engine.test_demand import settle, started, unlimited
from tests.engine.test_pressure import Slow, stretch
from tests.integration.cli import CommandResult, Evoq

Scale = Callable[..., CommandResult]


@pytest.fixture
def scale(
    database: str, valkey: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Scale:
    monkeypatch.setenv("EVOQ_DATABASE_URL", database)
    monkeypatch.setenv("EVOQ_REDIS_URL", valkey)
    evoq = Evoq(capsys)
    return lambda *arguments: evoq("scale", *arguments)


@pytest.fixture
def measured(ctx: Context, store: SqlStore, database: str) -> int:
    """A run that settles 100 proposals, each 0.5 s at a model, with one worker of each queue."""
    ctx = replace(ctx, model=lambda run: Slow(0.25))
    run = unlimited(ctx)
    settle(ctx, run)
    stretch(database, run.id, 10.0)
    with store.begin() as tx:
        tx.workers.record(Worker("g", "gpu", 3.0), {}, Capacity(8, None))
        tx.workers.record(Worker("c", "cpu", 0.5), {}, Capacity(None, 4))
        # They report no second time, and live for an hour all the same.
        connection: Any = tx.workers
        connection._c.write("UPDATE workers SET seen_at = now() + interval '1 hour'", {})
    return run.id


def test_a_new_ledger_needs_no_worker(scale: Scale) -> None:
    answer = scale("--all")
    assert answer.code == 0
    assert "nothing is needed" in answer.out


def test_a_new_run_is_given_a_worker_of_each_queue_because_nothing_is_measured(
    ctx: Context, scale: Scale
) -> None:
    run = started(ctx)
    answer = scale(run.name, "--json")
    assert answer.code == 0, answer.err
    sizes = {size["queue"]: size for size in answer.json["fleets"]}
    assert {queue: size["replicas"] for queue, size in sizes.items()} == {"gpu": 1, "cpu": 1}
    assert sizes["gpu"]["why"].startswith("nothing measured yet; demand of 1")
    lifecycle.pause(ctx, run.id)
    paused = scale(run.name, "--json").json
    assert paused["fleets"] == [], "no worker was ever here"


def test_sizes_follow_from_measured_times_and_from_the_limits(
    measured: int, scale: Scale, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = scale("--all", "--json").json
    [gpu, cpu] = free["fleets"]
    assert gpu["at_work"] == pytest.approx(105, rel=0.1), "one more for each that has settled"
    assert (gpu["replicas"], cpu["replicas"]) == (-(-gpu["at_work"] // 8), 1)
    assert free["usd_per_hour"] == gpu["replicas"] * 3.0 + 0.5

    limited = scale("--all", "--max", "gpu=5", "--json").json["fleets"][0]
    assert limited["replicas"] == 5
    assert limited["why"].endswith("; the most of gpu is 5")
    assert scale("--all", "--budget-usd", "7", "--json").json["usd_per_hour"] == 6.5
    assert scale("--all", "--deadline", "2d", "--json").json["fleets"][0]["replicas"] == 1

    late = scale(str(measured), "--deadline", "2100-01-01T00:00", "--budget-usd", "1")
    assert late.code == 0
    assert "one worker of each fleet exceeds them" in late.out
    assert scale("--all", "--places", "gpu=1000", "--json").json["fleets"][0]["replicas"] == 1
    monkeypatch.setenv("COLUMNS", "200")
    text = scale("--all").out
    assert "/s × 0.5 s = " in text
    assert "toy-run" in text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "either a run or all of them are sized"),
        (("toy-run", "--all"), "either a run or all of them are sized"),
        (("absent",), "there is no run 'absent'"),
        (("--all", "--deadline", "soon"), "neither a time nor a duration (soon)"),
        (("--all", "--deadline", "2020-01-01"), "this time has passed (2020-01-01)"),
        (("--all", "--max", "gpus=4"), "not a number of a fleet (gpus=4)"),
        (("--all", "--places", "gpu=0"), "not a number of a fleet (gpu=0)"),
    ],
)
def test_what_cannot_be_read_is_named(scale: Scale, arguments: tuple[str, ...], text: str) -> None:
    answer = scale(*arguments)
    assert answer.code in (1, 2)
    assert text in answer.err


def test_dollars_without_a_price_name_the_variable_that_sets_one(
    ctx: Context, scale: Scale
) -> None:
    started(ctx)
    answer = scale("--all", "--budget-usd", "5")
    assert answer.code == 2
    assert "EVOQ_PRICES__GPU_USD_PER_HOUR" in answer.err


@pytest.fixture
def ask(ctx: Context) -> Iterator[Callable[..., Any]]:
    """Asks a dashboard whose reads need its token, as KEDA does with a bearer token."""
    place = Place(port=0, token="a-token", protect=True)
    with serving(ctx, "redis://127.0.0.1:9/0", place, pages=False) as served:

        def ask(path: str, token: str = "a-token") -> Any:
            address = served.address.partition("/?")[0]
            headers = {"Authorization": f"Bearer {token}"}
            with urlopen(Request(f"{address}{path}", headers=headers), timeout=30) as answer:
                return json.loads(answer.read())

        yield ask


def test_keda_reads_one_number_and_needs_the_token(
    measured: int, ask: Callable[..., Any], scale: Scale
) -> None:
    advised = scale("--all", "--json").json["fleets"][0]["replicas"]
    gpu = ask("/api/scale/gpu")
    assert gpu["replicas"] == pytest.approx(advised, rel=0.1)
    assert ask("/api/scale/gpu?tag=a100") | {"why": ""} == {
        **dict.fromkeys(gpu, 0),
        **{"queue": "gpu", "tag": "a100", "places": None, "why": ""},
    }
    assert ask("/api/scale/gpu?budget_usd=7")["replicas"] == 2
    assert ask("/api/scale/gpu?deadline=2100-01-01T00:00:00Z")["replicas"] == 1
    assert {size["queue"] for size in ask("/api/scale")["fleets"]} == {"gpu", "cpu"}
    for path, token, code in (
        ("/api/scale/gpu", "wrong", 401),
        ("/api/scale/gpo", "a-token", 422),
        ("/api/scale/gpu?budget_usd=nan", "a-token", 422),
    ):
        with pytest.raises(HTTPError) as refused:
            ask(path, token)
        assert refused.value.code == code
        refused.value.close()
