"""The problem that `evoq new --format repository` writes: a program of several files."""

_DESCRIPTION = """\
# A program of several files: docs/repositories.md.  Every key: docs/problem-yaml.md.
instructions: >
  Improve the library so that main.values(points) comes close to sin(x) between 0 and 3. It may use
  the module math, but no function of it.

program:
  root: library                  # the folder of the program; the paths below are relative to it
  evolve: ["*.py", params.json]  # the files that change; all others are fixed
  entry: main.py                 # the file whose functions the evaluator calls
  context: [README.md]           # fixed files that the model is shown

evaluator: evaluator.py
stages:
  - {name: measure, seconds: 10} # measure(folder) -> metrics; higher is better

settings:
  budget.proposals: 200
"""

_MAIN = '''\
"""The entry of the library."""

import json
import os

from shape import curve

PARAMETERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "params.json")


def values(points):
    """Returns the approximation at each point."""
    with open(PARAMETERS) as file:
        parameters = json.load(file)
    return [parameters["scale"] * curve(x) + parameters["shift"] for x in points]
'''

_SHAPE = '''\
"""The shape of the curve, before it is scaled and shifted."""


def curve(x):
    return 0.5 + 0.3 * x
'''

_EVALUATOR = '''\
"""Measures the library. Higher is better for `combined_score`."""

import importlib.util
import math
import os
import sys


def measure(folder):
    """Returns metrics of the program whose files are in `folder`."""
    points = [step / 10 for step in range(31)]
    found = load(folder).values(points)
    errors = [abs(value - math.sin(x)) for x, value in zip(points, found)]
    worst = max(errors)
    return {
        "combined_score": -sum(errors) / len(errors),
        "worst_error": worst,
        "note": f"the largest error is at x = {points[errors.index(worst)]}",
    }


def load(folder):
    """Imports the entry, which runs in another process in guarded mode."""
    sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location("main", os.path.join(folder, "main.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
'''

_README = """\
# A curve

`main.values(points)` approximates the sine. `shape.curve` is its shape, and params.json scales it.
"""

FILES = {
    "problem.yaml": _DESCRIPTION,
    "evaluator.py": _EVALUATOR,
    "library/main.py": _MAIN,
    "library/shape.py": _SHAPE,
    "library/params.json": '{"scale": 1.0, "shift": 0.0}\n',
    "library/README.md": _README,
}
"""Path to text of each file."""
