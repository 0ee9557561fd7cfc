import pytest

from app.domain.evaluation import FailureKind
from app.domain.events import Admitted, Cut, Event, Failed, Founded, Improved, Refused
from app.domain.search.cohort import CutReason
from app.reports.progress import WINDOW, Progress, fold

PROGRAM = "f" * 64


def offered(
    seq: int, kind: type[Admitted | Refused | Founded] = Admitted, *, ordinal: int | None = 0
) -> Event:
    fact = kind(
        proposal=ordinal, program=PROGRAM, island=0, operator="diff", fitness=1.0, cell=None
    )
    return Event(seq, float(seq), fact)


def cut(seq: int, *, seconds: float | None = None, why: CutReason = CutReason.DUPLICATE) -> Event:
    fact = Cut(
        proposal=seq,
        island=0,
        operator="diff",
        program=None,
        why=why,
        reason="same",
    )
    return Event(seq, float(seq) if seconds is None else seconds, fact)


def failed(seq: int, failure: FailureKind, *, ordinal: int = 0) -> Event:
    fact = Failed(proposal=ordinal, island=0, operator="diff", program=PROGRAM, failure=failure)
    return Event(seq, float(seq), fact)


def improved(seq: int, fitness: float, at: int) -> Event:
    return Event(seq, float(seq), Improved(program=PROGRAM, fitness=fitness, settled=at))


def test_every_way_of_settling_is_counted_once():
    progress = fold(
        Progress(),
        [
            offered(1),
            offered(2, Refused),
            cut(3),
            failed(4, FailureKind.TIMEOUT),
            failed(5, FailureKind.TIMEOUT),
            failed(6, FailureKind.SYNTAX),
        ],
    )

    assert (progress.done, progress.measured, progress.entered) == (6, 2, 1)
    assert progress.cuts == {"duplicate": 1}
    assert progress.failures == {"timeout": 2, "syntax": 1}
    assert progress.seq == 6


def test_failures_are_counted_anew_after_a_gain():
    events = [failed(1, FailureKind.TIMEOUT), improved(2, 1.0, 1), failed(3, FailureKind.SYNTAX)]

    progress = fold(Progress(), events)

    assert progress.failures == {"timeout": 1, "syntax": 1}
    assert progress.failures_since_best == {"syntax": 1}


def test_seeds_and_incumbents_are_not_counted():
    events = [
        failed(1, FailureKind.RUNTIME, ordinal=-1),
        offered(2, ordinal=None),
        offered(3, Founded, ordinal=-2),
    ]

    progress = fold(Progress(), events)

    assert progress.done == 0
    assert progress.failures == {}
    assert progress.seq == 3


def test_what_was_given_back_to_the_budget_is_not_counted():
    progress = fold(Progress(), [cut(1), cut(2, why=CutReason.RETURNED)])

    assert progress.done == 1
    assert progress.cuts == {"duplicate": 1}


def test_folding_in_parts_is_folding_at_once():
    events = [
        offered(1),
        improved(2, 0.5, 0),
        failed(3, FailureKind.MEMORY),
        improved(4, 0.75, 2),
        cut(5),
    ]

    for n in range(len(events) + 1):
        assert fold(fold(Progress(), events[:n]), events[n:]) == fold(Progress(), events)


def test_the_best_is_the_last_improvement():
    progress = fold(Progress(), [improved(1, -3.0, 0), improved(2, -1.5, 7)])

    assert (progress.best, progress.best_at, progress.improvements) == (-1.5, 7, 2)


def test_the_start_is_the_highest_fitness_of_a_seed():
    seeds = [
        Event(
            seq,
            0.0,
            Founded(
                proposal=-seq, program=PROGRAM, island=0, operator="seed", fitness=f, cell=None
            ),
        )
        for seq, f in ((1, -3.0), (2, -1.5), (3, -2.0))
    ]
    progress = fold(Progress(), [*seeds, improved(4, -1.5, 0), improved(5, -1.0, 3)])

    assert progress.start == -1.5
    assert progress.told_apart == (-1.0, -1.5)


def test_the_rate_is_taken_over_the_window_only():
    slow = [cut(n) for n in range(1, 11)]
    quick = [cut(10 + n, seconds=10 + n / 10) for n in range(1, WINDOW + 1)]

    progress = fold(Progress(), [*slow, *quick])

    assert len(progress.recent) == WINDOW
    assert progress.rate(quick[-1].seconds) == pytest.approx(10.0)


def test_proposals_of_one_transaction_give_no_rate():
    together = [cut(n, seconds=5.0 + n / 1e6) for n in range(28)]

    progress = fold(Progress(), together)

    assert progress.rate(5.001) is None
    assert progress.rate(7.0) == pytest.approx(27 / 2, rel=1e-3)


def test_a_whole_window_gives_a_rate_however_short_it_was():
    quick = [cut(n, seconds=5.0 + n / 400) for n in range(WINDOW)]

    assert fold(Progress(), quick).rate(quick[-1].seconds) == pytest.approx(400.0)


def test_the_rate_of_a_stalled_run_falls():
    progress = fold(Progress(), [cut(n) for n in range(1, 12)])

    assert progress.rate(11.0) == pytest.approx(1.0)
    assert progress.rate(21.0) == pytest.approx(0.5)


def test_the_eta_is_the_rest_at_this_rate():
    progress = fold(Progress(), [cut(n) for n in range(1, 12)])

    assert progress.eta_seconds(31, 11.0) == pytest.approx(20.0)
    assert progress.eta_seconds(5, 11.0) == 0.0


def test_before_two_settled_proposals_there_is_no_eta():
    one = fold(Progress(), [cut(1)])

    assert one.rate(5.0) is None
    assert one.eta_seconds(100, 5.0) is None
