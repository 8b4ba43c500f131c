"""What a RegionProfile's status says of the hours ahead, as plans ask for it."""

from collections.abc import Sequence

from heliotrope.api.v1alpha1 import RegionProfile
from heliotrope.api.v1alpha1.regionprofile import ForecastError, ForecastPoint, Freshness
from heliotrope.carbon.forecast.published import Spread, from_reading, points_ahead
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
    ahead = sorted(points_ahead(status), key=lambda each: each.time)
    try:
        return from_reading(status, ahead, _spread(ahead, status.forecast_error))
    except InvalidInputError:  # a status that somebody else wrote
        return None


def _spread(ahead: Sequence[ForecastPoint], error: ForecastError | None) -> Spread | None:
    """Each point ahead may be off by what it says, else by the measured error."""
    stated = [(each.lower, each.upper) for each in ahead if each.lower is not None and each.upper is not None]
    if ahead and len(stated) == len(ahead):
        # To the digits of a status, a bound may be on the wrong side of the value.
        lower = [min(low, each.value) for (low, _), each in zip(stated, ahead, strict=True)]
        return lower, [max(up, each.value) for (_, up), each in zip(stated, ahead, strict=True)]
    if error is None:
        return None
    off = error.mean_absolute_error * QUANTILES_PER_MEAN_ERROR
    return [max(each.value - off, 0.0) for each in ahead], [each.value + off for each in ahead]
