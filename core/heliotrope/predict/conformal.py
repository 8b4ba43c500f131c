"""What a model's residuals on held-out data add to its predictions: mean, typical value, 0.9 quantile and spread.

Split-conformal prediction (Vovk et al. 2005; per group "Mondrian"): of n residuals that the model never saw, the
⌈0.9 (n + 1)⌉-th smallest bounds the next one with probability at least 0.9, whatever the model and the distribution.
One table per target takes the place of a second model per quantile.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heliotrope.predict.features import FloatColumn
from heliotrope.predict.regimes import Regime

QUANTILE = 0.9
MIN_GROUP = 80
"""Residuals below which a regime uses those of all regimes together: the 0.9 quantile of fewer is a guess."""
OUTLIERS = 0.01
"""Share at each end that does not move the mean."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Logarithms, one per `Regime`: added to the logarithm that the trees predict."""

    mean: tuple[float, ...]
    typical: tuple[float, ...]
    q90: tuple[float, ...]
    spread: tuple[float, ...]
    """One standard deviation, so about one standard deviation over the estimate."""
    residuals: tuple[int, ...]
    """How many each regime had."""


def calibrate(residuals: FloatColumn, regimes: NDArray[np.int64], weights: FloatColumn | None = None) -> Calibration:
    """From log(observed / predicted) of held-out samples; there must be at least one.

    Args:
        residuals: of each sample.
        regimes: `Regime` of each.
        weights: what each counts for, where the past counts less; None: all the same.
    """
    weights = np.ones(len(residuals)) if weights is None else weights
    mean, typical, q90, spread, counts = [], [], [], [], []
    for regime in Regime:
        there = regimes == regime
        counts.append(int(there.sum()))
        if counts[-1] < MIN_GROUP:
            there = np.ones(len(residuals), dtype=np.bool_)
        group, weight = residuals[there], weights[there]
        mean.append(_log_mean(group, weight))
        typical.append(_typical(group, weight))
        q90.append(conformal_quantile(group, weight))
        spread.append(_spread(group, weight))
    return Calibration(tuple(mean), tuple(typical), tuple(q90), tuple(spread), tuple(counts))


def conformal_quantile(residuals: FloatColumn, weights: FloatColumn, quantile: float = QUANTILE) -> float:
    """The smallest bound that holds for the next residual with at least this probability; the largest if n is small.

    The next one counts as much as the heaviest of those that were seen; with equal weights this is the rank above.
    """
    order = np.argsort(residuals, kind="stable")
    below = np.cumsum(weights[order])
    bound = quantile * (below[-1] + weights.max())
    # Sums of weights such as 1.0 are exact; the margin is for those that are not.
    index = min(int(np.searchsorted(below, bound * (1.0 - 1e-12))), len(residuals) - 1)
    return float(residuals[order[index]])


def _typical(residuals: FloatColumn, weights: FloatColumn) -> float:
    """The factor whose expected |predicted - observed| / observed is least: the median with weights 1 / observed.

    Gneiting 2011, Making and Evaluating Point Forecasts, theorem 2.7 and section 3.2.
    """
    order = np.argsort(residuals, kind="stable")
    below = np.cumsum(weights[order] * np.exp(residuals[order].min() - residuals[order]))
    return float(residuals[order][int(np.searchsorted(below, 0.5 * below[-1]))])


def _log_mean(residuals: FloatColumn, weights: FloatColumn) -> float:
    """Trees fit logarithms, so their exponential is below the mean (Duan's smearing estimate corrects it)."""
    return float(np.log(np.average(np.exp(_trimmed(residuals)), weights=weights)))


def _spread(residuals: FloatColumn, weights: FloatColumn) -> float:
    trimmed = _trimmed(residuals)
    center = np.average(trimmed, weights=weights)
    return float(np.sqrt(np.average((trimmed - center) ** 2, weights=weights)))


def _trimmed(residuals: FloatColumn) -> FloatColumn:
    low, high = np.quantile(residuals, (OUTLIERS, 1.0 - OUTLIERS))
    return np.clip(residuals, low, high)
