"""How far truth strays from a forecast, by hours ahead, from errors on what the method had not seen."""

from dataclasses import dataclass

import numpy as np

from heliotrope.carbon.forecast.hours import HIGHEST_G_PER_KWH, FloatMatrix, FloatVector
from heliotrope.carbon.forecast.method import HORIZON_HOURS
from heliotrope.carbon.forecast.value import LOWER_QUANTILE, UPPER_QUANTILE

MIN_SAMPLES = 30
"""Fewer errors of an hour ahead and its neighbours have no tails to speak of."""
_NEIGHBOURS = 0.1
"""Errors of hours ahead within this share count together: quantiles should not jump from hour to hour."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Quantiles of truth less forecast, (HORIZON_HOURS,), g/kWh: low ≤ 0 ≤ high, NaN with too few errors."""

    low: FloatVector
    high: FloatVector

    @classmethod
    def of(cls, residuals: FloatMatrix) -> "Spread":
        """From errors, (forecasts, HORIZON_HOURS), NaN where unknown.

        The quantiles are those of split conformal prediction: at their ranks a new error, exchangeable with the old
        ones, is outside with at most the stated probability.
        """
        low, high = np.full(HORIZON_HOURS, np.nan), np.full(HORIZON_HOURS, np.nan)
        for i in range(HORIZON_HOURS):
            reach = int(_NEIGHBOURS * (i + 1))
            near = residuals[:, max(i - reach, 0) : i + reach + 1]
            near = near[np.isfinite(near)]
            if len(near) < MIN_SAMPLES:
                continue
            more = (len(near) + 1) / len(near)
            low[i] = min(float(np.quantile(near, max(1.0 - (1.0 - LOWER_QUANTILE) * more, 0.0), method="lower")), 0.0)
            high[i] = max(float(np.quantile(near, min(UPPER_QUANTILE * more, 1.0), method="higher")), 0.0)
        return cls(low, high)

    @property
    def known(self) -> bool:
        """Whether it is known for every hour ahead."""
        return bool(np.isfinite(self.low).all() and np.isfinite(self.high).all())

    def around(self, expected: FloatVector) -> tuple[FloatVector, FloatVector]:
        """Bounds of what is expected 1, 2, … hours ahead, within what a grid can have."""
        return np.maximum(expected + self.low, 0.0), np.minimum(expected + self.high, HIGHEST_G_PER_KWH)


NO_SPREAD = Spread(np.full(HORIZON_HOURS, np.nan), np.full(HORIZON_HOURS, np.nan))
"""Nobody knows how uncertain it is."""
