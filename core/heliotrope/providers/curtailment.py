"""What a marginal intensity of zero, curtailed power, counts as."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from heliotrope.carbon.series import Point, Series
from heliotrope.errors import InvalidInputError, NoDataError

VALUES_HELD = 2_016
"""Of which the median is taken: a week of five-minute values."""


def with_curtailment_credit(series: Series, alpha: float) -> Series:
    """The marginal series with every zero replaced by α × the median of its non-zero values.

    Args:
        series: marginal intensity, g/kWh. Average series are never passed: their zeros are meant.
        alpha: 0 takes curtailed power as carbon-free, 1 gives curtailment no credit.

    Raises:
        InvalidInputError: if there is a zero to replace and no value to take the median of.
    """
    values = series.values_g_per_kwh
    if alpha == 0.0 or 0.0 not in values:
        return series
    others = [value for value in values if value > 0.0]
    if not others:
        raise InvalidInputError(
            "curtailmentCredit", "the region has no marginal value above zero to take a share of; set it to 0"
        )
    credited = alpha * median(others)
    return replace(series, values_g_per_kwh=tuple(value or credited for value in values))


class CurtailmentCredit:
    """The same for a source whose values come a few at a time: it remembers the newest of them."""

    def __init__(self, alpha: float = 0.0) -> None:
        """`alpha` as above; 0 also where zeros are meant, as those of average intensity are."""
        self._alpha = alpha
        self._seen: dict[float, float] = {}

    def learn(self, points: Sequence[Point]) -> None:
        """Values that the source gave; a later one of the same time replaces the earlier."""
        if self._alpha == 0.0:
            return
        self._seen |= {point.time_unix_s: point.intensity_g_per_kwh for point in points if point.intensity_g_per_kwh}
        if len(self._seen) > VALUES_HELD:
            self._seen = {time: self._seen[time] for time in sorted(self._seen)[-VALUES_HELD:]}

    def applied(self, points: Sequence[Point]) -> list[Point]:
        """The points with zeros replaced.

        Raises:
            NoDataError: if there is a zero to replace and no other value was seen yet.
        """
        if self._alpha == 0.0 or all(point.intensity_g_per_kwh for point in points):
            return list(points)
        if not self._seen:
            raise NoDataError(
                "the marginal value is zero and none above zero was seen yet to take a share of; curtailmentCredit 0 "
                "would take it as it is"
            )
        credited = self._alpha * median(self._seen.values())
        return [
            point if point.intensity_g_per_kwh else replace(point, intensity_g_per_kwh=credited) for point in points
        ]
