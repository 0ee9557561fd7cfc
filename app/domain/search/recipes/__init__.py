"""Recipes: each module holds one search method; see `Recipe`.

A package outside this repository adds a recipe by an entry point of the group `evoqueue.recipes`;
`app.config.recipes` finds both.
"""

from collections.abc import Mapping

from app.domain.search.recipes.funsearch import FunSearch
from app.domain.search.recipes.funsearch_lite import FunSearchLite
from app.domain.search.recipes.greedy import Greedy
from app.domain.search.recipes.map_elites import MapElites
from app.domain.search.recipes.random_search import RandomSearch
from app.domain.search.recipes.tournament import Tournament
from app.domain.search.strategy import Recipe

RECIPES: Mapping[str, type[Recipe]] = {
    "funsearch": FunSearch,
    "funsearch_lite": FunSearchLite,
    "greedy": Greedy,
    "map_elites": MapElites,
    "random": RandomSearch,
    "tournament": Tournament,
}

__all__ = [
    "RECIPES",
    "FunSearch",
    "FunSearchLite",
    "Greedy",
    "MapElites",
    "RandomSearch",
    "Tournament",
]
