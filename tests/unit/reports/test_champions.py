"""The fitness of the champion after each generation."""

from app.domain.events import Closed, Crowned, Event, Fact, Rerated
from app.reports.champions import champions
from app.reports.metrics import rows
from tests.unit.reports.test_metrics import proposal

FIRST, SECOND = "a" * 64, "b" * 64
FACTS: list[Fact] = [
    Crowned(program=FIRST, fitness=1.0, settled=0),
    Closed(cohort=1, island=0, podium=(FIRST,)),
    Rerated(program=FIRST, fitness=0.5),
    Closed(cohort=3, island=0, podium=(FIRST, SECOND)),
    Closed(cohort=4, island=1, podium=(SECOND,)),
    Crowned(program=SECOND, fitness=0.75, settled=12),
]
EVENTS = [Event(seq, float(seq), fact) for seq, fact in enumerate(FACTS, 1)]


def test_a_generation_ends_with_what_its_champion_is_rated_at():
    found = champions(EVENTS)

    assert found.after == {1: 1.0, 3: 0.5, 4: 0.5}
    assert [found.of(cohort) for cohort in (1, 3, 4, 5)] == [1.0, 0.5, 0.5, 0.75]


def test_nothing_is_best_before_a_champion_is_crowned():
    assert champions([]).of(1) is None


def test_a_row_has_the_champion_of_its_generation_and_not_the_highest_share():
    settled = [proposal(0, 0.9, cohort=1), proposal(1, cohort=3), proposal(2, 0.4, cohort=5)]

    table = rows(settled, champions=champions(EVENTS))

    assert [row.best_so_far for row in table] == [1.0, 0.5, 0.75]
