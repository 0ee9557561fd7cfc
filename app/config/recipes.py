"""The registry of recipes: those of `app.domain.search.recipes`, and those of installed packages.

A package provides a recipe by an entry point of the group `evoqueue.recipes`: its name is the value
of `search.strategy`, its object the recipe's class.
"""

import functools
import math
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from pydantic import TypeAdapter

from app.domain.search.recipes import RECIPES
from app.domain.search.strategy import Recipe
from app.domain.setting import LARGEST_INTEGER

GROUP = "evoqueue.recipes"


@functools.cache
def _installed() -> Mapping[str, EntryPoint]:
    """Returns the entry points of other packages; nothing is imported yet."""
    return {point.name: point for point in entry_points(group=GROUP) if point.name not in RECIPES}


def recipe_names() -> list[str]:
    """Returns the values that `search.strategy` takes, sorted."""
    return sorted({*RECIPES, *_installed()})


def recipe(name: str) -> type[Recipe]:
    """Returns a recipe's class.

    Raises:
      LookupError: No recipe has that name.
      ValueError: An installed package names something that is no recipe.
    """
    if name in RECIPES:
        return RECIPES[name]
    point = _installed().get(name)
    if point is None:
        known = recipe_names()
        [nearest] = get_close_matches(name, known, n=1, cutoff=0.0)
        raise LookupError(f"no recipe {name!r}: the closest is {nearest!r}, of {', '.join(known)}")
    found: type[Recipe] = point.load()
    if not (isinstance(found, type) and is_dataclass(found) and "strategy" in dir(found)):
        raise ValueError(
            f"the entry point {name!r} of {GROUP} is {point.value}, which is no dataclass with a "
            f"method `strategy`"
        )
    return found


def parameter_names(recipe: type[Recipe]) -> list[str]:
    """Returns the names of a recipe's parameters."""
    parameters = fields(recipe)  # type: ignore[arg-type]  # recipes are dataclasses
    return [parameter.name for parameter in parameters]


def with_parameters(
    recipe: type[Recipe], search: Mapping[str, Any], strategy: Mapping[str, Any]
) -> Recipe:
    """Returns a recipe with its parameters; one without a value has the recipe's own default.

    Args:
      recipe: Its class.
      search: The section `search`, whose settings are shared by recipes.
      strategy: The section `strategy`, whose settings are the recipe's alone.

    Raises:
      ValueError: A parameter is of the wrong type or out of range.
    """
    values = {
        name: value
        for name in parameter_names(recipe)
        if (value := search.get(name, strategy.get(name))) is not None
    }
    built = TypeAdapter(recipe).validate_python(values)
    parameters = asdict(built)  # type: ignore[call-overload]  # recipes are dataclasses
    for name, value in parameters.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{name} must be finite, not {value:g}")
        if isinstance(value, int) and value > LARGEST_INTEGER:
            raise ValueError(f"{name} must be at most {LARGEST_INTEGER}, not {value}")
    return built
