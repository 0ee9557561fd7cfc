"""FunSearch-Lite: generations, their phases, the population and the topologies."""

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from app.domain.evaluation import Evaluation, Trial
from app.domain.operator import Role
from app.domain.search.archive import Cell, Elite, Entrant
from app.domain.search.cohort import Cohort, Member, State, Verdict
from app.domain.search.recipes.funsearch_lite import (
    FunSearchLite,
    Topology,
    by_fitness,
    by_rank,
    share_best,
    targets,
    tournament,
)
from app.domain.search.strategy import Barrier, RecipeInputs, Strategy
from tests.islands import Island

INPUTS = RecipeInputs((), ("cheap", "full"), (), 2, 300)


def elite(name: str, fitness: float, **about: Any) -> Elite:
    values = {"length": 10, "generation": 1, "cell": ("child",), "behaviour": name} | about
    return Elite(name * 64, fitness, **values)


def strategy(**parameters: Any) -> Strategy:
    return FunSearchLite(**parameters).strategy(INPUTS)


def offered(strategy: Strategy, *elites: Elite) -> list[str]:
    """Returns the programs that a population keeps of those that it is offered, in order."""
    cell = Cell(("child",))
    for each in elites:
        cell = strategy.occupancy(cell, each)
    return [kept.program[0] for kept in cell.occupants]


def island(*elites: Elite, index: int = 0) -> Island:
    cells: dict[Any, Cell] = {}
    for each in elites:
        cells[each.cell] = Cell(each.cell, (*cells.get(each.cell, Cell(each.cell)).occupants, each))
    return Island(index, cells=cells)


SEED = elite("s", 0.0, generation=0, cell=("s" * 64,))
FULL = [SEED, *(elite(name, float(n)) for n, name in enumerate("abcdefgh", 1))]


def drawn(chosen: Any, draws: int = 3000) -> Counter[str]:
    ranked = sorted(FULL, key=lambda one: -one.fitness)
    return Counter(chosen(ranked, Random(n)).program[0] for n in range(draws))


def test_a_generation_has_its_phases_whichever_number_comes_first():
    lite = strategy(refinements=2, mutations=5, fresh=3)
    assert lite.size(island(*FULL)) == 10
    assert lite.barrier is Barrier.RUN

    for first in (0, 10, 47):
        phases = [lite.phase(turn) for turn in range(first, first + 10)]
        lineages = [phase.selection(island(*FULL), Random(n)) for n, phase in enumerate(phases)]
        parents = [lineage.parents[0].program[0] for lineage in lineages]
        assert [phase.role for phase in phases].count(Role.REFINER) == 2
        refined = {p for p, one in zip(parents, phases, strict=True) if one.role is Role.REFINER}
        assert refined == {"h", "g"}, "the two fittest, each once"
        assert parents.count("s") >= 3


def test_a_program_from_scratch_sees_an_initial_program_alone():
    lite = strategy(refinements=0, mutations=0, fresh=2)

    for turn in range(20):
        lineage = lite.phase(turn).selection(island(*FULL), Random(turn))
        assert [parent.program[0] for parent in lineage.parents] == ["s"]
        assert lineage.inspirations == ()


def test_a_mutation_has_its_parent_among_the_survivors_and_is_shown_the_fittest_others():
    lite = strategy(refinements=0, mutations=1, fresh=0, survivors=3, tournament=1, top_programs=2)

    lineages = [lite.phase(0).selection(island(*FULL), Random(n)) for n in range(300)]

    assert {one.parents[0].program[0] for one in lineages} == {"h", "g", "f"}
    for one in lineages:
        shown = [inspiration.program[0] for inspiration in one.inspirations]
        assert shown == [name for name in "hgf" if name != one.parents[0].program[0]][:2]


def test_each_selection_favours_the_fittest_in_its_own_way():
    of_three, ranked, weighted = drawn(tournament(3)), drawn(by_rank), drawn(by_fitness)

    assert of_three["s"] == of_three["a"] == 0, "two programs are fitter than they are in any three"
    assert of_three["h"] == pytest.approx(3000 * 3 / 9, rel=0.15)
    assert ranked["h"] == pytest.approx(3000 * 9 / 45, rel=0.15)
    assert ranked["s"] == pytest.approx(3000 * 1 / 45, rel=0.4)
    assert weighted["s"] == pytest.approx(3000 * (8 / 9) / 44, rel=0.5)
    assert drawn(tournament(1))["s"] > 200


def test_weights_by_fitness_do_not_depend_on_its_sign_or_unit():
    def chosen(shift: float, unit: float) -> list[str]:
        elites = [elite(name, shift + unit * n) for n, name in enumerate("dcba")][::-1]
        return [by_fitness(elites, Random(n)).program[0] for n in range(50)]

    assert chosen(0.0, 1.0) == chosen(-1024.0, 64.0)
    alike = [elite(name, -3.0) for name in "abc"]
    assert len({by_fitness(alike, Random(n)).program for n in range(50)}) == 3


def test_the_parameter_selection_chooses_the_rule():
    firsts = {}
    for name in ("tournament", "rank", "weighted"):
        lite = strategy(selection=name, tournament=9, refinements=0, mutations=1, fresh=0)
        lineages = (lite.phase(0).selection(island(*FULL), Random(n)) for n in range(2000))
        firsts[name] = Counter(one.parents[0].program[0] for one in lineages)

    assert set(firsts["tournament"]) == {"h"}
    assert firsts["rank"]["s"] > 0
    assert firsts["weighted"] != firsts["rank"]


def test_a_population_keeps_its_fittest():
    elites = [
        elite(name, fitness) for name, fitness in zip("abcd", (2.0, 1.0, 3.0, 0.0), strict=True)
    ]

    assert offered(strategy(population=3), *elites) == ["c", "a", "b"]


def test_beyond_its_elites_a_population_keeps_the_newest():
    elites = [
        elite(name, fitness)
        for name, fitness in zip("abcde", (9.0, 5.0, 4.0, 3.0, 1.0), strict=True)
    ]

    assert offered(strategy(population=3, elites=1), *elites) == ["a", "e", "d"]
    assert offered(strategy(population=3, elites=3), *elites) == ["a", "b", "c"]


def test_of_programs_that_behave_alike_the_shorter_is_kept_and_else_the_older():
    long, short = elite("a", 1.0, length=30), elite("b", 1.0, length=20, behaviour="a")
    other = elite("c", 1.0, length=20, behaviour="a")

    assert offered(strategy(), long, short, other) == ["b"]
    assert offered(strategy(), short, long) == ["b"]
    assert offered(strategy(distinct=False), long, short, other) == ["a", "b", "c"]


def test_initial_programs_stay_beside_the_population():
    niche = strategy().niche

    assert niche(Entrant("s" * 64, 0.0, 10, 0, ())) != niche(Entrant("a" * 64, 0.0, 10, 1, ()))
    assert niche(Entrant("a" * 64, 0.0, 10, 1, ())) == niche(Entrant("b" * 64, 0.0, 10, 7, ()))


@pytest.mark.parametrize(
    ("topology", "sent"),
    [
        ("ring", [[1], [2], [3], [0]]),
        ("ring-both", [[1, 3], [0, 2], [1, 3], [0, 2]]),
        ("star", [[1, 2, 3], [0], [0], [0]]),
        ("all", [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]),
    ],
)
def test_a_topology_names_who_receives_the_migrants(topology: Topology, sent: list[list[int]]):
    assert [targets(topology, island, 4) for island in range(4)] == sent
    assert targets(topology, 0, 1) == []


def test_the_fittest_of_each_island_migrate():
    islands = [island(elite("a", 1.0), elite("b", 2.0)), island(elite("c", 3.0), index=1)]

    moves = share_best(6, "ring", 2).moves(islands, Random(0))

    sent = [(move.elite.program[0], move.source, move.target) for move in moves]
    assert sent == [("b", 0, 1), ("a", 0, 1), ("c", 1, 0)]
    assert strategy(migration_interval=3).upkeep.every == 6, "three generations of two islands"


@pytest.mark.parametrize("selection", ["tournament", "lexicase"])
def test_as_many_of_the_fittest_are_shown_beside_each_parent_as_the_setting_says(selection: str):
    field = replace(island(*FULL), cases={one.program: {"1": one.fitness} for one in FULL})

    def shown(phase: int, **parameters: int) -> int:
        built = strategy(selection=selection, **parameters)
        return len(built.phases[phase].selection(field, Random(0)).inspirations)

    assert (shown(0), shown(2)) == (3, 3)
    assert (shown(0, top_programs=1), shown(2, top_programs=1)) == (1, 1)


def test_topology_and_migrants_of_the_recipe_say_who_is_sent_where():
    islands = [island(*FULL, index=n) for n in range(3)]

    def sent(**parameters: Any) -> list[tuple[int, int]]:
        moves = strategy(**parameters).upkeep.moves(islands, Random(0))
        return sorted((move.source, move.target) for move in moves)

    assert sent() == [(0, 1), (1, 2), (2, 0)]
    assert sent(topology="star") == [(0, 1), (0, 2), (1, 0), (2, 0)]
    assert sent(migrants=2) == [(0, 1)] * 2 + [(1, 2)] * 2 + [(2, 0)] * 2


def test_of_a_generation_only_the_best_go_on_to_the_second_stage():
    names = "abcdefghijkl"
    members = tuple(Member(n, 0, State.TESTING, None, name) for n, name in enumerate(names))
    scores = {
        Trial("cheap", (name,)): Evaluation({name: {"score": float(n)}})
        for n, name in enumerate(names)
    }
    cohort = Cohort(1, 1, 0, "mutate", members, scores)

    def gone_on(**parameters: int) -> list[str]:
        verdict = strategy(**parameters).promotion(cohort, island(*FULL))
        return sorted(trial.players[0] for trial in verdict.test)

    assert gone_on(top_k=2) == ["k", "l"]
    assert gone_on() == [*"cdefghijkl"]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"fresh": 0, "mutations": 0, "refinements": 0}, "generation must be at least 1, not 0"),
        ({"fresh": -1}, "fresh must be at least 0, not -1"),
        ({"top_k": 0}, "top_k must be at least 1, not 0"),
        ({"elites": 60}, "elites must be from 1 to the population of 50, not 60"),
        ({"top_k": 10, "window": 9}, "window must be at least top_k, 10, not 9"),
        ({"survivors": 0}, "survivors must be at least 1, not 0"),
    ],
)
def test_parameters_out_of_range_are_refused(parameters: dict[str, int], message: str):
    with pytest.raises(ValueError, match=message):
        FunSearchLite(**parameters)


def test_the_steady_state_has_no_generation_to_wait_for():
    steady, lite = strategy(steady=True, migration_interval=3), strategy(migration_interval=3)

    assert (steady.size(island(*FULL)), steady.barrier) == (1, Barrier.NONE)
    counts = [[phase.proposals for phase in one.phases] for one in (steady, lite)]
    assert counts[0] == counts[1] == [1, 1, 16, 2]
    assert steady.upkeep.every == 20 * lite.upkeep.every


def test_in_the_steady_state_a_program_goes_on_that_is_among_the_best_of_the_newest():
    steady = strategy(steady=True, top_k=2, window=4)
    cheap = Trial("cheap", ("p",))
    scores = {cheap: Evaluation({"p": {"score": 5.0}})}
    cohort = Cohort(1, 1, 0, "mutate", (Member(1, 0, State.TESTING, None, "p"),), scores)

    def verdict(*newest: float) -> Verdict:
        field = replace(island(*FULL), measured={"cheap": newest})
        return steady.promotion(cohort, field)

    assert verdict(5.0, 7.0, 1.0, 2.0, 9.0) == Verdict(test=(Trial("full", ("p",)),))
    assert verdict(5.0, 7.0, 6.0, 2.0) == Verdict(cut=(1,))


CASES = {
    "a": {"1": 0.9, "2": 0.7, "3": 0.9},
    "b": {"1": 0.0, "2": 1.0, "3": 0.0},
    "c": {"1": 0.5, "2": 0.1, "3": 0.5},
    "d": {"1": 0.1, "2": 0.2, "3": 0.0},
    "e": {"1": 0.2, "2": 0.3, "3": 0.1},
}


def by_case(survivors: int, **scores: dict[str, float]) -> Counter[str]:
    """Returns how often each program is a parent whose fitness is the mean of its scores."""
    elites = [elite(name, sum(row.values()) / 3) for name, row in scores.items()]
    field = replace(island(*elites), cases={name * 64: row for name, row in scores.items()})
    lite = strategy(selection="lexicase", survivors=survivors, refinements=0, fresh=0)
    lineages = (lite.phase(0).selection(field, Random(n)) for n in range(900))
    return Counter(lineage.parents[0].program[0] for lineage in lineages)


def test_lexicase_breeds_from_a_program_that_is_the_best_on_one_case_alone():
    drawn = by_case(5, **CASES)

    assert set(drawn) == {"a", "b"}
    assert drawn["b"] > 100, "its mean is the third, after that of c"
    assert by_case(2, **CASES) == {"a": 900}, "b is no survivor there"


def test_lexicase_takes_scores_within_the_deviation_for_equal():
    near = {name: {"1": score} for name, score in zip("abcd", (1.0, 0.99, 0.5, 0.0), strict=True)}

    assert set(by_case(4, **near)) == {"a", "b"}
