import pytest

from app.domain.events import Event, EventKind
from app.reports.progress import WINDOW, Progress, fold


def settled(seq: int, kind: EventKind, *, ordinal: int | None = 0, **facts: object) -> Event:
    return Event(seq, kind, float(seq), {"proposal": ordinal, **facts})


def improved(seq: int, fitness: float, at: int) -> Event:
    return Event(seq, EventKind.IMPROVED, float(seq), {"fitness": fitness, "settled": at})


def test_every_way_of_settling_is_counted_once():
    progress = fold(
        Progress(),
        [
            settled(1, EventKind.ADMITTED),
            settled(2, EventKind.REFUSED),
            settled(3, EventKind.CUT),
            settled(4, EventKind.FAILED, failure="timeout"),
            settled(5, EventKind.FAILED, failure="timeout"),
            settled(6, EventKind.FAILED, failure="syntax"),
        ],
    )

    assert (progress.done, progress.admitted, progress.cut) == (6, 2, 1)
    assert progress.failures == {"timeout": 2, "syntax": 1}
    assert progress.seq == 6


def test_seeds_and_incumbents_are_not_counted():
    events = [
        settled(1, EventKind.FAILED, ordinal=-1, failure="runtime"),
        settled(2, EventKind.ADMITTED, ordinal=None),
        Event(3, EventKind.FOUNDED, 3.0, {"proposal": -2}),
    ]

    progress = fold(Progress(), events)

    assert progress.done == 0
    assert progress.failures == {}
    assert progress.seq == 3


def test_folding_in_parts_is_folding_at_once():
    events = [
        settled(1, EventKind.ADMITTED),
        improved(2, 0.5, 0),
        settled(3, EventKind.FAILED, failure="memory"),
        improved(4, 0.75, 2),
        settled(5, EventKind.CUT),
    ]

    for cut in range(len(events) + 1):
        assert fold(fold(Progress(), events[:cut]), events[cut:]) == fold(Progress(), events)


def test_the_best_is_the_last_improvement():
    progress = fold(Progress(), [improved(1, -3.0, 0), improved(2, -1.5, 7)])

    assert (progress.best, progress.best_at, progress.improvements) == (-1.5, 7, 2)


def test_the_rate_is_taken_over_the_window_only():
    slow = [settled(n, EventKind.CUT) for n in range(1, 11)]
    quick = [
        Event(10 + n, EventKind.CUT, 10 + n / 10, {"proposal": n}) for n in range(1, WINDOW + 1)
    ]

    progress = fold(Progress(), [*slow, *quick])

    assert len(progress.recent) == WINDOW
    assert progress.rate(quick[-1].seconds) == pytest.approx(10.0)


def test_what_one_transaction_settled_says_nothing_of_a_rate():
    together = [Event(n, EventKind.CUT, 5.0 + n / 1e6, {"proposal": n}) for n in range(28)]

    progress = fold(Progress(), together)

    assert progress.rate(5.001) is None
    assert progress.rate(7.0) == pytest.approx(27 / 2, rel=1e-3)


def test_a_whole_window_says_how_fast_it_was_however_fast():
    quick = [Event(n, EventKind.CUT, 5.0 + n / 400, {"proposal": n}) for n in range(WINDOW)]

    assert fold(Progress(), quick).rate(quick[-1].seconds) == pytest.approx(400.0)


def test_a_run_that_stands_still_slows_down():
    progress = fold(Progress(), [settled(n, EventKind.CUT) for n in range(1, 12)])

    assert progress.rate(11.0) == pytest.approx(1.0)
    assert progress.rate(21.0) == pytest.approx(0.5)


def test_the_eta_is_the_rest_at_this_rate():
    progress = fold(Progress(), [settled(n, EventKind.CUT) for n in range(1, 12)])

    assert progress.eta_seconds(31, 11.0) == pytest.approx(20.0)
    assert progress.eta_seconds(5, 11.0) == 0.0


def test_nothing_is_foretold_before_two_settlements():
    one = fold(Progress(), [settled(1, EventKind.CUT)])

    assert one.rate(5.0) is None
    assert one.eta_seconds(100, 5.0) is None
