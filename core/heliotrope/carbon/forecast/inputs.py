"""What the coming hours are foretold from: how far the last ones were from what is usual at their time of day.

What is usual at an hour of the day is its mean over two weeks. Deviations are those of now, of six hours, of a day, of
the same hour and of a week before, of the last week against the last two, and whether it is a weekend.
"""

from dataclasses import dataclass

import numpy as np

from heliotrope.carbon.forecast.hours import FloatMatrix, FloatVector, Hours, IntVector
from heliotrope.carbon.forecast.method import DAY, WEEK, same_hour_lag

PROFILE_DAYS = 14
SHORT_PROFILE_DAYS = 7
MIN_PROFILE_DAYS = 4
"""An hour of the day with fewer known days has no usual value."""
BRIDGED_HOURS = 3
"""Gaps up to this long are bridged by a straight line where inputs are made; nothing is ever compared with that."""
INPUTS = 8
_EPOCH_WEEKDAY = 3
"""1970-01-01 was a Thursday; Monday is 0."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """Columns by hour, from which those of any origin and hour ahead are picked."""

    first: int
    values: FloatVector
    usual: FloatVector
    """Of an hour's time of day, over the days up to this one."""
    usual_lately: FloatVector
    surprise: FloatVector
    """Of an hour against what was usual the day before."""
    surprise_6h: FloatVector
    above_usual_24h: FloatVector

    @classmethod
    def of(cls, hours: Hours) -> "Inputs":
        """The columns of some hours; each is made of that hour and those before it."""
        values = _bridged(hours.values)
        usual = _daily_mean(values, PROFILE_DAYS, MIN_PROFILE_DAYS)
        surprise = values - _lagged(usual, DAY)
        return cls(
            first=hours.first,
            values=values,
            usual=usual,
            usual_lately=_daily_mean(values, SHORT_PROFILE_DAYS, MIN_PROFILE_DAYS),
            surprise=surprise,
            surprise_6h=_rolling_mean(surprise, 6),
            above_usual_24h=_rolling_mean(values - usual, DAY),
        )

    def towards(self, origins: IntVector, ahead: int) -> tuple[FloatVector, FloatMatrix]:
        """What is usual at the targets, (origins,), and how the inputs deviate, (origins, INPUTS)."""
        target = origins + ahead
        day = target - same_hour_lag(ahead)
        week = target - -(-ahead // WEEK) * WEEK
        usual = _at(self.usual, day)
        weekday, here = self._weekday(target), self._weekday(origins)
        columns = np.stack(
            [
                _at(self.surprise, origins),
                _at(self.surprise_6h, origins),
                _at(self.above_usual_24h, origins),
                _at(self.values, day) - usual,
                _at(self.usual_lately, day) - usual,
                _at(self.values, week) - usual,
                (weekday == 5).astype(np.float64) - (here == 5),
                (weekday == 6).astype(np.float64) - (here == 6),
            ],
            axis=1,
        )
        return usual, columns

    def _weekday(self, positions: IntVector) -> IntVector:
        return ((self.first + positions) // DAY + _EPOCH_WEEKDAY) % 7


def _at(column: FloatVector, positions: IntVector) -> FloatVector:
    """Values at positions, NaN before the first."""
    return np.where(positions >= 0, column[np.maximum(positions, 0)], np.nan)


def _lagged(column: FloatVector, lag: int) -> FloatVector:
    shifted = np.full(len(column), np.nan)
    shifted[lag:] = column[: max(len(column) - lag, 0)]
    return shifted


def _daily_mean(values: FloatVector, days: int, at_least: int) -> FloatVector:
    """Mean of an hour and the same hours of the days before, NaN with too few known ones."""
    total, count = np.zeros(len(values)), np.zeros(len(values))
    for day in range(days):
        past = _lagged(values, day * DAY) if day else values
        known = np.isfinite(past)
        total[known] += past[known]
        count += known
    mean: FloatVector = np.full(len(values), np.nan)
    np.divide(total, count, out=mean, where=count >= at_least)
    return mean


def _rolling_mean(values: FloatVector, length: int) -> FloatVector:
    """Mean of each hour and those before it, of what is known of them; NaN with less than half."""
    known = np.isfinite(values)
    total = np.concatenate([[0.0], np.cumsum(np.where(known, values, 0.0))])
    count = np.concatenate([[0.0], np.cumsum(known)])
    start = np.maximum(np.arange(len(values)) + 1 - length, 0)
    end = np.arange(len(values)) + 1
    some = count[end] - count[start]
    mean: FloatVector = np.full(len(values), np.nan)
    np.divide(total[end] - total[start], some, out=mean, where=some >= length / 2.0)
    return mean


def _bridged(values: FloatVector) -> FloatVector:
    """Short gaps between known hours filled by a straight line."""
    known = np.flatnonzero(np.isfinite(values))
    if len(known) < 2:
        return values
    filled = values.copy()
    steps = np.diff(known)
    for i in np.flatnonzero((steps > 1) & (steps <= BRIDGED_HOURS + 1)):
        start, end = known[i], known[i + 1]
        filled[start : end + 1] = np.linspace(values[start], values[end], end - start + 1)
    return filled
