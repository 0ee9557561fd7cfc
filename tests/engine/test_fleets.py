"""Steps go to the fleets of their labels; a fleet that nobody serves stops no other."""

from collections import defaultdict, deque
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import pytest

from app.config.changes import revision_of
from app.domain.operator import Completion, Prompt
from app.domain.operators.search import SEARCH
from app.domain.run import Run, RunState
from app.domain.search.fleets import UNSERVED, queue_of
from app.engine import lifecycle, steps
from app.engine.context import Context, Pace
from app.ports.protocols import NEVER, Step, Stop
from app.ports.workers import Capacity, Worker
from app.reports.waiting import QueueState, waiting_of
from tests.engine.conftest import new_run, table
from tests.engine.executors import RecordedMessages
from tests.engine.test_nested import nested_run
from tests.engine.toy import problem

KINDS: dict[Step, str] = {
    "generate": "gpu",
    "judge": "gpu",
    "evaluate": "cpu",
    "produce": "control",
}


class Queues:
    """The queues of a broker, each with its messages, which `serve` runs the steps of."""

    def __init__(self) -> None:
        self.waiting: dict[str, deque[tuple[Step, tuple[int, ...]]]] = defaultdict(deque)
        self.messages: list[tuple[Step, tuple[int, ...]]] = []

    def submit(
        self, step: Step, subjects: Sequence[int], *, together: int = 1, fleet: str = ""
    ) -> None:
        for n in range(0, len(subjects), together):
            message = step, tuple(subjects[n : n + together])
            self.messages.append(message)
            self.waiting[queue_of(KINDS[step], fleet)].append(message)

    def queued(self, step: Step, fleet: str = "") -> int:
        return len(self.waiting[queue_of(KINDS[step], fleet)])

    def serve(self, ctx: Context, *served: str, rounds: int = 400) -> None:
        """Runs the steps of these queues and of `control`, and lets beat tick in between."""
        for _ in range(rounds):
            steps.produce_all(ctx)
            steps.reap_all(ctx)
            queues = [name for name in ("control", *served) if self.waiting[name]]
            if not queues:
                return
            for name in queues:
                step, subjects = self.waiting[name].popleft()
                table(ctx)[step](*subjects)


class Named:
    """A model that answers with numbers, and is named after the fleet whose step asks it."""

    places = None

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked = 0

    def complete(self, prompts: Sequence[Prompt], stop: Stop = NEVER) -> list[Completion]:
        self.asked += 1
        return [Completion(f"x = {self.asked}.{ord(self.name[0])}\n", self.name) for _ in prompts]


@pytest.fixture
def queues() -> Queues:
    return Queues()


@pytest.fixture
def ctx(ctx: Context, queues: Queues) -> Context:
    models: dict[str, Named] = {}
    return replace(
        ctx,
        executor=queues,
        model=lambda run: models.setdefault(run.fleet, Named(run.fleet or "none")),
        pace=Pace(place_seconds=0.0),
    )


def begun(ctx: Context, *fleets: str, budget: int = 16, **others: Any) -> Run:
    toy = problem()
    new = new_run(toy, budget=budget, in_flight=8)
    queue = {**new.settings["queue"], "generating": None, "evaluating": None, "fleets": fleets}
    settings = {**new.settings, "queue": queue, **others}
    new = replace(new, settings=settings, operators={"asked": 1.0})
    return lifecycle.start(ctx, toy, new)


def workers(ctx: Context, *served: str) -> None:
    """Reports a worker with four places for each of these queues, which lives for an hour."""
    with ctx.store.begin() as tx:
        for queue in served:
            places = Capacity(None, 4) if queue.startswith("cpu") else Capacity(4, None)
            tx.workers.record(Worker(f"of {queue}", queue[:3], queues=(queue,)), {}, places)
        connection: Any = tx.fleets
        connection._c.write("UPDATE workers SET seen_at = now() + interval '1 hour'", {})


def said(ctx: Context, run: Run) -> str:
    with ctx.store.begin() as tx:
        return waiting_of(tx, tx.runs.get(run.id), QueueState())


def state(ctx: Context, run: Run) -> tuple[RunState, int]:
    with ctx.store.begin() as tx:
        found, backlog = tx.runs.get(run.id), tx.proposals.backlog(run.id)
    return found.state, found.proposals - backlog.unsettled


def labels(ctx: Context, table: str, ids: Collection[int]) -> set[str]:
    with ctx.store.begin() as tx:
        connection: Any = tx.fleets
        rows = connection._c.rows(f"SELECT id, fleet FROM {table} WHERE id = ANY(%(ids)s)",
            {"ids": list(ids)})  # fmt: skip
    return {row.fleet for row in rows}


def test_islands_are_served_by_fleets_with_models_of_their_own(
    ctx: Context, queues: Queues
) -> None:
    run = begun(ctx, "gpu:a", "gpu:b", "cpu:big")
    served = "gpu:a", "gpu:b", "cpu:big"
    workers(ctx, *served)
    queues.serve(ctx, *served)

    assert state(ctx, run) == (RunState.FINISHED, 16)
    assert not any(queues.waiting.values())
    with ctx.store.begin() as tx:
        by_island = {
            settled.island: {reply.completion.model for reply in replies}
            for settled in tx.history.settled(run.id)
            if settled.ordinal >= 0
            for replies in [tx.completions.of_proposal(run.id, settled.ordinal, 9)]
        }
    assert by_island == {0: {"a"}, 1: {"b"}}
    for step, subjects in queues.messages:
        if step == "evaluate":
            assert labels(ctx, "trials", subjects) == {"big"}
        assert step != "generate" or len(labels(ctx, "proposals", subjects)) == 1


def test_a_fleet_without_a_worker_stops_no_other_and_is_named(ctx: Context, queues: Queues) -> None:
    run = begun(ctx, "gpu:a", "gpu:b", budget=40)
    workers(ctx, "gpu:a", "cpu")
    queues.serve(ctx, "gpu:a", "cpu")

    at_b = len(queues.waiting["gpu:b"])
    assert 1 <= at_b <= UNSERVED
    assert state(ctx, run) == (RunState.RUNNING, 40 - at_b)
    assert f"{at_b} proposals wait for a worker of gpu:b; start one with `celery" in said(ctx, run)
    hurried = replace(ctx, pace=Pace(redeliver_seconds=-1.0))
    queues.serve(hurried, "gpu:a", "cpu", rounds=3)
    # Reap does not fill its queue.
    assert len(queues.waiting["gpu:b"]) == at_b

    workers(ctx, "gpu:b")
    assert said(ctx, run) == ""
    queues.serve(ctx, "gpu:a", "gpu:b", "cpu")
    assert state(ctx, run) == (RunState.FINISHED, 40)


def test_trials_of_a_fleet_without_a_worker_wait_and_are_few(ctx: Context, queues: Queues) -> None:
    run = begun(ctx, "cpu", "cpu:big", budget=40)
    workers(ctx, "gpu", "cpu")
    queues.serve(ctx, "gpu", "cpu")

    at_big = len(queues.waiting["cpu:big"])
    assert 1 <= at_big <= UNSERVED
    assert state(ctx, run)[1] == 40 - at_big
    assert "of cpu:big; start one with `celery -A app worker -Q cpu:big`" in said(ctx, run)


def test_lost_messages_are_enqueued_again_at_the_same_fleet(ctx: Context, queues: Queues) -> None:
    run = begun(ctx, "gpu:a", "cpu:big")
    workers(ctx, "gpu:a", "cpu:big")
    queues.waiting.clear()
    hurried = replace(ctx, pace=Pace(redeliver_seconds=-1.0))
    with ctx.store.begin() as tx:
        tx.leases.forget_attempts(run.id)
    steps.reap_all(hurried)
    assert [len(queues.waiting[name]) for name in ("gpu", "gpu:a")] == [0, 1]
    step, subjects = queues.waiting["gpu:a"].popleft()
    table(hurried)[step](*subjects)
    queues.waiting.clear()
    with ctx.store.begin() as tx:
        tx.leases.forget_attempts(run.id)
    steps.reap_all(hurried)
    assert [len(queues.waiting[name]) for name in ("cpu", "cpu:big")] == [0, 1]


def test_a_queue_whose_workers_are_busy_does_not_grow(ctx: Context, queues: Queues) -> None:
    """A fleet is served whose workers have taken long steps, and take no message for hours."""
    begun(ctx, "gpu:a", "cpu:big")
    workers(ctx, "gpu:a", "cpu:big")
    hurried = replace(ctx, pace=Pace(redeliver_seconds=-1.0))
    for _ in range(20):
        steps.reap_all(hurried)
    [(step, subjects)] = queues.waiting["gpu:a"]
    table(hurried)[step](*subjects)
    for _ in range(20):
        steps.reap_all(hurried)
    assert len(queues.waiting["cpu:big"]) == 1


def test_a_place_takes_no_trial_of_another_fleet(ctx: Context) -> None:
    messages = RecordedMessages()
    ctx = replace(ctx, executor=messages)
    begun(ctx, "cpu:big")
    toy = problem()
    lifecycle.start(ctx, toy, replace(new_run(toy), name="other"))
    for _ in range(2):
        step, subjects, _ = messages.take()
        table(ctx)[step](*subjects)
    workers(ctx, "cpu", "cpu:big")
    with ctx.store.begin() as tx:
        found = {one.fleet: one for one in tx.trials.queues(())}
    assert {label: (one.places, len(one.waiting)) for label, one in found.items()} == {
        "": (4, 1),
        "big": (4, 1),
    }
    [trial] = found[""].waiting
    steps.evaluate(ctx, trial)
    with ctx.store.begin() as tx:
        assert [one.fleet for one in tx.trials.queues(())] == ["big"]


def test_models_of_two_fleets_are_drawn_by_weight_when_a_proposal_is_planned(
    ctx: Context, queues: Queues
) -> None:
    models = [
        {"name": "A", "fleet": "gpu:a", "weight": 3.0},
        {"name": "B", "fleet": "gpu:b", "weight": 1.0},
    ]
    run = begun(ctx, budget=40, llm={"models": models})
    workers(ctx, "gpu:a", "gpu:b", "cpu")
    queues.serve(ctx, "gpu:a", "gpu:b", "cpu")
    assert state(ctx, run) == (RunState.FINISHED, 40)
    with ctx.store.begin() as tx:
        accounts = {each.model: each.completions for each in tx.completions.accounts(run.id)}
    assert 20 <= accounts["a"] // 2 <= 38
    # Two turns each.
    assert accounts["a"] + accounts["b"] == 80


def test_a_change_of_fleets_moves_what_waits(ctx: Context, queues: Queues) -> None:
    run = begun(ctx, "gpu:a", "cpu:big")
    workers(ctx, "gpu:a", "gpu", "cpu")
    queues.serve(ctx, "gpu:a")
    assert "1 trial waits for a worker of cpu:big" in said(ctx, run)
    with ctx.store.begin() as tx:
        run = tx.runs.get(run.id)
    revision = revision_of(run, {"queue.fleets": ["gpu:a"]}, problem(), ctx.operators)
    assert lifecycle.change(ctx, run, revision)
    queues.serve(ctx, "gpu:a", "cpu")
    assert state(ctx, run) == (RunState.FINISHED, 16)


def test_a_run_inside_has_the_fleets_of_its_proposal(ctx: Context, queues: Queues) -> None:
    new = nested_run("map_elites", budget=24)
    queue = {**new.settings["queue"], "fleets": ["gpu:a", "gpu:b", "cpu:big"]}
    new = replace(new, islands=2, settings={**new.settings, "queue": queue})
    ctx = replace(ctx, operators={**ctx.operators, SEARCH.name: SEARCH})
    run = lifecycle.start(ctx, problem(), new)
    served = "gpu:a", "gpu:b", "cpu:big"
    workers(ctx, *served)
    queues.serve(ctx, *served)
    with ctx.store.begin() as tx:
        inside = {
            tuple(one.run.settings["queue"]["fleets"])
            for one in tx.runs.inside(run.id, reserving=False)
            if one.run
        }
    assert inside == {("gpu:a", "cpu:big"), ("gpu:b", "cpu:big")}
    assert state(ctx, run)[0] is RunState.FINISHED
    assert not any(queues.waiting[name] for name in ("gpu", "cpu"))


def test_the_demand_of_an_autoscaler_is_that_of_each_fleet(ctx: Context, queues: Queues) -> None:
    run = begun(ctx, "gpu:a", "gpu:b", "cpu:big", budget=40)
    workers(ctx, "gpu:a", "cpu:big")
    queues.serve(ctx, "gpu:a", "cpu:big")
    with ctx.store.begin() as tx:
        waiting = {(one.queue, one.tag): one.waiting for one in tx.workers.demand(run.id)}
        fleets = {(one.queue, one.tag): one.workers for one in tx.workers.fleets()}
    at_b = len(queues.waiting["gpu:b"])
    assert waiting == {("cpu", "big"): 0, ("gpu", "a"): 0, ("gpu", "b"): at_b}
    assert fleets == {("gpu", ""): 0, ("gpu", "a"): 1, ("cpu", ""): 0, ("cpu", "big"): 1}
