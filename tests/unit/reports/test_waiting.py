"""What a run waits for is said in a line, and nothing where nothing is missing."""

from dataclasses import replace
from typing import Any

import pytest

from app.adapters.model.congestion.status import EndpointStatus
from app.config.settings import RunSettings
from app.domain.run import Run, RunState
from app.ports.workers import Presence, QueueDemand
from app.reports.waiting import SILENT_SECONDS, QueueState, read_queue, waits_for, watched_queue
from tests.integration.test_cli_display import RUN

GENERATING, EVALUATING = QueueDemand(1, "gpu", "", 3, 0, 3), QueueDemand(1, "cpu", "", 1, 1, 2)
IDLE = QueueDemand(1, "gpu", "", 0, 0, 1)
BUSY, ALL = [EVALUATING, GENERATING], Presence(True, True)
FINE = EndpointStatus("http://models/v1", 8, 8, 2, 0)
SILENT = replace(FINE, silent_seconds=SILENT_SECONDS, recent={"failed": 7})


def run(**llm: Any) -> Run:
    section = {"model": "m", "base_url": "http://models/v1", **llm}
    settings = RunSettings.model_validate({"llm": section}).model_dump(mode="json")
    return replace(RUN, settings=settings)


def test_a_run_that_lacks_nothing_waits_for_nothing() -> None:
    assert waits_for(run(), BUSY, ALL, QueueState(endpoints=[FINE])) == ""


@pytest.mark.parametrize(
    ("presence", "queue", "text"),
    [
        (Presence(True, False), QueueState(), "no worker of the queue `cpu` evaluates"),
        (Presence(True, False, ("no sandbox",)), QueueState(), "no sandbox"),
        (Presence(False, True), QueueState(), "no worker of the queue `gpu` generates"),
        (ALL, QueueState(planning=False), "nothing plans"),
        (ALL, QueueState(fault="the queue does not answer"), "the queue does not answer"),
        (ALL, QueueState(endpoints=[SILENT]), "no model answers: http://models/v1 for 5 s"),
    ],
)
def test_what_is_missing_is_named(presence: Presence, queue: QueueState, text: str) -> None:
    assert text in waits_for(run(), BUSY, presence, queue)


@pytest.mark.parametrize(
    ("demand", "presence", "queue"),
    [
        ([EVALUATING, IDLE], Presence(False, True), QueueState(endpoints=[SILENT])),
        ([GENERATING], Presence(True, False), QueueState()),
        (BUSY, Presence(True, True, ("no sandbox",)), QueueState()),  # of another worker
        (BUSY, ALL, QueueState(endpoints=[replace(SILENT, endpoint="http://other/v1")])),
    ],
)
def test_what_the_run_does_not_need_now_is_not_named(
    demand: list[QueueDemand], presence: Presence, queue: QueueState
) -> None:
    assert waits_for(run(), demand, presence, queue) == ""


def test_a_model_of_several_that_answers_is_enough() -> None:
    models = [
        {"name": "a", "base_url": "http://models/v1"},
        {"name": "b", "base_url": "http://b/v1"},
    ]
    both = QueueState(endpoints=[SILENT, replace(FINE, endpoint="http://b/v1")])

    assert waits_for(run(model=None, models=models), BUSY, ALL, both) == ""


def test_the_reason_in_the_ledger_is_part_of_it() -> None:
    waiting = replace(run(), reason="waiting: the database: No space left on device")

    assert waits_for(waiting, BUSY, ALL, QueueState()) == "the database: No space left on device"


@pytest.mark.parametrize("state", [state for state in RunState if state is not RunState.RUNNING])
def test_a_run_that_does_not_run_waits_for_nothing(state: RunState) -> None:
    stopped = replace(run(), state=state, reason="as asked for")

    assert waits_for(stopped, BUSY, Presence(False, False), QueueState(planning=False)) == ""


def test_workers_that_see_one_endpoint_differently_are_as_silent_as_the_one_that_is_answered() -> (
    None
):
    assert (SILENT + FINE).silent_seconds == 0.0


def test_a_queue_that_does_not_answer_is_a_fault_and_is_read_again_after_a_while() -> None:
    now = 100.0
    current = watched_queue("unix:///nowhere/queue.sock", clock=lambda: now)

    first = current()

    assert "the queue does not answer" in first.fault
    assert current() is first
    now += 2.0
    assert current() is not first
    assert read_queue("unix:///nowhere/queue.sock").fault


def test_an_endpoint_that_reads_its_first_prompts_is_not_said_to_be_dead() -> None:
    reading = replace(SILENT, silent_seconds=55.0, in_flight=4, recent={})

    said = waits_for(run(), BUSY, ALL, QueueState(endpoints=[reading]))

    assert said == "no model answers yet: http://models/v1 reads 4 prompts for 55 s"


def test_an_endpoint_that_is_writing_is_not_said_to_be_silent() -> None:
    writing = replace(
        SILENT,
        silent_seconds=0.1,
        unanswered_seconds=55.0,
        writing=4,
        longest_seconds=55.2,
        tokens_per_second=17.4,
    )
    said = waits_for(run(), BUSY, ALL, QueueState(endpoints=[writing]))

    assert "4 replies in progress, the longest for 55 s, 17 tokens/s" in said
    assert "no model answers" not in said
    pausing = waits_for(
        run(), BUSY, ALL, QueueState(endpoints=[replace(writing, silent_seconds=13.0)])
    )
    assert pausing.startswith("replies in progress pause: http://models/v1 for 13 s (")
    answered = replace(writing, unanswered_seconds=1.0)
    assert waits_for(run(), BUSY, ALL, QueueState(endpoints=[answered])) == ""
