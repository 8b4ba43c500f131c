"""Forecasts as they were issued, kept until what they foretold has happened: how wrong they turn out to be."""

from collections import deque
from dataclasses import dataclass, field
from math import nan

import numpy as np

from heliotrope.carbon.forecast.hours import HIGHEST_G_PER_KWH, FloatMatrix, Hours, hour_of
from heliotrope.carbon.forecast.method import HORIZON_HOURS
from heliotrope.carbon.forecast.spread import MIN_SAMPLES, Spread
from heliotrope.carbon.forecast.value import CarbonForecast
from heliotrope.units import SECONDS_PER_HOUR

KEPT_DAYS = 14
"""Errors are those of the forecasts of two weeks."""
MAX_KEPT = KEPT_DAYS * 24


@dataclass(frozen=True, slots=True)
class RollingError:
    """Of all hours up to a horizon, compared where the forecast and the baseline both had a value."""

    horizon_hours: int
    mean_absolute_error: float
    """g/kWh."""
    baseline_mean_absolute_error: float
    """Of "as at the same hour yesterday", issued at the same times."""
    samples: int


@dataclass(slots=True, eq=False)
class _Issued:
    """One forecast beside what has come true; columns are hours after the hour that it was issued in."""

    hour: int
    source: str
    forecast: FloatMatrix
    """(2, HORIZON_HOURS): issued, baseline."""
    actual: FloatMatrix = field(default_factory=lambda: np.full((1, HORIZON_HOURS), nan))


@dataclass(slots=True, eq=False)
class ForecastRecord:
    """The record of one region. Bounded; owned by one thread."""

    _issued: deque[_Issued] = field(default_factory=lambda: deque(maxlen=MAX_KEPT))

    def issue(self, forecast: CarbonForecast, baseline: CarbonForecast | None, now_unix_s: float) -> None:
        """A forecast is in force from now on. At most one per hour is kept, the first.

        Hour 1 is the one after the hour of now: what the running hour will be is known in part already.
        """
        hour = hour_of(now_unix_s)
        if self._issued and self._issued[-1].hour >= hour:
            return
        columns = np.full((2, HORIZON_HOURS), nan)
        for row, each in enumerate((forecast, baseline)):
            if each is not None:
                columns[row] = _hourly(each, hour)
        self._issued.append(_Issued(hour, forecast.source, columns))

    def observe(self, hours: Hours, now_unix_s: float) -> None:
        """What has happened; revised values replace those before. Hours that are not over do not count yet."""
        over = hours.before(hour_of(now_unix_s)).values
        for issued in self._issued:
            start = issued.hour + 1 - hours.first
            inside = slice(max(start, 0), max(min(start + HORIZON_HOURS, len(over)), 0))
            found = over[inside]
            if len(found):
                issued.actual[0, inside.start - start : inside.start - start + len(found)] = found

    def error(self, horizon_hours: int) -> RollingError | None:
        """Over the forecasts that are kept, whoever made them; None if there is nothing to compare yet."""
        total, baseline, samples = 0.0, 0.0, 0
        for issued in self._issued:
            errors = np.abs(issued.forecast - issued.actual)[:, :horizon_hours]
            both = np.isfinite(errors).all(axis=0)
            samples += int(both.sum())
            total += float(errors[0, both].sum())
            baseline += float(errors[1, both].sum())
        if not samples:
            return None
        return RollingError(horizon_hours, total / samples, baseline / samples, samples)

    def spread(self, source: str) -> Spread | None:
        """Of the forecasts of one source by hours ahead, also those that came without; None with too few."""
        rows = [issued.actual[0] - issued.forecast[0] for issued in self._issued if issued.source == source]
        if len(rows) < MIN_SAMPLES:
            return None
        return Spread.of(np.array(rows))

    def __len__(self) -> int:
        """How many forecasts are kept."""
        return len(self._issued)


def with_spread(forecast: CarbonForecast, spread: Spread, now_unix_s: float) -> CarbonForecast:
    """The forecast with bounds, or without where the errors of some of its hours ahead are not known."""
    times = forecast.expected.times_unix_s
    # The running hour counts as the first ahead: it is no less certain.
    ahead = [min(max(hour_of(time) - hour_of(now_unix_s), 1), HORIZON_HOURS) - 1 for time in times]
    values = forecast.expected.values_g_per_kwh
    lower = [max(value + float(spread.low[i]), 0.0) for value, i in zip(values, ahead, strict=True)]
    upper = [min(value + float(spread.high[i]), HIGHEST_G_PER_KWH) for value, i in zip(values, ahead, strict=True)]
    return CarbonForecast.of(
        times,
        values,
        lower,
        upper,
        issued_unix_s=forecast.issued_unix_s,
        source=forecast.source,
        last_holds_s=forecast.expected.last_holds_s,
        longest_hold_s=forecast.expected.longest_hold_s,
    )


def _hourly(forecast: CarbonForecast, hour: int) -> list[float]:
    values = []
    for ahead in range(1, HORIZON_HOURS + 1):
        start = (hour + ahead) * SECONDS_PER_HOUR
        mean = forecast.mean_over(start, start + SECONDS_PER_HOUR)
        values.append(nan if mean is None else mean.expected)
    return values
