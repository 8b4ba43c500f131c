"""What a RegionProfile's status says of the hours ahead, as plans ask for it."""

from collections.abc import Sequence

from heliotrope.api.v1alpha1 import RegionProfile
from heliotrope.api.v1alpha1.regionprofile import ForecastError, ForecastPoint, Freshness
from heliotrope.carbon.forecast.value import CarbonForecast
from heliotrope.errors import InvalidInputError

QUANTILES_PER_MEAN_ERROR = 1.606
"""Distance of the 10 % and 90 % quantiles from the middle, in mean absolute errors of a normal distribution."""


def outlook(profile: RegionProfile) -> CarbonForecast | None:
    """The region's forecast from its newest reading on; None unless the signal is fresh.

    Without points ahead it covers the present alone. Its spread is what the points say, else the measured error of past
    forecasts; where neither is known it is unknown.
    """
    status = profile.status
    if status is None or status.freshness is not Freshness.FRESH or status.intensity is None:
        return None
    reading = (status.intensity.time.timestamp(), status.intensity.value)
    all_points = () if status.forecast is None else status.forecast.points
    ahead = sorted((each for each in all_points if each.time.timestamp() > reading[0]), key=lambda each: each.time)
    times = [reading[0], *(each.time.timestamp() for each in ahead)]
    lower, upper = _bounds(reading[1], ahead, status.forecast_error)
    try:
        return CarbonForecast.of(
            times,
            [reading[1], *(each.value for each in ahead)],
            lower,
            upper,
            issued_unix_s=reading[0] if status.forecast is None else status.forecast.issued_at.timestamp(),
            source=status.intensity.source if status.forecast is None else status.forecast.source,
            last_holds_s=_last_holds_s(times),
        )
    except InvalidInputError:  # a status that somebody else wrote
        return None


def _bounds(
    reading: float, ahead: Sequence[ForecastPoint], error: ForecastError | None
) -> tuple[list[float], list[float]] | tuple[None, None]:
    """The reading is what it is; each point ahead may be off by what it says, else by the measured error."""
    stated = [(each.lower, each.upper) for each in ahead if each.lower is not None and each.upper is not None]
    if ahead and len(stated) == len(ahead):
        # To the digits of a status, a bound may be on the wrong side of the value.
        lower = [min(low, each.value) for (low, _), each in zip(stated, ahead, strict=True)]
        return [reading, *lower], [reading, *(max(up, each.value) for (_, up), each in zip(stated, ahead, strict=True))]
    if error is None:
        return None, None
    off = error.mean_absolute_error * QUANTILES_PER_MEAN_ERROR
    lower = [max(each.value - off, 0.0) for each in ahead]
    return [reading, *lower], [reading, *(each.value + off for each in ahead)]


def _last_holds_s(times: list[float]) -> float:
    """The last point holds as long as the one before it did; a lone reading holds for an hour."""
    return times[-1] - times[-2] if len(times) > 1 else 3600.0
