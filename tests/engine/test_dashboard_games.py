"""What `/api` says of the games of a run."""

from collections.abc import Iterator

import psycopg
import pytest

from app.adapters.store.sql import SqlStore
from app.dashboard.server import Place, Serving, serving
from app.domain.events import Closed, EventKind, Played
from app.engine.context import Context
from tests.engine.test_dashboard import NO_QUEUE, finished, get, refusal
from tests.engine.test_dashboard_metrics import address_of
from tests.engine.test_tournament import facts, game, played

__all__ = ["finished"]


@pytest.fixture
def served(ctx: Context) -> Iterator[Serving]:
    with serving(ctx, NO_QUEUE, Place(port=0), pages=False) as dashboard:
        yield dashboard


def test_the_games_of_a_run_are_read_with_its_podiums_and_ratings(ctx: Context, served: Serving):
    run = played(ctx, game(), budget=12)
    closed: list[Closed] = facts(ctx, run, EventKind.CLOSED)

    found = get(served, f"/api/runs/{run}/games")

    assert [each["podium"] for each in found["generations"]] == [list(e.podium) for e in closed]
    assert [each["number"] for each in found["generations"]] == [0, 1, 2, 3]
    newest = found["generations"][-1]
    assert found["cohort"] == newest["cohort"]
    assert {board["state"] for board in found["boards"]} == {"ended"}
    assert len(found["boards"]) == newest["games"]
    assert found["standings"][0]["program"] == closed[-1].podium[0]
    assert found["ratings"][0]["program"] == closed[-1].podium[0]
    seeds = get(served, f"/api/runs/{run}/games?generation={closed[0].cohort}")
    assert {board["first"] for board in seeds["boards"]} <= set(seeds["generations"][0]["entrants"])


def test_games_that_go_on_stand_before_those_that_ended(
    ctx: Context, served: Serving, store: SqlStore
):
    run = played(ctx, game(), budget=4)
    with psycopg.connect(address_of(store)) as connection:
        ids = connection.execute(
            "SELECT id FROM trials WHERE cardinality(players) = 2 ORDER BY id"
        ).fetchall()
        for [trial], lease in zip(ids[-2:], ("now() + interval '1 h'", "NULL"), strict=True):
            connection.execute(
                f"UPDATE trials SET evaluation = NULL, leased_until = {lease} WHERE id = %s",
                [trial],
            )

    boards = get(served, f"/api/runs/{run}/games")["boards"]

    assert [board["state"] for board in boards[:3]] == ["at work", "waiting", "ended"]
    assert {board["state"] for board in boards[2:]} == {"ended"}


def test_a_game_is_read_with_its_moves(ctx: Context, served: Serving):
    run = played(ctx, game(), budget=4)
    with ctx.store.begin() as tx:
        event = tx.events.read(run, kinds=(EventKind.PLAYED,))[-1]
    assert isinstance(event.fact, Played)

    found = get(served, f"/api/runs/{run}/games/{event.seq}")

    assert (found["first"], found["second"]) == (event.fact.first, event.fact.second)
    assert found["moves"] == ["up", "down"]
    assert found["termination"] == "larger"
    assert found["position"] == ""


def test_a_game_or_a_generation_that_is_not_there_is_named(ctx: Context, served: Serving):
    run = played(ctx, game(), budget=4)

    assert refusal(lambda: get(served, f"/api/runs/{run}/games/1")) == (
        404,
        '{"detail":"toy-run has no game 1"}',
    )
    status, text = refusal(lambda: get(served, f"/api/runs/{run}/games?generation=999"))
    assert (status, "no generation 999" in text) == (404, True)


def test_a_run_without_games_has_none(served: Serving, finished: int):
    found = get(served, f"/api/runs/{finished}/games")

    assert found["generations"] == found["boards"] == found["ratings"] == []
    assert found["cohort"] is None
