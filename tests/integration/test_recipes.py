"""Recipes are found by name: those of this repository, and those of any installed package."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.config import recipes
from app.config.layers import UsageError, from_assignments
from app.config.resolve import resolved
from app.config.rules import rules_of
from app.domain.search.archive import Cell, Elite
from app.domain.search.recipes.map_elites import MapElites
from app.domain.search.strategy import RecipeInputs
from tests.islands import Island

MODULE = '''
from dataclasses import dataclass

from app.domain.search.archive import best, everyone_together
from app.domain.search.promotion import cascade
from app.domain.search.strategy import Lineage, Strategy, fixed


@dataclass(frozen=True)
class Podium:
    """Breeds from the champion of one podium."""

    places: int = 3
    inspirations: int = 2

    def __post_init__(self):
        if self.places < 1:
            raise ValueError(f"places must be at least 1, not {self.places}")

    def strategy(self, inputs):
        champion = lambda island, rng: Lineage(island.best(1), island.best(self.inspirations, 1))
        return Strategy(
            everyone_together, best(self.places), champion, cascade(inputs.stages), size=fixed(4)
        )
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package outside this repository, with a recipe and an entry point that is none."""
    (tmp_path / "podium_search.py").write_text(MODULE)
    about = tmp_path / "podium_search-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: podium-search\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        f"[{recipes.GROUP}]\npodium = podium_search:Podium\nbroken = podium_search:cascade\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    recipes._installed.cache_clear()
    yield
    recipes._installed.cache_clear()


INPUTS = RecipeInputs((), ("evaluate",), (), 1, 300)


@pytest.mark.usefixtures("package")
def test_a_recipe_of_another_package_is_loaded_by_its_entry_point():
    assignments = ["search.strategy=podium", "strategy.places=2", "search.inspirations=1"]
    settings = resolved([from_assignments(assignments)], {}).settings

    rules = rules_of(settings.search.strategy, settings.model_dump(mode="json"))

    assert rules.recipe is not None
    strategy = rules.recipe.strategy(INPUTS)
    assert strategy.size(Island(0)) == 4
    elites = [Elite(name * 64, fitness, 1, 1) for name, fitness in (("a", 3.0), ("b", 2.0))]
    full = Cell((), tuple(elites))
    assert strategy.occupancy(full, Elite("c" * 64, 1.0, 1, 1)) is full
    island = Island(0, cells={(): full})
    assert len(strategy.selection(island, None).inspirations) == 1


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (
            ["search.strategy=podum"],
            "the closest is 'podium', of beam, best_of_n, broken, cascaded, funsearch, ",
        ),
        (["search.strategy=podium", "strategy.place=2"], "closest known one is `strategy.places`"),
        (
            ["search.strategy=podium", "strategy.places=0"],
            "--set: `strategy.*`: places must be at least 1, not 0. Correct",
        ),
        (["search.strategy=podium", "strategy.places=many"], "`strategy.places`: input should be"),
        (["search.strategy=podium", "strategy.inspirations=1"], "setting `search.inspirations`"),
        (["strategy.places=2"], "'map_elites' has no parameter `strategy.places`"),
        (["search.strategy=cascaded", "strategy.fan_out=[1, 0]"], "fan_out must be numbers of"),
        (["search.strategy=cascaded", "strategy.share=0"], "share must be above 0 and at most 1"),
        (["search.strategy=beam", "strategy.width=0"], "width must be at least 1, not 0"),
        (["search.strategy=speculate", "strategy.deadline_seconds=0"], "deadline_seconds must be"),
        (["search.strategy=broken"], "which is no dataclass with a method `strategy`"),
    ],
)
def test_a_recipe_refuses_what_it_does_not_take(assignments: list[str], message: str):
    with pytest.raises(UsageError) as refused:
        resolved([from_assignments(assignments)], {})

    assert message in str(refused.value)


def test_the_parameters_of_map_elites_are_settings_of_the_section_search():
    settings = resolved([from_assignments(["search.archive_size=7"])], {}).settings

    rules = rules_of("map_elites", settings.model_dump(mode="json"))

    assert rules.recipe == MapElites(archive_size=7)


def test_a_run_of_a_recipe_that_is_not_installed_can_be_read():
    assert rules_of("podium", {"strategy": {"places": 2}}).recipe is None
