"""Recipes: each module holds one search method; see `Recipe`.

A package outside this repository adds a recipe by an entry point of the group `evoqueue.recipes`;
`app.config.recipes` finds both.
"""

from collections.abc import Mapping

from app.domain.search.recipes.beam import BeamRecipe
from app.domain.search.recipes.best_of_n import BestOfNRecipe
from app.domain.search.recipes.cascaded import CascadedRecipe
from app.domain.search.recipes.funsearch import FunSearch
from app.domain.search.recipes.funsearch_lite import FunSearchLite
from app.domain.search.recipes.greedy import Greedy
from app.domain.search.recipes.map_elites import MapElites
from app.domain.search.recipes.random_search import RandomSearch
from app.domain.search.recipes.reflexion import ReflexionRecipe
from app.domain.search.recipes.speculate import SpeculateRecipe
from app.domain.search.recipes.tournament import TournamentRecipe
from app.domain.search.recipes.tree_of_thoughts import TreeOfThoughtsRecipe
from app.domain.search.strategy import Recipe

RECIPES: Mapping[str, type[Recipe]] = {
    "beam": BeamRecipe,
    "best_of_n": BestOfNRecipe,
    "cascaded": CascadedRecipe,
    "funsearch": FunSearch,
    "funsearch_lite": FunSearchLite,
    "greedy": Greedy,
    "map_elites": MapElites,
    "random": RandomSearch,
    "reflexion": ReflexionRecipe,
    "speculate": SpeculateRecipe,
    "tournament": TournamentRecipe,
    "tree_of_thoughts": TreeOfThoughtsRecipe,
}
