import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

import pytest

from app.adapters.tuning.cma import ask as cma
from app.domain.evaluation import Failure, FailureKind
from app.domain.operator import (
    Brief,
    Child,
    Draft,
    MeasuredPoint,
    Offspring,
    Point,
    ProgramRecord,
)
from app.domain.operators import tune
from app.domain.operators.tune import PointRequest, RatedPoint, family, numbers, skeleton, tuner
from app.domain.program import Program, ProgramId
from app.domain.search.archive import Cell, Elite
from app.domain.source.regions import enforce
from tests.islands import Island

SOURCE = """\
FIXED = 9.5
# EVOLVE-BLOCK-START
def score(x):  # a comment
    y = 2.0 * x - 4.0  # another
    return y ** 2 + 10 * x[3] + FIXED
# EVOLVE-BLOCK-END
"""


class Recorder:
    """An optimiser that records its requests and always returns the same point."""

    def __init__(self, *point: float) -> None:
        self.point = point
        self.requests: list[PointRequest] = []

    def __call__(self, request: PointRequest) -> tuple[float, ...]:
        self.requests.append(request)
        return self.point[: request.dimensions]


def brief_of(
    source: str = SOURCE,
    *,
    language: str = "python",
    fitness: float | None = 1.0,
    points: tuple[MeasuredPoint, ...] = (),
    ordinal: int = 0,
) -> Brief:
    parent = Program(source, language)
    draft = Draft(ordinal, 0, 0, 1, (parent.id,))
    known = {parent.id: ProgramRecord(parent, fitness)}
    return Brief("", language, (draft,), known, points=points, seed="s")


def child_of(brief: Brief, ask: Recorder) -> Child:
    with pytest.raises(StopIteration) as ended:
        next(tuner(ask).converse(brief))
    [child] = ended.value.value
    assert isinstance(child, Offspring | Failure)
    return child


def source_of(child: Child) -> str:
    assert isinstance(child, Offspring), child
    return child.program.source


def variant(first: float, second: float, third: int = 10) -> Program:
    text = SOURCE.replace("2.0 * x - 4.0", f"{first} * x - {second}")
    return Program(text.replace("10 * x", f"{third} * x"))


def test_only_quantities_in_the_regions_are_tuned() -> None:
    assert numbers(Program(SOURCE)) == [2.0, 4.0, 10]


def test_a_number_moves_in_proportion_to_its_size() -> None:
    child = child_of(brief_of(), Recorder(1.0, -1.0, 0.0))

    assert source_of(child) == SOURCE.replace("2.0 * x - 4.0", "2.6 * x - 2.8")
    assert enforce(SOURCE, source_of(child)) == source_of(child)


def test_an_integer_stays_an_integer() -> None:
    assert "10 * x" not in source_of(child_of(brief_of(), Recorder(0.0, 0.0, 0.4)))
    assert "11 * x" in source_of(child_of(brief_of(), Recorder(0.0, 0.0, 0.4)))


def test_a_number_may_cross_zero_even_as_the_base_of_a_power() -> None:
    source = "def f(x):\n    return 0.5 ** x - 1.5\n"

    child = source_of(child_of(brief_of(source), Recorder(-10.0, 10.0)))

    assert numbers(Program(child)) == [-1.0, 6.0]
    assert skeleton(Program(child)) == skeleton(Program(source))


def test_a_negative_number_is_one_number() -> None:
    assert numbers(Program("def f(x):\n    return -2.5 * x\n")) == [-2.5]


def test_programs_that_differ_in_tunable_numbers_only_share_a_skeleton() -> None:
    assert skeleton(variant(1.0, -7.5)) == skeleton(variant(3.25, 0.5, 12))


@pytest.mark.parametrize(
    ("old", "new"),
    [("y ** 2", "y ** 3"), ("x[3]", "x[4]"), ("10 * x", "10.5 * x"), ("FIXED\n", "y\n")],
)
def test_other_differences_make_another_skeleton(old: str, new: str) -> None:
    assert skeleton(Program(SOURCE)) != skeleton(Program(SOURCE.replace(old, new)))


def test_the_history_holds_the_points_of_the_family_oldest_first() -> None:
    newer, older = MeasuredPoint((2.6, 4.0, 10), 3.0), MeasuredPoint((2.0, 5.2, 10), 2.0)
    ask = Recorder(1.0, 1.0, 1.0)

    child_of(brief_of(points=(newer, older)), ask)

    [request] = ask.requests
    assert [tried.fitness for tried in request.history] == [2.0, 3.0, 1.0]
    assert [tried.numbers for tried in request.history] == [
        pytest.approx((0.0, 1.0, 0.0)),
        pytest.approx((1.0, 0.0, 0.0)),
        (0.0, 0.0, 0.0),
    ]


def test_a_crash_is_no_better_for_the_optimiser_than_the_least_fit() -> None:
    crashed, older = MeasuredPoint((2.6, 4.0, 10), None), MeasuredPoint((2.0, 5.2, 10), -2.0)
    ask = Recorder(1.0, 1.0, 1.0)

    child_of(brief_of(points=(crashed, *[older] * 9)), ask)

    [request] = ask.requests
    assert [tried.fitness for tried in request.history] == [-2.0] * 10 + [1.0]


def test_where_many_crash_one_number_at_a_time_goes_further() -> None:
    crashed = MeasuredPoint((3.0, 5.0, 13), None)

    child = child_of(brief_of(points=(crashed,) * 3), Recorder(1.0, 1.0, 1.0))

    assert isinstance(child, Offspring)
    assert sum(a != b for a, b in zip(numbers(child.program), [2.0, 4.0, 10], strict=True)) == 1


def test_a_number_whose_growth_crashed_is_the_one_that_goes_further_least_often() -> None:
    crashed = [MeasuredPoint((3.0, 4.0, 10), None)] * 6
    firsts = 0
    for ordinal in range(40):
        child = child_of(brief_of(points=tuple(crashed), ordinal=ordinal), Recorder(1.0, 1.0, 1.0))
        assert isinstance(child, Offspring)
        firsts += numbers(child.program)[0] != 2.0

    assert firsts <= 4


def test_a_child_is_a_point_of_its_parents_family() -> None:
    child = child_of(brief_of(), Recorder(1.0, -1.0, 0.0))

    assert isinstance(child, Offspring)
    assert child.point == Point(family(Program(SOURCE)), (2.6, 2.8, 10.0))
    assert family(child.program) == child.point.family


@dataclass(frozen=True)
class Residents:
    """An island with programs of falling fitness, and how many children each family had since."""

    sources: tuple[str, ...]
    younger: Mapping[str, int] = field(default_factory=dict)

    @property
    def island(self) -> Island:
        cells = {
            (n,): Cell((n,), (Elite(Program(source).id, -float(n), len(source), n, (n,)),))
            for n, source in enumerate(self.sources)
        }
        return Island(0, cells=cells)

    def programs(self, ids: Sequence[ProgramId]) -> dict[ProgramId, Program]:
        known = {program.id: program for program in map(Program, self.sources)}
        return {program: known[program] for program in ids}

    def born_since(self, family: str, program: ProgramId, most: int) -> int:
        born = sum(
            count
            for source, count in self.younger.items()
            if tune.family(Program(source)) == family and Program(source).id == program
        )
        return min(most, born)


FIRST, SECOND, PLAIN = "a = 2.5\n", "a = b + 2.5\n", "a = b\n"


@pytest.mark.parametrize(
    ("sources", "younger", "chosen"),
    [
        ((FIRST, SECOND), {}, FIRST),
        ((FIRST, SECOND), {FIRST: 11}, FIRST),
        ((FIRST, SECOND), {FIRST: 12}, SECOND),
        ((FIRST, "a = 3.5\n", SECOND), {FIRST: 12}, SECOND),
        (("a = 3.5\n", FIRST), {FIRST: 50}, "a = 3.5\n"),
        ((PLAIN, "syntax error(\n", SECOND), {}, SECOND),
        ((FIRST, SECOND), {FIRST: 12, SECOND: 12}, None),
        ((PLAIN,), {}, None),
    ],
)
def test_the_parent_is_the_fittest_program_whose_skeleton_has_not_stalled(
    sources: tuple[str, ...], younger: dict[str, int], chosen: str | None
) -> None:
    aim = tune.best_skeleton(Residents(sources, younger), Random(0))

    assert (aim and aim.parent) == (Program(chosen).id if chosen else None)
    if aim is not None and chosen is not None:
        assert aim.generation == sources.index(chosen) + 1


def test_a_skeleton_of_more_numbers_may_pause_longer() -> None:
    many = "a = [" + ", ".join(f"{n}.5" for n in range(20)) + "]\n"
    aim = tune.best_skeleton(Residents((many, FIRST), {many: 30}), Random(0))
    assert aim is not None
    assert aim.parent == Program(many).id
    aim = tune.best_skeleton(Residents((many, FIRST), {many: 36}), Random(0))
    assert aim is not None
    assert aim.parent == Program(FIRST).id


def test_a_parent_without_fitness_is_not_in_the_history() -> None:
    ask = Recorder(1.0, 1.0, 1.0)
    child_of(brief_of(fitness=None), ask)

    assert ask.requests[0].history == ()


def test_a_parent_without_numbers_is_mutated_instead() -> None:
    ask = Recorder()
    child = child_of(brief_of("def f(x):\n    return x + x\n"), ask)

    assert isinstance(child, Offspring)
    assert "return x + x\n" not in child.program.source
    assert ask.requests == []


def test_a_parent_whose_numbers_do_not_move_is_mutated_instead() -> None:
    ask = Recorder(0.0, 0.0, 0.0)
    child = child_of(brief_of(), ask)

    assert isinstance(child, Offspring)
    assert child.program.source != SOURCE
    assert child.point is None
    assert len({request.seed for request in ask.requests}) == len(ask.requests) > 1


def test_numbers_beyond_floating_point_are_left_alone() -> None:
    source = f"def f(x):\n    return [1e999, {10**400}, 2.5]\n"
    assert numbers(Program(source)) == [2.5]


def test_another_language_is_declined() -> None:
    child = child_of(brief_of("fn main() {}", language="rust"), Recorder())

    assert isinstance(child, Failure)
    assert child.kind is FailureKind.NO_CODE


def test_each_proposal_has_its_own_seed_for_the_optimiser() -> None:
    asks = [Recorder(1.0, 1.0, 1.0) for _ in range(3)]
    for ask, ordinal in zip(asks, (1, 2, 1), strict=True):
        child_of(brief_of(ordinal=ordinal), ask)

    one, other, again = (ask.requests[0].seed for ask in asks)
    assert one == again != other


def test_a_very_large_space_is_searched_in_parts() -> None:
    source = "def f(x):\n    return [" + ", ".join(f"{n}.5" for n in range(60)) + "]\n"
    ask = Recorder(*[1.0] * 60)

    child = source_of(child_of(brief_of(source), ask))

    assert ask.requests[0].dimensions == 40
    moved = [a != b for a, b in zip(numbers(Program(source)), numbers(Program(child)), strict=True)]
    assert sum(moved) == 40


def test_cma_returns_equal_points_for_equal_requests() -> None:
    request = PointRequest(3, (RatedPoint((0.0, 0.0, 0.0), 1.0),), 5)

    assert cma(request) == cma(request)
    assert len(cma(request)) == 3


def test_cma_stays_finite_for_any_history() -> None:
    wild = tuple(RatedPoint((1e30 * (-1) ** n, 1e-30, float(n)), float(n % 5)) for n in range(64))
    flat = tuple(RatedPoint((float(n), 0.0, 0.0), 1.0) for n in range(64))

    for history in (wild, flat):
        for seed in range(20):
            assert all(abs(value) < 1e6 for value in cma(PointRequest(3, history, seed)))


@pytest.mark.parametrize("seed", range(2))
def test_cma_fed_from_its_history_finds_the_maximum_of_a_quadratic(seed: int) -> None:
    def height(point: tuple[float, ...]) -> float:
        return -sum((n + 1) * (value - 2.0) ** 2 for n, value in enumerate(point))

    history: list[RatedPoint] = [RatedPoint((0.0,) * 4, height((0.0,) * 4))]
    flying: list[tuple[float, ...]] = []
    for n in range(200):
        flying.append(cma(PointRequest(4, tuple(history[-64:]), seed * 1000 + n)))
        if len(flying) == 8:
            point = flying.pop(0)
            history.append(RatedPoint(point, height(point)))

    best = max(tried.fitness for tried in history)
    assert best > 0.1 * history[0].fitness


def test_tuning_raises_the_fitness_of_whole_programs() -> None:
    def fitness(program: Program) -> float:
        first, second, third = numbers(program)
        return -((first - 5.0) ** 2) - (second + 1.0) ** 2 - 0.1 * (third - 15) ** 2

    parent = Program(SOURCE)
    best = ProgramRecord(parent, fitness(parent))
    points: list[MeasuredPoint] = []
    for ordinal in range(100):
        draft = Draft(ordinal, 0, 0, 1, (best.program.id,))
        brief = Brief(
            "", "python", (draft,), {best.program.id: best}, points=tuple(reversed(points))
        )
        with pytest.raises(StopIteration) as ended:
            next(tuner(cma).converse(brief))
        [child] = ended.value.value
        whole = isinstance(child, Offspring) and len(numbers(child.program)) == 3
        if isinstance(child, Offspring) and whole:  # 1 is no quantity
            ast.parse(child.program.source)
            known = ProgramRecord(child.program, fitness(child.program))
            assert best.fitness is not None
            assert known.fitness is not None
            assert child.point is not None
            points.append(MeasuredPoint(child.point.numbers, known.fitness))
            best = known if known.fitness > best.fitness else best

    assert best.fitness is not None
    assert best.fitness > 0.05 * fitness(parent)
