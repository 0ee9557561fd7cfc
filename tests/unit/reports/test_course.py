import itertools

from app.domain.evaluation import FailureKind
from app.domain.events import (
    Admitted,
    Event,
    Fact,
    Failed,
    Finished,
    Founded,
    Improved,
    Moved,
    Refused,
)
from app.reports.course import MOST_EXAMPLES, MOST_METRICS, MOST_POINTS, MOST_SEGMENTS, Course


def program(number: int) -> str:
    return f"{max(number, 0):064x}"


def offered(
    number: int, fitness: float, kind: type[Admitted | Refused | Founded] = Admitted
) -> Fact:
    return kind(
        proposal=number,
        program=program(number),
        island=number % 2,
        operator="diff" if number % 3 else "rewrite",
        fitness=fitness,
        cell=None,
    )


def failed(number: int, kind: FailureKind = FailureKind.RUNTIME) -> Fact:
    return Failed(proposal=number, island=0, operator="diff", program=program(number), failure=kind)


def events(*facts: Fact) -> list[Event]:
    return [Event(seq, seq / 10, fact) for seq, fact in enumerate(facts, 1)]


def course(log: list[Event]) -> Course:
    folded = Course()
    folded.add(log)
    return folded


def test_outcomes_are_counted_in_a_bounded_number_of_segments():
    count = 5 * MOST_SEGMENTS
    log = events(*(failed(n) if n % 3 == 0 else offered(n, 1.0) for n in range(1, count + 1)))

    folded = course(log)

    assert MOST_SEGMENTS <= len(folded.segments) <= 2 * MOST_SEGMENTS
    assert [segment.settled for segment in folded.segments] == [folded.span] * len(folded.segments)
    assert sum(segment.failed for segment in folded.segments) == count // 3
    assert [kinds.total() for kinds in folded.failed] == [one.failed for one in folded.segments]
    assert folded.segments[0].failed == sum(n % 3 == 0 for n in range(1, folded.span + 1))


def test_an_operator_gets_the_improvement_that_its_proposal_made():
    folded = course(
        events(
            offered(-1, 1.0, Founded),
            Improved(program=program(0), fitness=1.0, settled=0),
            offered(1, 2.0),
            Improved(program=program(1), fitness=2.0, settled=1),
            offered(3, 1.5, Refused),
            failed(4),
        )
    )

    assert folded.operators["diff"].improvements == 1
    assert (folded.operators["diff"].settled, folded.operators["diff"].failed) == (2, 1)
    assert (folded.operators["rewrite"].refused, folded.operators["rewrite"].entered) == (1, 0)
    assert [(best.settled, best.operator) for best in folded.improvements][-1] == (1, "diff")
    assert [point.settled for point in folded.points] == [0, 1, 2]


def test_of_each_kind_of_failure_the_newest_examples_are_kept():
    folded = course(events(*(failed(n) for n in range(20)), failed(99, FailureKind.TIMEOUT)))

    kept = [example.proposal for example in folded.examples[FailureKind.RUNTIME]]
    assert kept == list(range(20 - MOST_EXAMPLES, 20))
    assert [example.proposal for example in folded.examples[FailureKind.TIMEOUT]] == [99]


def test_a_long_run_keeps_a_bounded_sample_of_all_its_length():
    n = 10 * MOST_POINTS
    folded = course(events(*(offered(number, float(number)) for number in range(n))))

    ordinals = [point.fitness for point in folded.points]
    assert MOST_POINTS <= len(ordinals) <= 2 * MOST_POINTS
    assert len({b - a for a, b in itertools.pairwise(ordinals)}) == 1
    assert ordinals[0] == 0
    assert ordinals[-1] > 0.99 * n


def test_the_fold_of_two_parts_is_that_of_the_whole():
    log = events(
        offered(1, 1.0),
        Improved(program=program(1), fitness=1.0, settled=1),
        failed(2),
        Moved(program=program(1), fitness=1.0, source=0, island=1, cell=(1,), reset=True),
        offered(3, 0.5, Refused),
        Finished(proposals=3, reason="budget"),
    )
    whole, parts = course(log), Course()
    for event in log:
        parts.add([event])

    assert parts.points == whole.points
    assert parts.operators == whole.operators
    assert parts.improvements == whole.improvements
    assert (parts.moves, parts.resets) == (whole.moves, whole.resets) == (1, 1)
    assert [milestone.text for milestone in whole.milestones] == [
        "finished after 3 proposals: budget"
    ]


def test_metrics_stay_with_their_points_however_the_events_are_divided_and_thinned():
    count = 5 * MOST_POINTS
    log, metrics = [], {}
    for n in range(count):
        log.append(offered(n, float(n)))
        metrics[n] = {"twice": 2.0 * n, **({"rare": float(n)} if n % 1000 == 0 else {})}
        if n % 500 == 0:
            log.append(Improved(program=program(n), fitness=float(n), settled=n))
    whole, parts = Course(), Course()

    whole.add(events(*log), metrics)
    for at in range(0, len(log), 700):
        parts.add(events(*log)[at : at + 700], metrics)

    assert parts.metric("twice") == whole.metric("twice")
    twice = whole.metric("twice")
    assert [p.value for p in twice.points] == [2 * p.fitness for p in whole.points]
    assert [p.value for p in twice.best] == [2 * b.fitness for b in whole.improvements]
    assert [p.value for p in whole.metric("rare").best] == [0.0, 1000.0, 2000.0, 3000.0, 4000.0]
    assert whole.metrics == ["rare", "twice"]


def test_metrics_without_bound_are_kept_up_to_one():
    folded = Course()
    for n in range(3 * MOST_METRICS):
        folded.add(events(offered(n, 1.0)), {n: {f"metric {n}": 1.0}})

    assert len(folded.metrics) == MOST_METRICS
