"""Scores six numbers by how near each is to a hidden one, in decimal places of the relative error.

The score is 4 where all are exact, and 1 where the errors are as large as the numbers.
"""

import importlib.util
import math
from statistics import fmean

TARGETS = (3.7, -1.2, 12.5, 0.08, 7.0, -4.4)


def score(program):
    values = [float(value) for value in program.constants()]
    if len(values) != len(TARGETS):
        raise ValueError(f"{len(values)} values, not {len(TARGETS)}")
    pairs = zip(values, TARGETS, strict=True)
    errors = (abs(value - target) / max(1.0, abs(target)) for value, target in pairs)
    return {"combined_score": 1.0 - fmean(math.log10(1e-3 + error) for error in errors)}


def evaluate(program_path):
    spec = importlib.util.spec_from_file_location("program", program_path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return score(program)
