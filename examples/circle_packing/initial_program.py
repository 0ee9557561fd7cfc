"""Twenty-six circles in the unit square, with radii whose sum is as large as can be."""

import numpy as np


# EVOLVE-BLOCK-START
def construct_packing():
    """Returns the circles as an array of shape (26, 3): x, y and radius of each."""
    rows = [6, 5, 4, 5, 6]
    heights = [0.1, 0.3, 0.5, 0.7, 0.9]
    centers = []
    for count, height in zip(rows, heights, strict=True):
        for place in range(count):
            centers.append(((place + 0.5) / count, height))
    centers = np.array(centers)
    return np.column_stack([centers, radii(centers)])


def radii(centers):
    """Returns radii that make no two circles overlap: each grows until it touches something."""
    distances = np.hypot(*(centers[:, None] - centers[None]).transpose(2, 0, 1))
    np.fill_diagonal(distances, np.inf)
    walls = np.minimum(centers, 1.0 - centers).min(axis=1)
    grown = np.minimum(walls, distances.min(axis=1) / 2.0)
    for one in np.argsort(grown):
        grown[one] = min(walls[one], (distances[one] - grown).min())
    return grown * (1.0 - 1e-12)  # rounding must not make touching circles overlap


# EVOLVE-BLOCK-END
