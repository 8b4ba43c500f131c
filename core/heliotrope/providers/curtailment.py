"""What a marginal intensity of zero, curtailed power, counts as."""

from dataclasses import replace
from statistics import median

from heliotrope.carbon.series import Series
from heliotrope.errors import InvalidInputError


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
