"""Places of a worker: how many trials it runs at once, by one number or by the machine.

Imports no settings: beat reads this, and the classes would cost it memory and time.
"""

import os
from collections.abc import Mapping

VARIABLES = ("EVOQ_EVALUATE_CONCURRENCY", "EVOQ_SANDBOX__PLACES")
"""Two names of the same number."""
LEAST = 4
"""Places of a small machine: while a trial is recorded, the next one is measured."""


def places(environment: Mapping[str, str], cores: int) -> int:
    """Returns the number that the environment gives; else one a core, and at least `LEAST`.

    Raises:
      ValueError: A variable is not a positive number, or two are different.
    """
    given = {name: environment[name] for name in VARIABLES if environment.get(name)}
    for name, text in given.items():
        if not text.isdecimal() or int(text) < 1:
            raise ValueError(f"{name} must be a number of trials, 1 or more, not {text!r}")
    if len({int(text) for text in given.values()}) > 1:
        both = " and ".join(f"{name} is {text}" for name, text in given.items())
        raise ValueError(f"{both}: both are the trials that a worker runs at once; set one of them")
    return int(next(iter(given.values()))) if given else max(LEAST, cores)


def available_cores() -> int:
    """Returns the number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        # This function exists on Linux only.
        return os.cpu_count() or 1
