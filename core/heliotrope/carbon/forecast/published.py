"""Forecasts as RegionProfiles' statuses hold them."""

from datetime import UTC, datetime
from math import nan

from heliotrope.api.v1alpha1.regionprofile import Forecast, ForecastPoint, RegionProfileStatus
from heliotrope.carbon.forecast.value import CarbonForecast
from heliotrope.carbon.series import Point, Series
from heliotrope.units import SECONDS_PER_HOUR

MAX_POINTS = 96
"""Points of a forecast in a status."""
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
    forecast, reading = status.forecast, status.intensity
    start = None if reading is None else reading.time
    ahead = [point for point in forecast.points if start is None or point.time > start]
    if not ahead:
        return None
    times = [point.time.timestamp() for point in ahead]
    lower = [nan if point.lower is None else point.lower for point in ahead]
    upper = [nan if point.upper is None else point.upper for point in ahead]
    made = CarbonForecast.of(
        times,
        [point.value for point in ahead],
        lower,
        upper,
        issued_unix_s=forecast.issued_at.timestamp(),
        source=forecast.source,
        last_holds_s=_last_step_s([*([start.timestamp()] if start is not None else []), *times]),
    )
    return made if reading is None else made.starting_with(reading.time.timestamp(), reading.value)


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
