"""A stand-in for marginal emission rates, made from average intensity. What it shows is in part what is put in here.

A marginal rate is that of the plant that serves one more kWh. Average intensity does not say which that is, so:

    c = (q95 − CI) / max(q95, gas)      clean power above that of the zone's dirtiest hours, as a share of demand
    rate = 0              where c > θ    clean power is being curtailed
    rate = max(CI, gas)   elsewhere      a fossil plant is at the margin, at least one that burns gas

q95 is the 95 % quantile of the zone's year, gas 942 lb/MWh, the paper's mean rate of CAISO-North without its zeros. θ
is such that in California 1 − 732/942 of the hours are zero, by which the paper's zeros lower that mean (cleanest-grid,
§6), and the same everywhere. Neither was chosen by a saving.
"""

import numpy as np
from numpy.typing import NDArray

from heliotrope.units import g_per_kwh_from_lb_per_mwh

Floats = NDArray[np.float64]

MEAN_WITHOUT_ZEROS_LB_PER_MWH = 942.0
MEAN_WITH_ZEROS_LB_PER_MWH = 732.0
ZERO_SHARE = 1.0 - MEAN_WITH_ZEROS_LB_PER_MWH / MEAN_WITHOUT_ZEROS_LB_PER_MWH
"""Of the hours of the zone that θ is set by."""
GAS_G_PER_KWH = g_per_kwh_from_lb_per_mwh(MEAN_WITHOUT_ZEROS_LB_PER_MWH)
DIRTY_QUANTILE = 0.95


def clean_share(average_g_per_kwh: Floats) -> Floats:
    """C of every hour and zone, shape (hours, d); NaN where the intensity is."""
    dirty = np.nanquantile(average_g_per_kwh, DIRTY_QUANTILE, axis=0)
    share: Floats = (dirty - average_g_per_kwh) / np.maximum(dirty, GAS_G_PER_KWH)
    return share


def marginal_rates(average_g_per_kwh: Floats, reference: int) -> Floats:
    """The stand-in, g/kWh.

    Args:
        average_g_per_kwh: shape (hours, d); NaN is unknown and stays so.
        reference: column of the zone that θ is set by.
    """
    share = clean_share(average_g_per_kwh)
    threshold = np.nanquantile(share[:, reference], 1.0 - ZERO_SHARE)
    rates: Floats = np.where(share > threshold, 0.0, np.maximum(average_g_per_kwh, GAS_G_PER_KWH))
    return rates
