"""Least squares without negative coefficients: seconds and joules that something costs."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_TOLERANCE = 1e-10
_ROUNDS_PER_COLUMN = 10


def nonnegative(matrix: Array, target: Array) -> Array:
    """The x ≥ 0 that minimises |matrix·x - target|² (Lawson and Hanson, 1974, chapter 23: active set).

    Args:
        matrix: (rows, columns), of full column rank.
        target: (rows,).

    Returns:
        (columns,).
    """
    columns = matrix.shape[1]
    x = np.zeros(columns)
    free = np.zeros(columns, dtype=bool)
    scale = _TOLERANCE * max(1.0, float(np.abs(matrix.T @ target).max(initial=0.0)))
    # Each round ends with a smaller residual, so rounds end; the bound is for a last bit that flips to and fro.
    for _ in range(_ROUNDS_PER_COLUMN * columns):
        if free.all():
            break
        gradient = np.where(free, -np.inf, matrix.T @ (target - matrix @ x))
        candidate = int(np.argmax(gradient))
        if gradient[candidate] <= scale:
            break
        free[candidate] = True
        while True:
            trial = np.zeros(columns)
            trial[free] = np.linalg.lstsq(matrix[:, free], target, rcond=None)[0]
            if (trial[free] > 0).all():
                break
            blocking = free & (trial <= 0)
            step = float((x[blocking] / (x[blocking] - trial[blocking])).min())
            x = x + step * (trial - x)
            free &= x > _TOLERANCE * max(1.0, float(np.abs(x).max()))
            x[~free] = 0.0
        x = trial
    return x
