"""`/api` and `/ws` on a real ledger, through a real server."""

import asyncio
import itertools
import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from app.adapters.problems.catalogue import ProblemCatalogue
from app.adapters.store.sql import SqlStore
from app.dashboard.reads import RunReader
from app.dashboard.server import CannotListen, Place, Serving, serving
from app.dashboard.tail import HELD, Tail
from app.domain.events import Noticed
from app.domain.operator import Completion
from app.engine import lifecycle
from app.engine.context import Context
from app.ports.workers import Capacity, Worker
from app.reports.documents import to_json
from app.reports.waiting import QueueState
from tests.engine.conftest import new_run, run_to_the_end
from tests.engine.test_replies import Answering, asking
from tests.engine.toy import problem

TOKEN = "a-token"
NO_QUEUE = "redis://127.0.0.1:9/0"
"""Nothing listens there: a dashboard shows a run all the same."""


@pytest.fixture
def served(ctx: Context) -> Iterator[Serving]:
    with serving(ctx, NO_QUEUE, Place(port=0, token=TOKEN), pages=False) as dashboard:
        yield dashboard


@pytest.fixture
def finished(ctx: Context) -> int:
    return run_to_the_end(ctx, problem(), new_run(problem()))


def base(served: Serving) -> str:
    return served.address.partition("/?")[0]


def get(served: Serving, path: str) -> Any:
    with urlopen(f"{base(served)}{path}", timeout=30) as answer:
        body = answer.read().decode()
        return json.loads(body) if answer.headers.get_content_subtype() == "json" else body


def post(served: Serving, path: str, token: str = TOKEN, body: Any = None) -> Any:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = Request(f"{base(served)}{path}", data, method="POST", headers=headers)
    with urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


def refusal(act: Callable[[], Any]) -> tuple[int, str]:
    with pytest.raises(HTTPError) as caught:
        act()
    return caught.value.code, caught.value.read().decode()


def watching(served: Serving, run: int, after: int = 0, **options: Any) -> ClientConnection:
    address = base(served).replace("http", "ws", 1)
    return connect(f"{address}/ws?run={run}&after={after}", **options)


def test_a_finished_run_is_read_in_every_way(served: Serving, finished: int, ctx: Context):
    [row] = get(served, "/api/runs")
    assert (row["run"], row["state"], row["iterations"]) == ("toy-run", "finished", 24)
    assert get(served, "/api/runs/toy-run")["iterations"] == 24

    course = get(served, f"/api/runs/{finished}/course")
    with ctx.store.begin() as tx:
        best = tx.history.best(finished)
        assert best is not None
        assert best.program is not None
        events = tx.runs.get(finished).events
    assert course["seq"] == events
    assert course["best"] == course["improvements"][-1]["fitness"] == best.fitness
    assert course["operators"]["nudge"]["settled"] == course["settled"] == 24
    assert sum(share["improvements"] for share in course["operators"].values()) > 0
    assert sum(segment["settled"] for segment in course["segments"]) == 24

    archive = get(served, f"/api/runs/{finished}/archive?island=1")
    assert {cell["island"] for cell in archive["cells"]} == {1}
    assert len(archive["cells"]) == archive["sizes"][1]

    lineage = get(served, f"/api/runs/{finished}/lineage/{best.program}")
    assert lineage[0]["program"] == best.program
    assert lineage[-1]["ordinal"] < 0
    assert all(
        child["parent"] == parent["program"] for child, parent in itertools.pairwise(lineage)
    )

    tree = get(served, f"/api/runs/{finished}/tree")
    nodes = {node["program"]: node for node in tree["nodes"]}
    assert tree["best"] == best.program
    marked = {node["program"] for node in tree["nodes"] if node["improvement"]}
    assert marked == {improvement["program"] for improvement in course["improvements"]}
    for child, parent in itertools.pairwise(lineage):
        assert nodes[child["program"]]["parent"] == parent["program"]
    leaf = next(name for name in marked if name not in {n["parent"] for n in tree["nodes"]})
    children = get(served, f"/api/runs/{finished}/programs/{leaf}")["children"]
    assert nodes[leaf]["others"] == len({child["program"] for child in children})

    program = get(served, f"/api/runs/{finished}/programs/{best.program[:12]}")
    assert program["source"].startswith("x = ")
    assert program["fitness"] == best.fitness
    assert program["trials"][0]["metrics"]["x"]
    parent = program["parents"][0]
    diff = get(served, f"/api/runs/{finished}/diff/{parent}/{best.program}")
    assert f"+{program['source'].strip()}" in diff
    known = {
        child["program"]
        for child in get(served, f"/api/runs/{finished}/programs/{parent}")["children"]
    }
    assert best.program in known

    rows = get(served, f"/api/runs/{finished}/proposals?after=10&limit=5")
    assert len(rows) == 5
    assert get(served, "/api/system")["fault"]


def test_a_program_is_shown_with_the_replies_that_made_it(ctx: Context):
    model = Answering(lambda prompt: Completion(f"x = {prompt.sample + 1}.5\n", "answering"))
    asked = replace(new_run(problem(), budget=2), operators={"asked": 1.0})
    run_id = run_to_the_end(replace(ctx, model=lambda run: model), problem(), asked)
    reader = RunReader(ctx.store, NO_QUEUE, ctx.problem, QueueState)
    run = reader.run(str(run_id))
    [first, *_] = [row for row in reader.proposals(run, 0, 10) if row.ordinal == 0]
    assert first.program is not None

    document = reader.program(run, first.program)

    assert [(reply.turn, reply.model) for reply in document.replies] == [
        (0, "answering"),
        (1, "answering"),
    ]
    assert document.replies[1].text == document.source == "x = 1.5\n"
    written = {("generator", "answering"): 1}  # two turns wrote one program
    assert reader.writers(run, [first.program]) == written
    assert reader.writers(run, [next(iter(problem().seeds)).id]) == {}


def test_a_proposal_that_no_program_came_of_is_shown_with_what_was_asked_and_answered(
    ctx: Context, served: Serving
):
    model = Answering(lambda prompt: Completion("Zero is best."))
    asking_ctx, new = asking(ctx, model, "diff", 1)
    run = run_to_the_end(asking_ctx, problem(), new)

    found = get(served, f"/api/runs/{run}/proposals/1")

    assert (found["proposal"]["ordinal"], found["proposal"]["failure"]) == (1, "no_code")
    assert found["proposal"]["program"] is None
    assert [reply["text"] for reply in found["replies"]] == ["Zero is best."] * 2
    assert all("The current program" in reply["user"] for reply in found["replies"])
    assert refusal(lambda: get(served, f"/api/runs/{run}/proposals/9"))[0] == 404


def test_a_run_whose_problem_cannot_be_read_is_shown_without_its_baselines(
    ctx: Context, finished: int
):
    reader = RunReader(ctx.store, NO_QUEUE, ProblemCatalogue(ctx.store), QueueState)
    run = reader.run(str(finished))

    summary = to_json(reader.document(run))

    assert "unknown format of a problem (toy)" in summary["unreadable"]
    assert (summary["iterations"], summary["baselines"]) == (24, {})
    program = reader.program(run, summary["best"]["program"])
    assert [trial.stage for trial in program.trials] == ["1"]


def test_what_does_not_exist_is_named_in_the_answer(served: Serving, finished: int):
    assert refusal(lambda: get(served, "/api/runs/nobody")) == (
        404,
        '{"detail":"there is no run \'nobody\': /api/runs names them"}',
    )
    code, text = refusal(lambda: get(served, f"/api/runs/{finished}/programs/{'0' * 64}"))
    assert (code, "no program" in text) == (404, True)
    assert refusal(lambda: get(served, f"/api/runs/{finished}/archive?island=9"))[0] == 404
    assert refusal(lambda: get(served, f"/api/runs/{finished}/events?limit=0"))[0] == 422


def test_frames_by_web_socket_are_the_bytes_of_the_events_without_a_gap(
    served: Serving, finished: int
):
    replayed = get(served, f"/api/runs/{finished}/events").splitlines()

    with watching(served, finished) as live:
        received = [live.recv(60) for _ in replayed]
    with watching(served, finished, after=7) as later:
        rest = [later.recv(60) for _ in replayed[7:]]

    assert received == replayed
    assert rest == replayed[7:]
    assert [json.loads(frame)["event"]["seq"] for frame in received] == [
        n + 1 for n in range(len(replayed))
    ]


def notice(store: SqlStore, run: int, first: int, count: int) -> None:
    for start in range(first, first + count, 100):
        with store.begin() as tx:
            for number in range(start, start + 100):
                tx.events.emit(run, Noticed(text=f"{number} " + "x" * 2000))


def test_a_stalled_viewer_delays_nobody_and_loses_nothing(
    served: Serving, ctx: Context, store: SqlStore
):
    toy = problem()
    run = lifecycle.start(replace(ctx, problem=lambda digest: toy), toy, new_run(toy)).id
    count = 2 * HELD
    raw = socket.create_connection(served.server.servers[0].sockets[0].getsockname())
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    still: dict[str, Any] = {"sock": raw, "max_queue": 1, "ping_interval": None}
    with watching(served, run, **still) as stalled, watching(served, run) as healthy:
        assert json.loads(healthy.recv(60))["event"]["kind"] == "started"
        began = time.monotonic()
        for first in range(0, count, HELD):
            notice(store, run, first, HELD)
            for number in range(first, first + HELD):
                event = json.loads(healthy.recv(60))["event"]
                assert event["data"]["text"].startswith(f"{number} ")
        healthy_seconds = time.monotonic() - began
        frames = []
        with suppress(ConnectionClosed):  # the server cuts off who answers no ping for 20 s
            while len(frames) <= count:
                frames.append(json.loads(stalled.recv(30))["event"]["seq"])
    with watching(served, run, after=len(frames)) as again:
        while len(frames) <= count:
            frames.append(json.loads(again.recv(30))["event"]["seq"])

    assert frames == list(range(1, count + 2))
    assert healthy_seconds < 60


def test_a_tail_holds_a_bounded_number_of_frames(ctx: Context, store: SqlStore):
    toy = problem()
    run = lifecycle.start(replace(ctx, problem=lambda digest: toy), toy, new_run(toy)).id
    notice(store, run, 0, 2 * HELD)

    async def follow() -> Tail:
        tail = Tail(store, run)
        await tail.complete()
        return tail

    tail = asyncio.run(follow())

    assert tail.seq == 2 * HELD + 1
    assert len(tail._held) == HELD


def test_a_change_needs_the_token_and_a_state_that_allows_it(
    served: Serving, ctx: Context, store: SqlStore
):
    toy = problem()
    run = lifecycle.start(replace(ctx, problem=lambda digest: toy), toy, new_run(toy))
    pause = f"/api/runs/{run.id}/pause"

    assert refusal(lambda: post(served, pause, "wrong"))[0] == 401
    with store.begin() as tx:
        assert tx.runs.get(run.id).state.value == "running"
    assert post(served, pause) == {"run": "toy-run", "state": "paused"}
    assert refusal(lambda: post(served, pause))[0] == 409
    code, why = refusal(lambda: post(served, f"/api/runs/{run.id}/resume"))
    assert (code, "no worker" in why) == (409, True)
    with store.begin() as tx:
        tx.workers.record(Worker("w", "gpu"), {}, Capacity(4, 4))
    assert post(served, f"/api/runs/{run.id}/resume")["state"] == "running"
    assert post(served, f"/api/runs/{run.id}/cancel")["state"] == "cancelled"
    assert refusal(lambda: post(served, f"/api/runs/{run.id}/cancel"))[0] == 409


def test_settings_of_a_run_change_while_it_runs_and_a_refusal_says_why(
    served: Serving, ctx: Context, store: SqlStore
):
    toy = problem()
    run = lifecycle.start(replace(ctx, problem=lambda digest: toy), toy, new_run(toy))
    path = f"/api/runs/{run.id}/settings"

    assert refusal(lambda: post(served, path, "wrong", {"search.stop_patience": 9}))[0] == 401
    answer = post(served, path, body={"search.stop_patience": 9})
    code, why = refusal(lambda: post(served, path, body={"search.seed": 9}))

    assert answer["changed"] == {"search.stop_patience": {"before": None, "after": 9}}
    assert (code, "every random draw" in why) == (409, True)
    with store.begin() as tx:
        assert tx.runs.get(run.id).rules.search.stop_patience == 9


def test_a_taken_port_is_named_with_the_remedy(served: Serving, ctx: Context):
    port = int(base(served).rpartition(":")[2])

    with (
        pytest.raises(CannotListen, match=f"127.0.0.1:{port}.*choose another --port"),
        serving(ctx, NO_QUEUE, Place(port=port), pages=False),
    ):
        pass


def test_the_interface_is_documented(served: Serving):
    described = get(served, "/api/openapi.json")

    assert "/api/runs/{run}/course" in described["paths"]
    assert {"CourseDocument", "ProgramDocument"} <= set(described["components"]["schemas"])
    assert "export type Frame" in get(served, "/api/frames.ts")
    assert get(served, "/api/frames.json")["title"] == "Frame"


def compared(ctx: Context) -> None:
    """Runs two arms with two seeds each; a third run of the first arm has not finished."""
    for arm, islands in (("wide", 2), ("small", 1)):
        for seed in (1, 2):
            order = new_run(problem(), budget=10, islands=islands, seed=seed)
            run_to_the_end(ctx, problem(), replace(order, name=f"islands.toy.{arm}.{seed}"))
    toy = problem()
    late = replace(new_run(toy, budget=10), name="islands.toy.wide.3")
    lifecycle.start(replace(ctx, problem=lambda digest: toy), toy, late)


def test_a_comparison_is_read_with_the_bands_of_its_arms(served: Serving, ctx: Context):
    compared(ctx)

    [row] = get(served, "/api/comparisons")
    found = get(served, "/api/comparisons/islands")

    assert (row["name"], row["runs"], row["finished"]) == ("islands", 5, 4)
    assert (sorted(row["arms"]), row["problems"]) == (["small", "wide"], ["toy"])
    [of_problem] = found["problems"]
    assert list(of_problem["arms"]) == ["wide", "small"]
    wide, small = of_problem["arms"].values()
    assert (wide["runs"], wide["first_above"]) == (2, None)
    above = small["first_above"]
    assert small["runs"] == 2
    assert 0 <= above["low"] <= above["probability"] <= above["high"] <= 1
    ends = [get(served, f"/api/runs/islands.toy.wide.{seed}/course")["best"] for seed in (1, 2)]
    assert wide["band"][-1]["median"] == sum(ends) / 2
    assert wide["band"][-1]["settled"] == found["budget"] == 10
    assert found["differing_settings"]["search.islands"] == {"wide": 2, "small": 1}
    assert found["unfinished"] == {"islands.toy.wide.3": "running"}
    assert refusal(lambda: get(served, "/api/comparisons/nobody"))[0] == 404
