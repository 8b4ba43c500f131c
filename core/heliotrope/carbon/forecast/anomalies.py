"""Linear regression of what deviates from the usual day.

How far the coming hours will be from what is usual follows from how far the last ones were (`inputs`): one regression
per hour ahead, 8 coefficients each, little shrunk, in which large errors count by their size and not its square.

Why not boosted trees: LightGBM on the same inputs errs more on most zones and takes many times as long, because four
months of one zone are few and hours of one day are nearly one observation (docs/forecast.md has both).
"""

from dataclasses import dataclass

import numpy as np

from heliotrope.carbon.forecast.hours import FloatMatrix, FloatVector, Hours, IntVector
from heliotrope.carbon.forecast.inputs import INPUTS, Inputs
from heliotrope.carbon.forecast.method import DAY, HORIZON_HOURS, Fitted

MIN_ROWS = 10 * DAY
"""Fewer examples of an hour ahead teach nothing."""
RIDGE = 0.03
"""Shrinks coefficients of scaled inputs, relative to the number of examples."""
_PASSES = 4
_SMALL_ERRORS = 0.5
"""Of the median error: below it errors count by their square."""


@dataclass(frozen=True, slots=True)
class Anomalies:
    """The method."""

    name: str = "anomalies"

    def fit(self, hours: Hours) -> Fitted | None:
        """Coefficients of all hours ahead; None if one of them has too few examples."""
        inputs = Inputs.of(hours)
        known = np.flatnonzero(np.isfinite(hours.values))
        coefficients = np.zeros((HORIZON_HOURS, INPUTS))
        for ahead in range(1, HORIZON_HOURS + 1):
            origins = known[known < len(hours.values) - ahead]
            usual, columns = inputs.towards(origins, ahead)
            target = hours.values[origins + ahead] - usual
            whole = np.isfinite(target) & np.isfinite(columns).all(axis=1)
            if whole.sum() < MIN_ROWS:
                return None
            coefficients[ahead - 1] = _regression(columns[whole], target[whole])
        return _FittedAnomalies(coefficients)


@dataclass(frozen=True, slots=True)
class _FittedAnomalies:
    coefficients: FloatMatrix
    """(hours ahead, inputs)."""

    def predict(self, hours: Hours, origins: IntVector) -> FloatMatrix:
        inputs = Inputs.of(hours)
        predicted = np.empty((len(origins), HORIZON_HOURS))
        for ahead in range(1, HORIZON_HOURS + 1):
            usual, columns = inputs.towards(origins, ahead)
            # An unknown deviation is taken for none; where even the usual value is unknown, so is the forecast.
            predicted[:, ahead - 1] = usual + np.nan_to_num(columns, nan=0.0) @ self.coefficients[ahead - 1]
        return np.maximum(predicted, 0.0)


def _regression(columns: FloatMatrix, target: FloatVector) -> FloatVector:
    """Coefficients without an intercept, for no deviation foretells none.

    Huber's loss by reweighted least squares: grids have days that no day before foretold, which would rule a square.
    """
    size = np.sqrt((columns**2).mean(axis=0))
    size[size == 0.0] = 1.0
    scaled = columns / size
    weights = np.ones(len(target))
    solved = np.zeros(scaled.shape[1])
    for _ in range(_PASSES):
        weighted = scaled * weights[:, None]
        gram = weighted.T @ scaled + RIDGE * weights.sum() * np.eye(scaled.shape[1])
        solved = np.linalg.solve(gram, weighted.T @ target)
        errors = np.abs(target - scaled @ solved)
        small = _SMALL_ERRORS * float(np.median(errors))
        if small == 0.0:
            break
        weights = small / np.maximum(errors, small)
    coefficients: FloatVector = solved / size
    return coefficients
