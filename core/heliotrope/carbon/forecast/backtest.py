"""How a method would have done: trained on what came before, asked from many hours, compared with what came true."""

from dataclasses import dataclass

import numpy as np

from heliotrope.carbon.forecast.hours import FloatMatrix, Hours, IntVector
from heliotrope.carbon.forecast.method import DAY, HORIZON_HOURS, WEEK, Method

MIN_TRAINING_HOURS = 4 * WEEK
"""What a method sees at least before it is judged."""
FOLD_HOURS = WEEK
MAX_FOLDS = 8
ORIGIN_EVERY_HOURS = 3
"""Forecasts of neighbouring hours err alike; more of them would tell little."""
MIN_HELD_OUT_HOURS = 4 * DAY


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Forecasts beside what came true; rows are origins in the order of time."""

    origins: IntVector
    """Hours of Unix time; the first forecast hour is the next one."""
    predicted: FloatMatrix
    """(origins, HORIZON_HOURS), g/kWh; NaN where the method could not tell."""
    actual: FloatMatrix
    """NaN where it is unknown."""

    @property
    def residuals(self) -> FloatMatrix:
        """What came true less what was forecast."""
        return self.actual - self.predicted


def backtest(method: Method, hours: Hours) -> HeldOut | None:
    """Errors of a method on the newest weeks, each of which it had not seen when it learned.

    Every fold of a week is forecast by a model of all that came before it. Forecasts whose end is not known yet count
    as far as it is.

    Returns:
        None with too little history.
    """
    folds = _folds(len(hours.values))
    parts: list[HeldOut] = []
    for start, end in folds:
        fitted = method.fit(Hours(hours.first, hours.values[:start]))
        if fitted is None:
            continue
        # The fold's first origin is the newest hour that was learned from.
        origins = np.arange(start - 1, end - 1, ORIGIN_EVERY_HOURS)
        origins = origins[np.isfinite(hours.values[origins])]
        if len(origins):
            seen = Hours(hours.first, hours.values[:end])
            parts.append(HeldOut(origins + hours.first, fitted.predict(seen, origins), _actual(hours, origins)))
    if not parts:
        return None
    return HeldOut(
        np.concatenate([part.origins for part in parts]),
        np.concatenate([part.predicted for part in parts]),
        np.concatenate([part.actual for part in parts]),
    )


def mean_absolute_errors(first: HeldOut, second: HeldOut) -> tuple[float, float]:
    """Errors of two methods over exactly what both could forecast from the same origins; NaN if there is nothing.

    Each hour ahead counts the same.
    """
    _, here, there = np.intersect1d(first.origins, second.origins, return_indices=True)
    a, b = np.abs(first.residuals[here]), np.abs(second.residuals[there])
    both = np.isfinite(a) & np.isfinite(b)
    counts = both.sum(axis=0)
    if not counts.all() or not len(counts):
        return float("nan"), float("nan")
    means = [np.where(both, each, 0.0).sum(axis=0) / counts for each in (a, b)]
    return float(means[0].mean()), float(means[1].mean())


def _folds(length: int) -> list[tuple[int, int]]:
    """Starts and ends, the last one ends with the history; the first may be shorter."""
    first = max(MIN_TRAINING_HOURS, length - MAX_FOLDS * FOLD_HOURS)
    if length - first < MIN_HELD_OUT_HOURS:
        return []
    ends = list(range(length, first, -FOLD_HOURS))
    return [(max(end - FOLD_HOURS, first), end) for end in reversed(ends)]


def _actual(hours: Hours, origins: IntVector) -> FloatMatrix:
    positions = origins[:, None] + np.arange(1, HORIZON_HOURS + 1)
    inside = positions < len(hours.values)
    return np.where(inside, hours.values[np.minimum(positions, len(hours.values) - 1)], np.nan)
