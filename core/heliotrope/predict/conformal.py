"""What a model's residuals on held-out data add to its predictions: mean, 0.9 quantile and spread, by regime.

Split-conformal prediction (Vovk et al. 2005; per group "Mondrian"): of n residuals that the model never saw, the
⌈0.9 (n + 1)⌉-th smallest bounds the next one with probability at least 0.9, whatever the model and the distribution.
One table per target takes the place of a second model per quantile.
"""

import math
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
    q90: tuple[float, ...]
    spread: tuple[float, ...]
    """One standard deviation, so about one standard deviation over the estimate."""
    residuals: tuple[int, ...]
    """How many each regime had."""


def calibrate(residuals: FloatColumn, regimes: NDArray[np.int64]) -> Calibration:
    """From log(observed / predicted) of held-out samples; there must be at least one."""
    groups = [residuals[regimes == regime] for regime in Regime]
    used = [group if len(group) >= MIN_GROUP else residuals for group in groups]
    return Calibration(
        mean=tuple(_log_mean(group) for group in used),
        q90=tuple(conformal_quantile(group) for group in used),
        spread=tuple(float(np.std(_trimmed(group))) for group in used),
        residuals=tuple(len(group) for group in groups),
    )


def conformal_quantile(residuals: FloatColumn, quantile: float = QUANTILE) -> float:
    """The smallest bound that holds for the next residual with at least this probability; the largest if n is small."""
    rank = min(math.ceil(quantile * (len(residuals) + 1)), len(residuals))
    return float(np.partition(residuals, rank - 1)[rank - 1])


def _log_mean(residuals: FloatColumn) -> float:
    """Trees fit logarithms, so their exponential is below the mean (Duan's smearing estimate corrects it)."""
    return float(np.log(np.mean(np.exp(_trimmed(residuals)))))


def _trimmed(residuals: FloatColumn) -> FloatColumn:
    low, high = np.quantile(residuals, (OUTLIERS, 1.0 - OUTLIERS))
    return np.clip(residuals, low, high)
