"""Loops of `heliotrope.decide.choose`. Import it where it is first needed: see `heliotrope.compiled`."""

import numpy as np
from numpy.typing import NDArray

from heliotrope.compiled import compiled
from heliotrope.decide.losses import LossCodes

Row = NDArray[np.float64]
Rows = NDArray[np.intp]


@compiled
def first_rows(codes: Rows, eligible: NDArray[np.bool_], rows: Rows) -> None:
    """Write the first eligible row of each code, -1 where there is none; that of code -1 comes last."""
    rows[:] = -1
    for i in range(len(codes)):
        code = codes[i] if codes[i] >= 0 else len(rows) - 1
        if eligible[i] and rows[code] < 0:
            rows[code] = i


@compiled
def take_known(column: Row, rows: Rows, taken: Row) -> bool:
    """Write the values of some rows; whether all of them are known and finite."""
    known = True
    for i in range(len(rows)):
        taken[i] = column[rows[i]]
        known = known and np.isfinite(taken[i])
    return known


@compiled
def keep_near(column: Row, tolerance: float, absolute: bool, code: int, left: Rows, codes: LossCodes) -> int:
    """Keep the positions whose value is within the tolerance of the least one, in front of `left`.

    Args:
        column: finite, by position.
        tolerance: a share of the least value, or an amount.
        absolute: whether it is an amount.
        code: written to the others.
        left: positions, at least one; changed.
        codes: by position, changed.

    Returns:
        How many are kept.
    """
    best = column[left[0]]
    for position in left:
        best = min(best, column[position])
    limit = best + tolerance if absolute else best + abs(best) * tolerance
    kept = 0
    for k in range(len(left)):
        position = left[k]
        if column[position] <= limit:
            left[kept] = position
            kept += 1
        else:
            codes[position] = code
    return kept


@compiled
def is_least(column: Row, position: int) -> bool:
    """Whether no value is below the one at this position; all are finite."""
    own, least = column[position], True
    for value in column:
        least = least and not value < own
    return least
