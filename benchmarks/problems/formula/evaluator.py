"""Scores a formula of two variables by its error at 17 points: 1 is a hidden formula itself."""

import importlib.util
import math
from statistics import fmean

POINTS = [(x / 2.0, (x * 7 % 11) / 4.0) for x in range(-8, 9)]
TARGETS = [x * y - 2.5 * x + 1.7 * y * y for x, y in POINTS]


def score(program):
    pairs = zip(program.values(POINTS), TARGETS, strict=True)
    error = math.sqrt(fmean((value - target) ** 2 for value, target in pairs))
    return {"combined_score": 1.0 / (1.0 + error)}


def evaluate(program_path):
    spec = importlib.util.spec_from_file_location("program", program_path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return score(program)
