"""Recipes: each module holds one search method; see `Recipe`.

A package outside this repository adds a recipe by an entry point of the group `evoqueue.recipes`;
`app.config.recipes` finds both.
"""

from collections.abc import Mapping

from app.domain.search.recipes.beam import Beam
from app.domain.search.recipes.best_of_n import BestOfN
from app.domain.search.recipes.cascaded import Cascaded
from app.domain.search.recipes.funsearch import FunSearch
from app.domain.search.recipes.funsearch_lite import FunSearchLite
from app.domain.search.recipes.greedy import Greedy
from app.domain.search.recipes.map_elites import MapElites
from app.domain.search.recipes.random_search import RandomSearch
from app.domain.search.recipes.reflexion import Reflexion
from app.domain.search.recipes.speculate import Speculate
from app.domain.search.recipes.tournament import Tournament
from app.domain.search.recipes.tree_of_thoughts import TreeOfThoughts
from app.domain.search.strategy import Recipe

RECIPES: Mapping[str, type[Recipe]] = {
    "beam": Beam,
    "best_of_n": BestOfN,
    "cascaded": Cascaded,
    "funsearch": FunSearch,
    "funsearch_lite": FunSearchLite,
    "greedy": Greedy,
    "map_elites": MapElites,
    "random": RandomSearch,
    "reflexion": Reflexion,
    "speculate": Speculate,
    "tournament": Tournament,
    "tree_of_thoughts": TreeOfThoughts,
}

__all__ = [
    "RECIPES",
    "Beam",
    "BestOfN",
    "Cascaded",
    "FunSearch",
    "FunSearchLite",
    "Greedy",
    "MapElites",
    "RandomSearch",
    "Reflexion",
    "Speculate",
    "Tournament",
    "TreeOfThoughts",
]
