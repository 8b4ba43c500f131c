"""A forecast of a grid's carbon intensity as plans ask for it: what to expect over a time, and how surely."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from heliotrope.carbon.series import Point, Series
from heliotrope.errors import InvalidInputError

LOWER_QUANTILE = 0.1
UPPER_QUANTILE = 0.9


@dataclass(frozen=True, slots=True)
class Expectation:
    """Intensity expected over a time, g/kWh; zero is a valid, clean value."""

    expected: float
    lower: float | None
    """The true value is below it with probability `LOWER_QUANTILE`; None: nobody knows how uncertain it is."""
    upper: float | None
    """Above it with probability 1 - `UPPER_QUANTILE`; None together with `lower`."""


@dataclass(frozen=True, slots=True)
class CarbonForecast:
    """Intensity by time with its spread. Series of the same times; make one with `of`."""

    expected: Series
    lower: Series | None
    """`LOWER_QUANTILE` of each point; None together with `upper` where the forecast's maker states no spread."""
    upper: Series | None
    issued_unix_s: float
    source: str
    """The provider, or `heliotrope` with the name of the method."""

    @classmethod
    def of(
        cls,
        times_unix_s: Sequence[float],
        expected: Sequence[float],
        lower: Sequence[float] | None = None,
        upper: Sequence[float] | None = None,
        *,
        issued_unix_s: float,
        source: str,
        last_holds_s: float = 3600.0,
        longest_hold_s: float = float("inf"),
    ) -> "CarbonForecast":
        """A forecast of columns, g/kWh. Points whose expected value is NaN are gaps.

        With gaps no value holds for longer than the shortest step, so what follows a gap's start is not covered.

        Args:
            times_unix_s: starts of the periods, strictly rising. Each holds until the next one.
            expected: one value per time.
            lower: `LOWER_QUANTILE` per time, at most `expected`; None or a NaN at any point: the spread is unknown.
            upper: `UPPER_QUANTILE` per time, at least `expected`; likewise.
            issued_unix_s: when it was made.
            source: who made it.
            last_holds_s: length of the last period.
            longest_hold_s: no value holds for longer; what is beyond is not covered.

        Raises:
            InvalidInputError: without any point, for times out of order, for negative or infinite values, and for
                quantiles on the wrong side of what is expected.
        """
        if any(after <= before for before, after in pairwise(times_unix_s)):
            raise InvalidInputError("forecast", "times must rise strictly")
        known = [i for i, value in enumerate(expected) if value == value]
        if not known:
            raise InvalidInputError("forecast", "it has no value at any time")
        times = [float(times_unix_s[i]) for i in known]
        # A point that is a gap ends the hold of the one before it.
        whole = len(known) == len(expected)
        step = longest_hold_s if whole else min(longest_hold_s, _shortest_step(times_unix_s, last_holds_s))

        def series(values: Sequence[float]) -> Series:
            points = [Point(time, float(values[i])) for time, i in zip(times, known, strict=True)]
            last_s = min(last_holds_s, longest_hold_s)
            return replace(Series.from_points(points, last_holds_s=last_s), longest_hold_s=step)

        middle = series(expected)
        if lower is None or upper is None or any(lower[i] != lower[i] or upper[i] != upper[i] for i in known):
            return cls(middle, None, None, issued_unix_s, source)
        for i in known:
            if not lower[i] <= expected[i] <= upper[i]:
                raise InvalidInputError(
                    "forecast", f"{expected[i]} g/kWh at {times_unix_s[i]:.0f} is not within {lower[i]} to {upper[i]}"
                )
        return cls(middle, series(lower), series(upper), issued_unix_s, source)

    @property
    def start_unix_s(self) -> float:
        """Where it begins."""
        return self.expected.times_unix_s[0]

    @property
    def end_unix_s(self) -> float:
        """Where its last point has run out."""
        return self.expected.times_unix_s[-1] + self.expected.last_holds_s

    def starting_with(self, time_unix_s: float, intensity_g_per_kwh: float) -> "CarbonForecast":
        """The forecast behind a value that is known, and so certain, which holds until the first point after it."""
        series = self.expected
        ahead = [i for i, time in enumerate(series.times_unix_s) if time > time_unix_s]

        def behind(column: Series | None) -> list[float] | None:
            return None if column is None else [intensity_g_per_kwh, *(column.values_g_per_kwh[i] for i in ahead)]

        return CarbonForecast.of(
            [time_unix_s, *(series.times_unix_s[i] for i in ahead)],
            behind(series) or [],
            behind(self.lower),
            behind(self.upper),
            issued_unix_s=self.issued_unix_s,
            source=self.source,
            last_holds_s=series.last_holds_s,
            longest_hold_s=series.longest_hold_s,
        )

    def mean_over(self, start_unix_s: float, end_unix_s: float) -> Expectation | None:
        """The time-weighted mean over [start, end), the value at `start` if that is empty; None unless all is covered.

        The bounds are the means of the points' bounds. That is exact where neighbouring errors go together, as a day's
        mostly do, and too wide where they do not: it never claims more certainty than there is.
        """
        expected = self.expected.average(start_unix_s, end_unix_s)
        if expected is None:
            return None
        if self.lower is None or self.upper is None:
            return Expectation(expected, None, None)
        lower = self.lower.average(start_unix_s, end_unix_s)
        upper = self.upper.average(start_unix_s, end_unix_s)
        assert lower is not None
        assert upper is not None
        # Sums of different numbers round differently.
        return Expectation(expected, min(lower, expected), max(upper, expected))


def _shortest_step(times_unix_s: Sequence[float], last_holds_s: float) -> float:
    return min((after - before for before, after in pairwise(times_unix_s)), default=last_holds_s)
