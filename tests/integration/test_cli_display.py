"""The display of a run that is followed."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from app.cli.display import PlainLines, StallNotice, line, panel, progress_display
from app.client.following import RunStatus
from app.config.rules import rules_of
from app.domain.problem import Axis
from app.domain.run import Run, RunState
from app.domain.search.back_pressure import InFlightLimits
from app.domain.search.budget import Budget
from app.ports.proposals import Backlog
from app.reports.progress import Progress
from app.reports.text import duration

RUN = Run(
    id=1,
    name="packing-1",
    problem="d" * 64,
    problem_name="packing",
    strategy="map_elites",
    settings={},
    rules=rules_of("map_elites", {}),
    operators={"tune": 1.0},
    axes=(Axis("size"),),
    seed=1,
    islands=3,
    budget=Budget(400),
    limits=InFlightLimits(8, 8),
    state=RunState.RUNNING,
    elapsed_seconds=50.0,
)
PROGRESS = Progress(
    seq=300,
    done=100,
    measured=80,
    entered=30,
    failures={"syntax": 5, "runtime": 10},
    best=-4.25,
    best_at=90,
    improvements=3,
    recent=tuple(n / 2 for n in range(1, 101)),
)
STATUS = RunStatus(RUN, PROGRESS, Backlog(generating=4, evaluating=2))


def printed(*, terminal: bool) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, force_terminal=terminal, width=120, highlight=False), out


def test_a_line_has_all_that_matters():
    assert line(STATUS) == (
        "packing-1 running: 100/400 proposals, best -4.25, rate 2.0/s, "
        "failed 15 (runtime 10, syntax 5), ETA 2 min 30 s"
    )


def test_a_line_tells_the_best_from_the_start_and_from_the_best_before():
    after_resume = replace(PROGRESS, best=2.6349999751384496, start=2.63499997)
    gained = replace(after_resume, best_before=2.63499997513844)

    for progress, text in ((after_resume, "2.63499998"), (gained, "2.63499997513845")):
        status = replace(STATUS, progress=progress)
        assert f"best {text}, " in line(status)


def test_unknown_values_are_dashes():
    status = RunStatus(RUN, Progress(), Backlog(seeding=3))

    assert line(status) == ("packing-1 running: 0/400 proposals, best –, rate –, failed 0, ETA –")


def test_the_live_display_has_the_same_facts():
    console, out = printed(terminal=True)

    console.print(panel(STATUS, "stuck?"))
    assert "4 generating, 2 evaluating" in out.getvalue()

    text = out.getvalue()
    for fact in (
        "100/400",
        "-4.25",
        "after 90 proposals",
        "2.0/s",
        "2 min 30 s",
        "runtime 10",
        "stuck",
    ):
        assert fact in text


def test_a_pipe_gets_plain_lines_and_a_terminal_does_not():
    pipe, out = printed(terminal=False)
    with progress_display(pipe, "try this") as show:
        show(STATUS)
    assert isinstance(show, PlainLines)
    assert "\x1b" not in out.getvalue()

    terminal, live = printed(terminal=True)
    with progress_display(terminal, "try this") as show:
        show(STATUS)
    assert "\x1b[" in live.getvalue()


def test_lines_come_every_few_seconds_and_at_the_end_and_not_at_every_poll():
    console, out = printed(terminal=False)
    seconds = 0.0
    show = PlainLines(console, "try this", clock=lambda: seconds)

    for done in range(50):
        seconds = done / 8
        show(replace(STATUS, progress=replace(PROGRESS, improvements=0, done=done)))
    show(replace(STATUS, run=replace(RUN, state=RunState.FINISHED)))

    lines = out.getvalue().splitlines()
    assert [line.split()[2] for line in lines] == ["0/400", "40/400", "100/400"]
    assert "finished" in lines[-1]


@pytest.mark.parametrize("settles", [False, True])
@pytest.mark.parametrize(("seconds", "shown"), [(4.9, False), (5.0, True), (29.0, True)])
def test_a_display_says_what_a_run_waits_for_once_workers_have_had_time_to_start(
    seconds: float, settles: bool, shown: bool
) -> None:
    now = 0.0
    stall = StallNotice("try this", clock=lambda: now)
    waiting = replace(STATUS, waiting="no worker evaluates")
    stall.text(waiting)
    now = seconds
    later = replace(waiting, progress=replace(PROGRESS, done=101)) if settles else waiting

    assert ("waits: no worker evaluates" in stall.text(later)) is shown
    now += 60.0
    assert "no worker evaluates; try this" in stall.text(later)


def test_a_run_that_measures_on_validation_data_is_not_said_to_settle_nothing():
    now = 0.0
    stall = StallNotice("try this", clock=lambda: now)
    validating = replace(STATUS, validating=9, progress=replace(PROGRESS, done=400, validated=1))
    stall.text(validating)
    now = 300.0

    assert stall.text(validating) == ""
    assert "validated 1 of 10" in line(validating)
    console, live = printed(terminal=True)
    console.print(panel(validating, ""))
    assert "1 of 10" in live.getvalue()
    assert stall.text(replace(validating, validating=0)) != ""


def test_a_line_comes_at_once_when_a_run_begins_to_wait():
    console, out = printed(terminal=False)
    seconds = 0.0
    show = PlainLines(console, "try this", clock=lambda: seconds)
    waits = replace(STATUS, waiting="no model answers")

    shown = []
    for at, status in [
        (0.0, STATUS),
        (5.5, STATUS),
        (6.6, waits),
        (7.7, waits),
        (11.5, waits),
    ]:
        seconds = at
        show(status)
        shown.append("no model answers" in " ".join(out.getvalue().split()))

    assert shown == [False, False, True, True, True]
    assert out.getvalue().count("packing-1 running") == 2


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.4, "59 s"), (61, "1 min 1 s"), (7260, "2 h 1 min")]
)
def test_durations_are_for_people(seconds: float, text: str):
    assert duration(seconds) == text
