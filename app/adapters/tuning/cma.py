"""CMA-ES behind `tune`, from the library `cmaes`."""

from app.domain.operators.tune import PointRequest

_SIGMA = 0.5
"""First step; one unit is 0.3 of a number's size."""
_FARTHEST = 20.0
"""Bound of a point's distance, so that far points of other programs do not inflate the step."""


def ask(request: PointRequest) -> tuple[float, ...]:
    """Returns the next point of a search whose state is computed from its history.

    A new CMA-ES begins at the centre of the oldest generation of the history and receives the
    history in generations, oldest first; the oldest points are left out where they fill no
    generation.  The evolution thus adapts its step and its axes to the asynchronous order of the
    trials, and no state has to be kept or locked.
    """
    # Seconds where SciPy is installed; most commands and workers never tune.
    import numpy as np
    from cmaes import CMA

    origin = np.zeros(request.dimensions)
    evolution = CMA(mean=origin, sigma=_SIGMA, seed=request.seed)
    size = evolution.population_size
    history = request.history[len(request.history) % size :]
    if history:
        oldest = np.clip([tried.numbers for tried in history[:size]], -_FARTHEST, _FARTHEST)
        evolution = CMA(mean=oldest.mean(axis=0), sigma=_SIGMA, seed=request.seed)
    for first in range(0, len(history), size):
        mean = evolution.mean
        evolution.tell(
            [
                (mean + np.clip(tried.numbers - mean, -_FARTHEST, _FARTHEST), -tried.fitness)
                for tried in history[first : first + size]
            ]
        )
    point = evolution.ask()
    # A coordinate that is NaN also fails this comparison.
    if not np.all(np.abs(point) <= _FARTHEST * 10):
        point = CMA(mean=origin, sigma=_SIGMA, seed=request.seed).ask()
    return tuple(float(value) for value in point)
