"""The files that `evoq new` writes: for each format a small problem that runs at once."""

from collections.abc import Mapping

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
}
"""Format to file name to text; `{name}` and `{path}` of a README are filled in."""
