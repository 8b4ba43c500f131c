"""How much of the batch work that waits should be dispatched now: a share from 0 to 1 for queues that can hold back.

It is 1 at the cleanest of the hours ahead and falls smoothly towards the dirtiest. How far it falls depends on how much
the hours differ: on a grid that is the same all day, or whose forecast is too rough to tell hours apart, nothing is
gained by holding back and the share stays near 1. It never falls below `LEAST`, so that no queue starves, and what is
not known counts as 1: work goes out as it would without anybody asking.
"""

from collections.abc import Iterable
from math import isfinite

import numpy as np

from heliotrope.carbon.forecast.value import CarbonForecast
from heliotrope.scale.deferral import deviation

LEAST = 0.1
"""Least share: a tenth of the work flows in the dirtiest hour."""
LOOK_AHEAD_S = 86_400.0
"""The hours that the present one is compared with: a day has them all."""
SAMPLES = 96
"""Moments at which the hours ahead are read."""
INDIFFERENCE = 0.05
"""Differences of this share of the mean intensity are not worth holding work back for."""
QUIET, LOUD = 0.1, 0.9
"""Quantiles between which the hours ahead count as clean or dirty; single hours beyond them change nothing."""


def dispatch_budget(forecast: CarbonForecast | None, now_unix_s: float) -> float:
    """The share of batch work to dispatch now, from `LEAST` to 1.

    Args:
        forecast: of the region; None if there is none or its signal is not fresh.
        now_unix_s: the time.

    Returns:
        1 if the forecast does not cover the present or less than a fourth of the look-ahead.
    """
    if forecast is None:
        return 1.0
    moments = now_unix_s + np.arange(SAMPLES) * (LOOK_AHEAD_S / SAMPLES)
    means = [forecast.mean_over(moment, moment) for moment in moments]
    known = [mean for mean in means if mean is not None]
    present = means[0]
    if present is None or len(known) < SAMPLES // 4:
        return 1.0
    values = np.array([mean.expected for mean in known])
    noise = float(np.mean([deviation(mean) for mean in known])) + INDIFFERENCE * float(values.mean())
    return budget_at(present.expected, values, noise)


def budget_at(present_g_per_kwh: float, ahead_g_per_kwh: Iterable[float], noise_g_per_kwh: float) -> float:
    """The share where the present intensity and those ahead are known.

    Args:
        present_g_per_kwh: now.
        ahead_g_per_kwh: over the look-ahead, at even distances.
        noise_g_per_kwh: difference that cannot be told or does not matter, at least 0.
    """
    ahead = np.fromiter(ahead_g_per_kwh, dtype=np.float64)
    low, high = (float(each) for each in np.quantile(ahead, (QUIET, LOUD)))
    spread = high - low
    if not isfinite(spread) or spread <= 0.0:
        return 1.0
    place = min(max((present_g_per_kwh - low) / spread, 0.0), 1.0)
    smooth = place * place * (3.0 - 2.0 * place)
    held = smooth * spread / (spread + noise_g_per_kwh)
    return max(1.0 - (1.0 - LEAST) * held, LEAST)


def pool_budget(budgets: Iterable[float]) -> float:
    """The share of a pool that reaches several regions: that of the region to dispatch to now; 1 without any."""
    return max(budgets, default=1.0)
