"""Recipes: each module names one published search method as a `Strategy`."""

from collections.abc import Mapping

from app.domain.search.recipes.map_elites import map_elites
from app.domain.search.strategy import Recipe

RECIPES: Mapping[str, Recipe] = {"map_elites": map_elites}

__all__ = ["RECIPES", "map_elites"]
