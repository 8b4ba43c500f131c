"""A carbon-intensity series: values that each hold from their time until the next one."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from math import inf, isfinite

from heliotrope.errors import InvalidInputError


def unix_seconds(text: str) -> float:
    """Unix seconds of an RFC 3339 time; a time without offset is UTC.

    Raises:
        InvalidInputError: if the text is not such a time.
    """
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise InvalidInputError("time", f"{text!r} is not an RFC 3339 time such as 2022-03-01T00:00:00Z") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.timestamp()


@dataclass(frozen=True, slots=True)
class Point:
    """One value of a series."""

    time_unix_s: float
    intensity_g_per_kwh: float
    estimated: bool | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """Points in strictly rising time; each holds until the next, the last for `last_holds_s`."""

    times_unix_s: tuple[float, ...]
    values_g_per_kwh: tuple[float, ...]
    estimated: tuple[bool | None, ...]
    last_holds_s: float
    longest_hold_s: float = inf
    """Beyond it a gap is a gap: the series covers nothing there."""

    @classmethod
    def from_points(cls, points: Sequence[Point], last_holds_s: float = 3600.0) -> "Series":
        """Sort and check points.

        Raises:
            InvalidInputError: if a value is negative or not finite, or two points share a time.
        """
        ordered = sorted(points, key=lambda p: p.time_unix_s)
        for before, after in pairwise(ordered):
            if before.time_unix_s == after.time_unix_s:
                raise InvalidInputError("series", f"two values for the time {after.time_unix_s:.0f}")
        for point in ordered:
            if not isfinite(point.intensity_g_per_kwh) or point.intensity_g_per_kwh < 0:
                raise InvalidInputError(
                    "series", f"intensity {point.intensity_g_per_kwh} g/kWh at {point.time_unix_s:.0f} is not a value"
                )
        return cls(
            times_unix_s=tuple(p.time_unix_s for p in ordered),
            values_g_per_kwh=tuple(p.intensity_g_per_kwh for p in ordered),
            estimated=tuple(p.estimated for p in ordered),
            last_holds_s=last_holds_s,
        )

    def at(self, time_unix_s: float) -> Point | None:
        """The point that holds at a time, or None before the first and after the last has run out."""
        index = bisect_right(self.times_unix_s, time_unix_s) - 1
        if index < 0 or time_unix_s >= self._end_of(index):
            return None
        return Point(self.times_unix_s[index], self.values_g_per_kwh[index], self.estimated[index])

    def average(self, start_unix_s: float, end_unix_s: float) -> float | None:
        """Time-weighted mean over [start, end) in g/kWh, or None if the series does not cover all of it."""
        if end_unix_s <= start_unix_s:
            point = self.at(start_unix_s)
            return None if point is None else point.intensity_g_per_kwh
        index = bisect_right(self.times_unix_s, start_unix_s) - 1
        if index < 0:
            return None
        if self.times_unix_s[index] <= start_unix_s and end_unix_s <= self._end_of(index):
            return self.values_g_per_kwh[index]
        weighted, time = 0.0, start_unix_s
        while time < end_unix_s:
            if index >= len(self.times_unix_s) or not self.times_unix_s[index] <= time < self._end_of(index):
                return None
            until = min(end_unix_s, self._end_of(index))
            weighted += self.values_g_per_kwh[index] * (until - time)
            time, index = until, index + 1
        return weighted / (end_unix_s - start_unix_s)

    def _end_of(self, index: int) -> float:
        if index + 1 < len(self.times_unix_s):
            return min(self.times_unix_s[index + 1], self.times_unix_s[index] + self.longest_hold_s)
        return self.times_unix_s[index] + self.last_holds_s


@dataclass(frozen=True, slots=True)
class Replay:
    """Plays a recorded series as if now: `wall_start` shows `series_start`, from there time runs `speed` × as fast."""

    series_start_unix_s: float
    wall_start_unix_s: float
    speed: float

    def series_time(self, wall_unix_s: float) -> float:
        """The recorded time that is shown at a wall time."""
        return self.series_start_unix_s + (wall_unix_s - self.wall_start_unix_s) * self.speed

    def wall_time(self, series_unix_s: float) -> float:
        """The wall time at which a recorded time is shown."""
        return self.wall_start_unix_s + (series_unix_s - self.series_start_unix_s) / self.speed

    def applied_to(self, series: Series) -> Series:
        """The series with its times moved onto the wall clock."""
        return Series(
            times_unix_s=tuple(self.wall_time(t) for t in series.times_unix_s),
            values_g_per_kwh=series.values_g_per_kwh,
            estimated=series.estimated,
            last_holds_s=series.last_holds_s / self.speed,
            longest_hold_s=series.longest_hold_s / self.speed,
        )
