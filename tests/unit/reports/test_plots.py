import math
import warnings
from collections.abc import Sequence
from pathlib import Path

import pytest

from app.domain.evaluation import FailureKind
from app.domain.events import Fact, Founded, Improved
from app.domain.problem import Axis
from app.domain.search.archive import Elite
from app.reports.course import Course
from app.reports.folder import save
from app.reports.generations import generations
from app.reports.plots import archive, by_generation, evolution, failures
from app.reports.view import best_by_square
from tests.unit.reports.test_course import course, events, failed, offered, program
from tests.unit.reports.test_metrics import FAILED, proposal

PNG = b"\x89PNG\r\n\x1a\n"


def improving(*fitness: float) -> list[Fact]:
    """Returns the facts of measured proposals, each an improvement or not."""
    facts: list[Fact] = []
    best = -math.inf
    for number, each in enumerate(fitness, 1):
        facts.append(offered(number, each))
        if each > best:
            best = each
            facts.append(Improved(program=program(number), fitness=each, settled=number))
    return facts


def elite(fitness: float, *cell: int) -> tuple[int, Elite]:
    return 0, Elite(f"{fitness}", fitness, 10, 1, cell)


def drawn(figure, path: Path) -> bytes:
    save(figure, path)
    return path.read_bytes()


@pytest.mark.parametrize(
    "facts",
    [
        [],
        [offered(-1, 1.0, Founded), Improved(program=program(0), fitness=1.0, settled=0)],
        [failed(1)],
        improving(1.0),
        improving(*(float(n % 7) for n in range(300))),
        improving(-1e300, 1e300, 1e300),
    ],
    ids=["empty", "seed only", "failed only", "one", "many", "huge"],
)
def test_the_evolution_of_any_run_can_be_drawn(facts: Sequence[Fact], tmp_path: Path):
    figure = evolution(course(events(*facts)), {"best fit": 1.0}, "run")
    assert drawn(figure, tmp_path / "a.png").startswith(PNG)


def test_a_bad_child_does_not_flatten_the_rest():
    fitness = [n / 100 for n in range(100)] + [-1e9]

    [axes] = evolution(course(events(*improving(*fitness))), {}, "run").axes

    low, high = axes.get_ylim()
    assert -3.0 < low < 0.0
    assert 0.99 < high < 1.5
    assert "1 of 101 below" in axes.get_title("right")


def test_baselines_are_named_with_their_fitness():
    [axes] = evolution(course(events(*improving(1.0))), {"first fit": 0.25}, "run").axes

    assert "first fit  0.25" in axes.get_legend_handles_labels()[1]


@pytest.mark.parametrize(
    "facts",
    [[], improving(1.0), [failed(-1)], [failed(n, FailureKind.MEMORY) for n in range(1, 100)]],
)
def test_the_failures_of_any_run_can_be_drawn(facts: Sequence[Fact], tmp_path: Path):
    figure = failures(course(events(*facts)), "run")
    assert drawn(figure, tmp_path / "f.png").startswith(PNG)


def test_failures_are_counted_by_kind_most_frequent_first():
    kinds = [FailureKind.SYNTAX, *[FailureKind.TIMEOUT] * 3]
    facts = [failed(n, kind) for n, kind in enumerate(kinds, 1)]

    [axes] = failures(course(events(*facts)), "run").axes

    assert axes.get_legend_handles_labels()[1] == ["timeout  3", "syntax  1"]
    assert axes.get_legend().get_title().get_text() == "4 of 4 failed (100%)"


TWO = (Axis("size", 4, 0.0, 8.0), Axis("speed", 3, 0.0, 1.0))


@pytest.mark.parametrize(
    ("elites", "axes"),
    [
        ([], TWO),
        ([elite(1.0, 0, 0)], TWO),
        ([elite(1.0, 2), elite(1.0, 3)], TWO[:1]),
        ([elite(1.0, 2, 1, 0), elite(2.0, 2, 1, 4)], (*TWO, Axis("third", 5, 0.0, 1.0))),
        ([elite(1.0)], ()),
        ([elite(1.0, 1, 1)], (Axis("open", 4), Axis("wide", 500, 0.0, 1.0))),
    ],
    ids=["empty", "one", "one axis", "three axes", "no axes", "open range"],
)
def test_any_archive_can_be_drawn(elites, axes, tmp_path: Path):
    assert drawn(archive(elites, axes, "run"), tmp_path / "g.png").startswith(PNG)


def test_a_square_shows_the_best_of_all_islands_and_hidden_axes():
    cells = [elite(1.0, 2, 1, 0), elite(3.0, 2, 1, 4), elite(2.0, 0, 0, 0)]

    best = best_by_square([one for _, one in cells])

    assert {place: one.fitness for place, one in best.items()} == {(2, 1): 3.0, (0, 0): 2.0}


def test_axes_are_labelled_with_their_ranges():
    axes = archive([elite(1.0, 0, 0)], TWO, "run").axes[0]

    assert axes.get_xlabel() == "size  [0, 8], 4 bins"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "2", "4", "6", "8"]


def test_fitness_in_cells_tells_close_programs_apart():
    elites = [elite(-2.8, 0, 0), elite(-3.2, 1, 0), elite(-20.0, 2, 0)]

    axes = archive(elites, TWO, "run").axes[0]

    assert {text.get_text() for text in axes.texts} == {"-2.80", "-3.20", "-20.00"}
    assert axes.get_title("right") == "3 of 12 cells"


def test_merged_islands_are_counted():
    axes = archive([elite(1.0, 0, 0), (1, elite(2.0, 1, 0)[1])], TWO, "run").axes[0]

    assert axes.get_title("right") == "2 of 12 cells, 2 islands merged"


def test_baselines_of_one_fitness_share_a_line():
    baselines = {"first fit": 0.25, "best fit": 0.5, "initial program": 0.5}

    [axes] = evolution(course(events(*improving(1.0))), baselines, "run").axes

    labels = axes.get_legend_handles_labels()[1][-2:]
    assert labels == ["best fit\ninitial program  0.5", "first fit  0.25"]


def test_a_title_without_a_glyph_is_drawn_without_a_word(tmp_path: Path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert drawn(evolution(Course(), {}, "名前"), tmp_path / "a.png").startswith(PNG)


def test_a_picture_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device", str(self))

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        save(failures(Course(), "run"), tmp_path / "a.png")

    assert list(tmp_path.iterdir()) == []


def test_generations_are_drawn_with_their_means_and_counts():
    settled = [
        *(proposal(n, float(n), cohort=1) for n in range(6)),
        proposal(6, 2.0, cohort=2),
        proposal(7, cohort=2),
    ]

    plot, counts = by_generation(generations(settled), "run").axes

    lines = {line.get_label(): list(line.get_ydata()) for line in plot.get_lines()}
    assert lines == {
        "best so far": [5.0, 5.0],
        "mean of the 5 fittest": [3.0, 2.0],
        "mean": [2.5, 2.0],
    }
    measured, others = counts.containers
    assert [bar.get_height() for bar in measured] == [6, 1]
    assert [bar.get_height() for bar in others] == [0, 1]


@pytest.mark.parametrize(
    "settled",
    [[], [FAILED], [proposal(n, float(n), cohort=n) for n in range(80)]],
    ids=["none", "failed only", "many"],
)
def test_the_generations_of_any_run_can_be_drawn(settled, tmp_path: Path):
    figure = by_generation(generations(settled), "run $x$")
    assert drawn(figure, tmp_path / "g.png").startswith(PNG)
