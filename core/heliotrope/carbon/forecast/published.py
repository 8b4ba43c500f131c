"""Forecasts as RegionProfiles' statuses hold them."""

from collections.abc import Sequence
from datetime import UTC, datetime
from math import nan

from heliotrope.api.v1alpha1.regionprofile import Forecast, ForecastPoint, RegionProfileStatus
from heliotrope.carbon.forecast.value import CarbonForecast
from heliotrope.carbon.series import Point, Series
from heliotrope.errors import InvalidInputError
from heliotrope.units import SECONDS_PER_HOUR

MAX_POINTS = 96
"""Points of a forecast in a status."""
Spread = tuple[Sequence[float], Sequence[float]]
"""Lower and upper quantile of each point, g/kWh."""
_STEPS_S = (900.0, 1800.0, 3600.0, 7200.0, 14400.0)


def published(forecast: CarbonForecast) -> Forecast:
    """The forecast in the resource's type, to a tenth of a gram, the first points if there are too many.

    Raises:
        pydantic.ValidationError: if a value is beyond what the resource allows.
    """
    series = forecast.expected
    lower = forecast.lower.values_g_per_kwh if forecast.lower is not None else None
    upper = forecast.upper.values_g_per_kwh if forecast.upper is not None else None
    count = min(len(series.times_unix_s), MAX_POINTS)
    return Forecast(
        issued_at=_time(forecast.issued_unix_s),
        source=forecast.source,
        points=tuple(
            ForecastPoint(
                time=_time(series.times_unix_s[i]),
                value=round(series.values_g_per_kwh[i], 1),
                lower=None if lower is None else round(lower[i], 1),
                upper=None if upper is None else round(upper[i], 1),
            )
            for i in range(count)
        ),
    )


def forecast_of(status: RegionProfileStatus | None) -> CarbonForecast | None:
    """What a status promises: the newest reading, which is certain, and behind it the forecast's points.

    Together they cover the time from the reading on. None without a forecast beyond the reading.

    Raises:
        InvalidInputError: if the forecast contradicts itself.
    """
    if status is None or status.forecast is None:
        return None
    ahead = points_ahead(status)
    return from_reading(status, ahead, stated_spread(ahead)) if ahead else None


def points_ahead(status: RegionProfileStatus) -> list[ForecastPoint]:
    """The forecast's points after the newest reading, all of them without a reading, in the order of the status."""
    points = () if status.forecast is None else status.forecast.points
    reading = status.intensity
    return [point for point in points if reading is None or point.time > reading.time]


def stated_spread(points: Sequence[ForecastPoint]) -> Spread:
    """What points say of their lower and upper quantiles, NaN where they say nothing."""
    lower = [nan if point.lower is None else point.lower for point in points]
    return lower, [nan if point.upper is None else point.upper for point in points]


def from_reading(status: RegionProfileStatus, ahead: Sequence[ForecastPoint], spread: Spread | None) -> CarbonForecast:
    """The newest reading, which is certain, and points behind it, as one forecast.

    Args:
        status: whose reading it is, and whose forecast says who made the points and when; without a forecast the
            reading's own source and time do.
        ahead: points after the reading, in order of time. The last one holds as long as the one before it did, one that
            is alone for an hour.
        spread: lower and upper quantile of each point; None, or NaN at any point: it is unknown.

    Raises:
        InvalidInputError: as `CarbonForecast.of`; also where there is neither a reading nor a point.
    """
    forecast, reading = status.forecast, status.intensity
    known = [] if reading is None else [reading]
    times = [*(each.time.timestamp() for each in known), *(each.time.timestamp() for each in ahead)]
    if not times:
        raise InvalidInputError("forecast", "there is neither a reading nor a point")
    certain = [each.value for each in known]
    return CarbonForecast.of(
        times,
        [*certain, *(each.value for each in ahead)],
        None if spread is None else [*certain, *spread[0]],
        None if spread is None else [*certain, *spread[1]],
        issued_unix_s=times[0] if forecast is None else forecast.issued_at.timestamp(),
        source=(reading.source if reading is not None else "") if forecast is None else forecast.source,
        last_holds_s=_last_step_s(times),
    )


def fitting(series: Series, at_most: int = MAX_POINTS) -> Series:
    """The series itself if it is short enough, else its means over the shortest common step that makes it so.

    A source with a value every five minutes would else be cut off after eight hours. Gaps end it.
    """
    times = series.times_unix_s
    if len(times) <= at_most:
        return series
    start, end = times[0], times[-1] + series.last_holds_s
    step = next((step for step in _STEPS_S if (end - start) / step <= at_most), _STEPS_S[-1])
    points: list[Point] = []
    # Steps begin at full hours, but the first, which is what holds now.
    time = start
    while time < end and len(points) < at_most:
        until = min((time // step + 1.0) * step, end)
        mean = series.average(time, until)
        if mean is None:
            break
        points.append(Point(time, mean))
        time = until
    return Series.from_points(points, last_holds_s=time - points[-1].time_unix_s)


def _last_step_s(times_unix_s: list[float]) -> float:
    return times_unix_s[-1] - times_unix_s[-2] if len(times_unix_s) > 1 else SECONDS_PER_HOUR


def _time(unix_s: float) -> datetime:
    """To the millisecond, as all times of statuses."""
    return datetime.fromtimestamp(round(unix_s, 3), UTC)
