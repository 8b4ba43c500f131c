"""Intensity by hour of Unix time, from which forecasts are learned; without time zones no clock ever changes."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import isfinite
from typing import Self

import numpy as np
from numpy.typing import NDArray

from heliotrope.carbon.series import Point, Series
from heliotrope.units import SECONDS_PER_HOUR

FloatVector = NDArray[np.float64]
FloatMatrix = NDArray[np.float64]
IntVector = NDArray[np.int64]

MAX_HOURS = 120 * 24
"""What is remembered of a region. Twice as much lowers errors by 1 %."""
HIGHEST_G_PER_KWH = 10_000.0
"""As in the resources: above it a value is in another unit."""
_OPEN_HOURS = 6
"""The newest hours, whose single values are kept so that more of them can come."""


def hour_of(time_unix_s: float) -> int:
    """The hour of Unix time that a time is in."""
    return int(time_unix_s // SECONDS_PER_HOUR)


@dataclass(frozen=True, slots=True)
class Hours:
    """Mean intensity of consecutive hours, g/kWh; NaN where it is unknown."""

    first: int
    """Hour of Unix time of `values[0]`."""
    values: FloatVector

    @classmethod
    def of_points(cls, points: Iterable[Point], *, at_most: int = MAX_HOURS) -> Self:
        """The newest hours of some points: the mean of the values that begin within each hour.

        Values that no grid can have are left out: unknown.
        """
        sums: dict[int, list[float]] = {}
        for point in points:
            if _plausible(point):
                sums.setdefault(hour_of(point.time_unix_s), []).append(point.intensity_g_per_kwh)
        if not sums:
            return cls(0, np.empty(0))
        last = max(sums)
        first = min(hour for hour in sums if hour > last - at_most)
        values = np.full(last - first + 1, np.nan)
        for hour, found in sums.items():
            if hour >= first:
                values[hour - first] = sum(found) / len(found)
        return cls(first, values)

    @property
    def end(self) -> int:
        """The hour after the last one."""
        return self.first + len(self.values)

    @property
    def known(self) -> int:
        """How many hours have a value."""
        return int(np.isfinite(self.values).sum())

    @property
    def newest(self) -> int | None:
        """The last hour with a value."""
        found = np.flatnonzero(np.isfinite(self.values))
        return self.first + int(found[-1]) if len(found) else None

    def at(self, hour: int) -> float | None:
        """The value of an hour, None where it is unknown."""
        if not self.first <= hour < self.end:
            return None
        value = float(self.values[hour - self.first])
        return value if isfinite(value) else None

    def before(self, end: int) -> "Hours":
        """What was known before an hour."""
        return Hours(self.first, self.values[: max(end - self.first, 0)])


@dataclass(slots=True, eq=False)
class History:
    """Readings of one region as they come, by hour, the newest `MAX_HOURS`.

    A value for a time that is known already revises it. Owned by one thread.
    """

    _closed: dict[int, float] = field(default_factory=dict)
    _open: dict[int, dict[float, float]] = field(default_factory=dict)

    def add(self, points: Iterable[Point], now_unix_s: float) -> None:
        """Take in values; those of times to come and those that no grid can have are left out."""
        fresh: dict[int, dict[float, float]] = {}
        for point in points:
            if _plausible(point) and point.time_unix_s <= now_unix_s:
                fresh.setdefault(hour_of(point.time_unix_s), {})[point.time_unix_s] = point.intensity_g_per_kwh
        if not fresh:
            return
        newest = max([*fresh, *self._open])
        for hour, values in fresh.items():
            if hour > newest - _OPEN_HOURS:
                self._open.setdefault(hour, {}).update(values)
            else:
                self._closed[hour] = _mean(values)
        for hour in [hour for hour in self._open if hour <= newest - _OPEN_HOURS]:
            self._closed[hour] = _mean(self._open.pop(hour))
        for hour in [hour for hour in self._closed if hour <= newest - MAX_HOURS]:
            del self._closed[hour]

    def add_series(self, series: Series, now_unix_s: float) -> None:
        """Take in a series."""
        values = zip(series.times_unix_s, series.values_g_per_kwh, strict=True)
        self.add((Point(time, value) for time, value in values), now_unix_s)

    def hours(self) -> Hours:
        """What is known, as a copy of its own."""
        known = self._closed | {hour: _mean(values) for hour, values in self._open.items()}
        if not known:
            return Hours(0, np.empty(0))
        first = min(known)
        values = np.full(max(known) - first + 1, np.nan)
        for hour, value in known.items():
            values[hour - first] = value
        return Hours(first, values)


def _plausible(point: Point) -> bool:
    return 0.0 <= point.intensity_g_per_kwh <= HIGHEST_G_PER_KWH and isfinite(point.time_unix_s)


def _mean(values: dict[float, float]) -> float:
    return sum(values.values()) / len(values)
