"""Errors and coverage with bootstrap intervals over whole groups, as requests of one run are not independent."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heliotrope.unknown import finite_or_none

Floats = NDArray[np.float64]

RESAMPLES = 500
LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Score:
    """A mean over samples with its 95 % interval; NaN without samples."""

    value: float
    low: float
    high: float
    n: int

    def to_json(self) -> dict[str, float | int | None]:
        """Plain numbers; None where unknown."""
        return {
            "value": finite_or_none(self.value),
            "low": finite_or_none(self.low),
            "high": finite_or_none(self.high),
            "n": self.n,
        }


NO_SCORE = Score(float("nan"), float("nan"), float("nan"), 0)


def mape(true: Floats, predicted: Floats, groups: NDArray[np.int64], seed: int) -> Score:
    """Mean absolute relative error where both are known and the truth is positive (0.05 = 5 %)."""
    known = np.isfinite(true) & np.isfinite(predicted) & (true > 0.0)
    return mean_score(np.abs(predicted[known] / true[known] - 1.0), groups[known], seed)


def coverage(true: Floats, quantile: Floats, groups: NDArray[np.int64], seed: int) -> Score:
    """Share of truths at or below a predicted quantile."""
    known = np.isfinite(true) & np.isfinite(quantile)
    return mean_score((true[known] <= quantile[known]).astype(np.float64), groups[known], seed)


def mean_score(values: Floats, groups: NDArray[np.int64], seed: int) -> Score:
    """The mean of values, with an interval from resampling whole groups with replacement."""
    if not len(values):
        return NO_SCORE
    _, index = np.unique(groups, return_inverse=True)
    sums, counts = np.bincount(index, weights=values), np.bincount(index).astype(np.float64)
    low, high = interval(lambda rows: float(sums[rows].sum() / counts[rows].sum()), len(sums), seed)
    return Score(float(values.mean()), low, high, len(values))


def interval(statistic: Callable[[NDArray[np.intp]], float], n: int, seed: int) -> tuple[float, float]:
    """Percentile interval of a statistic of rows drawn with replacement from n; NaN where there is one row alone."""
    if n < 2:
        return float("nan"), float("nan")
    rng = np.random.default_rng([seed, n])
    drawn = np.array([statistic(rng.integers(n, size=n)) for _ in range(RESAMPLES)])
    low, high = np.quantile(drawn, [(1.0 - LEVEL) / 2.0, (1.0 + LEVEL) / 2.0])
    return float(low), float(high)
