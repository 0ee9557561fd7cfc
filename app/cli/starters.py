"""The files that `evoq new` writes: for each format a small problem that runs at once."""

import json
import random
from collections.abc import Mapping

from app.cli import repository_starter

_PROGRAM = '''\
# The program to evolve. Only the lines between the two markers change.
import math


# EVOLVE-BLOCK-START
def curve(x):
    """Returns an approximation of the function that evaluator.py measures."""
    return 0.5 + 0.3 * x


# EVOLVE-BLOCK-END
'''

_EVALUATOR = '''\
"""Measures a program. Higher is better for `combined_score`."""

import importlib.util
import math


def evaluate(program_path):
    """Returns metrics of the program in the file `program_path`.

    `combined_score` is the fitness. Other numbers are kept and shown; texts are shown to the model.
    An exception fails the program, with its message as the reason.
    """
    program = load(program_path)
    points = [step / 10 for step in range(31)]
    errors = [abs(program.curve(x) - math.sin(x)) for x in points]
    worst = max(errors)
    return {
        "combined_score": -sum(errors) / len(errors),
        "worst_error": worst,
        "note": f"the largest error is at x = {points[errors.index(worst)]}",
    }


def load(path):
    """Imports the program."""
    spec = importlib.util.spec_from_file_location("program", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
'''

_CONFIG = """\
# Settings of this problem, in OpenEvolve's form. All of them are optional: docs/openevolve.md.
max_iterations: 200      # proposals of a run; --iterations overrides it
prompt:
  system_message: >
    Improve the function curve(x) so that it comes close to sin(x) between 0 and 3.
    It may use the module math, but no function of it.
evaluator:
  timeout: 10            # seconds of one evaluation
# llm:
#   primary_model: NAME
#   api_base: https://host/v1      # the key is read from the variable OPENAI_API_KEY
"""

_SPECIFICATION = '''\
"""Finds large sets of numbers below n without three in arithmetic progression.

This text is the instruction to the model. The format: docs/funsearch.md.
"""

import funsearch


@funsearch.run
def evaluate(n: int = 54) -> int:
    """Returns the score; higher is better. `--set problem.inputs=20,30,54` gives other inputs."""
    taken: list[int] = []
    for number in sorted(range(n), key=lambda number: -priority(number, n)):
        if not any(closes(number, other, taken) for other in taken):
            taken.append(number)
    return len(taken)


def closes(number: int, other: int, taken: list[int]) -> bool:
    """Returns whether three numbers in arithmetic progression would be among those taken."""
    middle, odd = divmod(number + other, 2)
    return 2 * other - number in taken or (not odd and middle in taken)


@funsearch.evolve
def priority(number: int, n: int) -> float:
    """Returns the priority with which a number, 0 <= number < n, enters the set."""
    return 1.0 * (number % 4) + 0.5 * (number % 9)
'''

_DESCRIPTION = """\
# Every key: docs/problem-yaml.md.
instructions: >
  Improve the function priority(item, rooms), which chooses the bin for the next item: the bin with
  the highest priority is taken. The fewer bins, the better.

seeds:                       # start programs, which are also what the best program is compared with
  best fit: seeds/best_fit.py
  worst fit: seeds/worst_fit.py

evaluator: evaluator.py      # defines one function for each stage
stages:
  - name: quick              # quick(program_path, cases) -> {case: score}; higher is better
    cases: [uniform 60]
    seconds: 5
    gate: quantile 0.3 of 20 # programs worse than the worst 30 % of the newest 20 go no further
  - name: full
    cases: [uniform 200, small 200]
    seconds: 20

axes:                        # the search keeps the best program for each cell of this grid
  - {name: complexity, bins: 10, low: 0, high: 600}

hidden: [instances.json]     # no program may read it
imports:
  allow: [math]

settings:                    # settings of a run; --set overrides them
  budget.proposals: 200
"""

_BEST_FIT = '''\
# EVOLVE-BLOCK-START
def priority(item, rooms):
    """Returns the priority of each bin by the room it has left; every room is at least item."""
    return [-(room - item) for room in rooms]


# EVOLVE-BLOCK-END
'''

_STAGES = '''\
"""Measures heuristics for online bin packing."""

import importlib.util
import json
from pathlib import Path

INSTANCES = json.loads((Path(__file__).parent / "instances.json").read_text())
CAPACITY = 100


def quick(program_path, cases):
    """Returns a score for each case of the stage `quick`."""
    return full(program_path, cases)


def full(program_path, cases):
    """Returns a score for each case: the share of the lower bound in the bins that were used."""
    program = load(program_path)
    return {case: score(program.priority, INSTANCES[case]) for case in cases}


def score(priority, items):
    rooms = []
    for item in items:
        fitting = [index for index, room in enumerate(rooms) if room >= item]
        offered = [rooms[index] for index in fitting] + [CAPACITY]
        priorities = list(priority(item, offered))
        chosen = max(range(len(offered)), key=priorities.__getitem__)
        if chosen == len(fitting):
            rooms.append(CAPACITY - item)
        else:
            rooms[fitting[chosen]] -= item
    return sum(items) / CAPACITY / len(rooms)


def load(path):
    """Imports the program."""
    spec = importlib.util.spec_from_file_location("program", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
'''


def _instances() -> str:
    draw = random.Random(7)
    kinds = {"uniform 60": (20, 60, 60), "uniform 200": (20, 60, 200), "small 200": (5, 40, 200)}
    drawn = {
        name: [draw.randint(low, high) for _ in range(count)]
        for name, (low, high, count) in kinds.items()
    }
    return json.dumps(drawn) + "\n"


_README = """\
# {name}

    evoq check {path}          what is understood, and what the start program scores
    evoq run {path} --iterations 100
    evoq run {path} --set llm.model=NAME --set llm.base_url=http://localhost:8000/v1

Without a model the search changes numbers and expressions of the program. Results are in runs/.
"""

STARTERS: Mapping[str, Mapping[str, str]] = {
    "openevolve": {
        "initial_program.py": _PROGRAM,
        "evaluator.py": _EVALUATOR,
        "config.yaml": _CONFIG,
        "README.md": _README,
    },
    "funsearch": {"specification.py": _SPECIFICATION, "README.md": _README},
    "problem": {
        "problem.yaml": _DESCRIPTION,
        "evaluator.py": _STAGES,
        "instances.json": _instances(),
        "seeds/best_fit.py": _BEST_FIT,
        "seeds/worst_fit.py": _BEST_FIT.replace("-(room - item)", "room - item"),
        "README.md": _README,
    },
    "repository": {**repository_starter.FILES, "README.md": _README},
}
"""Format to file name to text; `{name}` and `{path}` of a README are filled in."""
