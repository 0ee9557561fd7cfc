"""CMA-ES behind `tune`, from the library `cmaes`."""

import numpy as np

from app.domain.operators.tune import PointRequest

_SIGMA = 0.5  # first step, in units of which one is 0.3 of a number's size
_FARTHEST = 20.0  # points other programs left far away must not blow the step up


def ask(request: PointRequest) -> tuple[float, ...]:
    """Returns the next point of a search that is refolded from its history.

    The history is told to a fresh CMA-ES in generations, oldest first; points that fill no
    generation are the oldest and are left out.  The evolution thus adapts its step and its axes to
    whatever asynchronous order the trials ended in, and no state has to be kept or locked.
    """
    from cmaes import CMA  # seconds where SciPy is installed, and most commands never tune

    evolution = CMA(mean=np.zeros(request.dimensions), sigma=_SIGMA, seed=request.seed)
    size = evolution.population_size
    told = request.history[len(request.history) % size :]
    for first in range(0, len(told), size):
        mean = evolution.mean
        evolution.tell(
            [
                (mean + np.clip(tried.vector - mean, -_FARTHEST, _FARTHEST), -tried.fitness)
                for tried in told[first : first + size]
            ]
        )
    point = evolution.ask()
    if not np.all(np.abs(point) <= _FARTHEST * 10):  # also where it is not a number
        point = CMA(mean=np.zeros(request.dimensions), sigma=_SIGMA, seed=request.seed).ask()
    return tuple(float(value) for value in point)
