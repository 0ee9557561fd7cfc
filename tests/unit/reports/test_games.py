"""The fold of the events of games."""

from app.domain.evaluation import FailureKind
from app.domain.events import (
    Closed,
    Cut,
    Directed,
    Entered,
    Event,
    Fact,
    Failed,
    GateTested,
    Played,
    Refused,
)
from app.domain.search.cohort import CutReason
from app.reports.games import (
    MOST_DIRECTIONS,
    MOST_GENERATIONS,
    MOST_RATED,
    Games,
    PlayedGame,
    crosstable,
)


def entered(cohort: int, program: str, proposal: int = 0, island: int = 0) -> Entered:
    return Entered(cohort=cohort, island=island, proposal=proposal, program=program, parents=())


def played(
    cohort: int, first: str, second: str, score: float | None = 1.0, game: int = 0
) -> Played:
    return Played(
        cohort=cohort,
        first=first,
        second=second,
        game=game,
        score=score,
        moves=("4", "3"),
        termination="four_in_a_line",
        failure=None,
        culprit=None,
    )


def closed(cohort: int, *podium: str, island: int = 0) -> Closed:
    return Closed(cohort=cohort, island=island, podium=podium)


def directed(proposal: int) -> Directed:
    text = f"idea {proposal}"
    return Directed(proposal=proposal, island=0, category="search", text=text, by="strategist")


def folded(*facts: Fact) -> Games:
    games = Games()
    for seq, fact in enumerate(facts, 1):
        games.add(Event(seq, float(seq), fact))
    return games


def test_a_generation_has_its_entrants_games_and_podiums():
    dropped = GateTested(cohort=5, program="c", stage="smoke", failure=FailureKind.RUNTIME)
    games = folded(
        *(entered(2, "a"), entered(2, "b"), played(2, "a", "b"), closed(2, "a", "b")),
        *(entered(5, "c"), dropped, entered(5, "d"), played(5, "d", "a"), closed(5, "d", "a")),
    )

    seeds, first = games.generations.values()
    assert (seeds.number, first.number) == (0, 1)
    assert (seeds.before, first.before, first.podium) == ((), ("a", "b"), ("d", "a"))
    assert first.entrants == ["c", "d"]
    assert first.dropped == {"c": "runtime"}
    assert [(game.id, game.moves) for game in first.games] == [(8, 2)]


def test_generations_are_counted_by_island_and_the_newest_are_kept():
    facts: list[Fact] = []
    for cohort in range(1, 2 * MOST_GENERATIONS + 1):
        facts += [entered(cohort, "a", island=cohort % 2), closed(cohort, "a", island=cohort % 2)]

    games = folded(*facts)

    assert len(games.generations) == MOST_GENERATIONS
    last = list(games.generations.values())[-1]
    assert (last.island, last.number) == (0, MOST_GENERATIONS - 1)


def test_a_direction_has_the_outcome_of_its_child():
    failed = Failed(
        proposal=2, island=0, operator="directed", program=None, failure=FailureKind.SYNTAX
    )
    cut = Cut(
        proposal=3,
        island=0,
        operator="directed",
        program="d",
        why=CutReason.DUPLICATE,
        reason="known",
    )
    refused = Refused(
        proposal=1, program="b", island=0, operator="directed", fitness=0.5, cell=None
    )
    games = folded(*(directed(n) for n in range(4)), entered(1, "b", 1), failed, cut, refused)

    found = [(each.program, each.outcome) for each in games.directions.values()]
    assert found == [
        (None, ""),
        ("b", "took no place"),
        (None, "failed: syntax"),
        ("d", "cut: duplicate"),
    ]
    assert len(folded(*(directed(n) for n in range(99))).directions) == MOST_DIRECTIONS


def test_the_crosstable_counts_points_and_leaves_out_void_games():
    found = folded(
        played(1, "a", "b", 1.0),
        played(1, "b", "a", 0.5, game=1),
        played(1, "c", "a", None),
    )
    games: list[PlayedGame] = found.generations[1].games

    table = crosstable(games)

    assert [(each.program, each.points, each.games) for each in table] == [
        ("a", 1.5, 2),
        ("b", 0.5, 2),
        ("c", 0, 0),
    ]
    assert table[0].against == {"b": (1.5, 2)}


def test_players_of_podiums_are_rated_by_the_games_among_them():
    facts: list[Fact] = []
    for cohort in range(1, 6):
        facts += [played(cohort, "a", "b"), played(cohort, "b", "c"), closed(cohort, "a", "b")]

    games = folded(*facts, played(6, "z", "a"))

    rated = games.ratings(0)
    assert [player.program for player in rated] == ["a", "b"]
    assert rated[0].rating.low < rated[0].rating.value < rated[0].rating.high
    assert rated[0].elo > 1500 == rated[1].elo
    assert rated[0].rating.games == 5
    assert games.ratings(1) == []


def test_ratings_are_computed_anew_when_a_generation_ends():
    games = folded(played(1, "a", "b"), closed(1, "a", "b"))
    assert games.ratings(0) is games.ratings(0)

    games.add(Event(9, 9.0, closed(2, "b", "a")))
    games.add(Event(10, 10.0, played(2, "b", "a")))

    assert [player.rating.games for player in games.ratings(0)] == [2, 2]


def test_of_many_players_the_newest_are_rated():
    facts: list[Fact] = []
    for cohort in range(MOST_GENERATIONS):
        one, other = f"p{2 * cohort:02}", f"p{2 * cohort + 1:02}"
        facts += [played(cohort, one, other), closed(cohort, one, other)]

    rated = {player.program for player in folded(*facts).ratings(0)}

    assert len(rated) == MOST_RATED
    assert f"p{2 * MOST_GENERATIONS - 1}" in rated
