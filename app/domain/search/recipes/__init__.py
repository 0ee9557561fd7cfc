"""Recipes: each module holds one published search method; see `Recipe`.

A package outside this repository adds a recipe by an entry point of the group `evoqueue.recipes`;
`app.config.recipes` finds both.
"""

from collections.abc import Mapping

from app.domain.search.recipes.map_elites import MapElites
from app.domain.search.strategy import Recipe

RECIPES: Mapping[str, type[Recipe]] = {"map_elites": MapElites}

__all__ = ["RECIPES", "MapElites"]
