"""What `/api` says of the games of a run."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.request import Request, urlopen

import psycopg
import pytest
import redis
from websockets.sync.client import connect

from app.adapters.queue.live_moves import LiveMoves, live_moves
from app.adapters.store.sql import SqlStore
from app.dashboard.frames import MovesFrame
from app.dashboard.games import LiveGame
from app.dashboard.server import Place, Serving, serving
from app.domain.evaluation import Failure, FailureKind
from app.domain.events import Closed, EventKind, Played
from app.domain.problem import Job, Outcome
from app.engine.context import Context
from app.engine.exhibition import TURN
from app.ports.protocols import NEVER, Stop
from tests.engine.test_dashboard import NO_QUEUE, TOKEN, base, finished, get, refusal
from tests.engine.test_dashboard_metrics import address_of
from tests.engine.test_tournament import facts, game, played
from tests.engine.toy import ToySandbox, problem

__all__ = ["finished"]


class Nim(ToySandbox):
    """Five sticks, of which each move takes one or two; the program takes one, or its leave."""

    def run(self, job: Job, stop: Stop = NEVER) -> Outcome:
        assert job.function == TURN
        asked, *moves = job.cases
        if moves == ["2", "2"]:
            return Outcome(None, Failure(FailureKind.RUNTIME, "it crashed"))
        left = 5 - sum(map(int, moves)) - (asked == "move")
        found = {
            "position": "|" * left,
            "legal": [str(n) for n in (1, 2) if n <= left],
            "move": "1" if asked == "move" else "",
            "over": "" if left else "no stick is left",
        }
        return Outcome(json.dumps({"metrics": found}).encode(), None)


@pytest.fixture
def served(ctx: Context) -> Iterator[Serving]:
    toy = game()
    ctx = replace(ctx, problem=lambda digest: toy)
    place = Place(port=0, token=TOKEN)
    with serving(ctx, NO_QUEUE, place, pages=False, sandbox=Nim()) as dashboard:
        yield dashboard


def move(served: Serving, run: int, token: str = TOKEN, **asked: Any) -> Any:
    request = Request(
        f"{base(served)}/api/runs/{run}/play",
        method="POST",
        data=json.dumps(asked).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    with urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


def test_a_program_answers_the_moves_of_a_person(ctx: Context, served: Serving):
    run = played(ctx, game(), budget=4)
    champion = facts(ctx, run, EventKind.CLOSED)[-1].podium[0]

    began = move(served, run)
    answered = move(served, run, program=champion[:8], moves=["2"], answer=True)
    ended = move(served, run, moves=["2", "1", "1"], answer=True)

    assert (began["program"], began["position"], began["legal"]) == (champion, "|||||", ["1", "2"])
    assert (answered["moves"], answered["position"]) == (["2", "1"], "||")
    assert (ended["over"], ended["legal"]) == ("no stick is left", [])


def test_a_program_that_fails_loses_the_game(ctx: Context, served: Serving):
    run = played(ctx, game(), budget=4)

    lost = move(served, run, moves=["2", "2"], answer=True)

    assert lost["over"] == "the program lost: runtime: it crashed"
    assert lost["legal"] == []


def test_a_move_needs_the_token_a_game_and_a_sandbox(ctx: Context, served: Serving):
    run = played(ctx, game(), budget=4)
    assert refusal(lambda: move(served, run, token="wrong"))[0] == 401
    assert refusal(lambda: move(served, run, program="00000000"))[0] == 404
    assert refusal(lambda: move(served, run, moves=["1" * 81]))[0] == 409
    toy = problem()
    no_game = replace(ctx, problem=lambda digest: toy)
    for other, sandbox, words in (
        (no_game, Nim(), "is no game"),
        (ctx, None, "`evoq play toy-run` plays"),
    ):
        place = Place(port=0, token=TOKEN)
        with serving(other, NO_QUEUE, place, pages=False, sandbox=sandbox) as dashboard:
            status, text = refusal(lambda: move(dashboard, run))
        assert (status, words in text) == (409, True)


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


def test_each_trial_of_a_player_is_named_by_its_stage(ctx: Context, served: Serving):
    run = played(ctx, game(), budget=12)
    champion = facts(ctx, run, EventKind.CLOSED)[-1].podium[0]

    trials = get(served, f"/api/runs/{run}/programs/{champion}")["trials"]

    assert len(trials) > 3
    assert [trial["stage"] for trial in trials] == ["smoke", *["match"] * (len(trials) - 1)]


def test_a_game_at_work_has_the_moves_that_its_worker_shows(
    ctx: Context, store: SqlStore, commands: redis.Redis
):
    run = played(ctx, game(), budget=4)
    with psycopg.connect(address_of(store)) as connection:
        ids = connection.execute(
            "UPDATE trials SET evaluation = NULL, leased_until = 'infinity' WHERE id IN ("
            " SELECT id FROM trials WHERE cardinality(players) = 2 ORDER BY id DESC LIMIT 3"
            ") RETURNING id"
        ).fetchall()
    connect_four, unknown, nonsense = sorted(trial for [trial] in ids)
    shown = LiveMoves(NO_QUEUE)
    shown.show(connect_four, ["4", "4"])
    shown.show(connect_four, ["4", "4", "3"])
    shown.show(unknown, ["<b>up</b>"])
    commands.set(f"evoq:moves:{nonsense}", '{"moves": [1]}')
    toy = game()
    ctx = replace(ctx, problem=lambda digest: toy)

    with serving(ctx, NO_QUEUE, Place(port=0, token=TOKEN), pages=False) as dashboard:
        boards = get(dashboard, f"/api/runs/{run}/games")["boards"]
        frames = get(dashboard, f"/api/runs/{run}/events?limit=1000")

    at_work = {board["trial"]: board for board in boards if board["state"] == "at work"}
    assert at_work[connect_four]["moves"] == ["4", "4", "3"]
    assert at_work[connect_four]["position"].splitlines()[-1] == ". . x x . . ."
    assert (at_work[unknown]["moves"], at_work[unknown]["position"]) == (["<b>up</b>"], "")
    assert at_work[nonsense]["moves"] == []
    assert "<b>up</b>" not in frames
    assert 0 < commands.ttl(f"evoq:moves:{connect_four}") <= 60


def test_a_client_that_asks_gets_moves_between_the_frames_that_everybody_gets(
    ctx: Context, store: SqlStore, commands: redis.Redis
):
    run = played(ctx, game(), budget=4)
    with psycopg.connect(address_of(store)) as connection:
        [[trial]] = connection.execute(
            "UPDATE trials SET evaluation = NULL, leased_until = 'infinity' WHERE id = ("
            " SELECT max(id) FROM trials WHERE cardinality(players) = 2) RETURNING id"
        ).fetchall()
    shown, toy = LiveMoves(NO_QUEUE), game()
    shown.show(trial, ["4"])
    ctx = replace(ctx, problem=lambda digest: toy)
    events: list[str] = []
    moves: list[LiveGame] = []

    with serving(ctx, NO_QUEUE, Place(port=0, token=TOKEN), pages=False) as dashboard:
        address = f"{base(dashboard).replace('http', 'ws', 1)}/ws?run={run}&after=0"
        with connect(f"{address}&moves=true") as asking, connect(address) as other:
            recorded = get(dashboard, f"/api/runs/{run}/events?limit=1000").splitlines()
            while len(moves) < 2 or len(events) < len(recorded):
                frame = str(asking.recv(timeout=30))
                if not frame.startswith('{"moves"'):
                    events.append(frame)
                    continue
                moves.append(MovesFrame.model_validate_json(frame).moves)
                shown.show(trial, ["4", "4"])
            silent = [str(other.recv(timeout=30)) for _ in recorded]
            with pytest.raises(TimeoutError):
                other.recv(timeout=1.5)
            with pytest.raises(TimeoutError):
                asking.recv(timeout=1.5)

    assert events == silent == recorded
    assert [each.moves for each in moves] == [["4"], ["4", "4"]]
    assert {(each.run, each.trial) for each in moves} == {(run, trial)}
    assert moves[1].position.splitlines()[-2:] == [". . . o . . .", ". . . x . . ."]


def test_a_queue_that_does_not_answer_hides_moves_and_stops_no_game(
    ctx: Context, served: Serving, store: SqlStore
):
    run = played(ctx, game(), budget=4)
    with psycopg.connect(address_of(store)) as connection:
        connection.execute("UPDATE trials SET evaluation = NULL, leased_until = 'infinity'")

    LiveMoves(NO_QUEUE).show(1, ["4"])
    boards = get(served, f"/api/runs/{run}/games")["boards"]

    with pytest.raises(OSError, match="the queue does not answer"):
        live_moves(NO_QUEUE, [1])
    assert {board["state"] for board in boards} == {"at work"}
    assert {len(board["moves"]) for board in boards} == {0}


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
