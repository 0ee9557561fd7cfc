"""Scores a packing of 26 circles in the unit square by the sum of its radii.

The check is exact: every float is a fraction, and sums and products of fractions have no rounding.
A packing that is valid only up to some tolerance is refused.
"""

import importlib.util
import math
from fractions import Fraction

import numpy as np

CIRCLES = 26


class InvalidPacking(ValueError):
    """Not 26 circles inside the square, none overlapping another."""


def exact(packing):
    """Returns the circles as triples of fractions.

    Raises:
      InvalidPacking: Not an array of shape (26, 3) of finite numbers.
    """
    try:
        numbers = np.asarray(packing, dtype=float)
    except (TypeError, ValueError) as error:
        raise InvalidPacking(f"not an array of numbers: {error}") from error
    if numbers.shape != (CIRCLES, 3):
        raise InvalidPacking(f"the shape must be ({CIRCLES}, 3), not {numbers.shape}")
    if not np.isfinite(numbers).all():
        raise InvalidPacking("a number is not finite")
    return [tuple(Fraction(float(number)) for number in circle) for circle in numbers]


def verify(circles):
    """Refuses circles that leave the unit square, overlap, or have a negative radius.

    Raises:
      InvalidPacking: Says which circles, and by how much.
    """
    for one, (x, y, radius) in enumerate(circles):
        if radius < 0:
            raise InvalidPacking(f"circle {one} has the radius {float(radius)!r}")
        room = min(x, y, 1 - x, 1 - y) - radius
        if room < 0:
            raise InvalidPacking(f"circle {one} leaves the square by {float(-room):.3g}")
        for other in range(one):
            across, along = x - circles[other][0], y - circles[other][1]
            reach = radius + circles[other][2]
            if across * across + along * along < reach * reach:
                overlap = float(reach) - math.hypot(across, along)
                raise InvalidPacking(f"circles {other} and {one} overlap by about {overlap:.3g}")


def evaluate(program_path):
    spec = importlib.util.spec_from_file_location("program", program_path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)

    circles = exact(program.construct_packing())
    verify(circles)
    radii = [radius for _, _, radius in circles]
    return {
        "combined_score": float(sum(radii)),
        "smallest_radius": float(min(radii)),
        "largest_radius": float(max(radii)),
    }
