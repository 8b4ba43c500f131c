"""Grams of a year that was placed, and how sure a saving is."""

from collections.abc import Callable, Sequence

import numpy as np

from heliotrope.carbon.bootstrap import FloatMatrix, FloatVector, Interval, block_bootstrap
from heliotrope.units import grams_co2e
from heliotrope_sim.reproduce.grid.curtailment import Floats
from heliotrope_sim.reproduce.grid.replay import Placed
from heliotrope_sim.reproduce.grid.tranches import Tranches

JOULES_PER_OUTPUT_TOKEN = 0.104
"""Of an H100 near saturation (paper, §6)."""
TOKENS_PER_HOUR = 1_000_000.0
"""Output tokens of the whole fleet in an average hour: any number gives the same savings."""
BLOCK_HOURS = 120
RESAMPLES = 10_000


def load_shares(placed: Placed) -> Floats:
    """Share of each hour's load by zone, shape (hours, d)."""
    loads = placed.loads.astype(np.float64)
    shares: Floats = loads / np.maximum(loads.sum(axis=1, keepdims=True), 1.0)
    return shares


def fixed_joules(placed: Placed, total: Floats) -> Floats:
    """Energy by hour and zone at a fixed energy per token.

    Args:
        placed: the loads.
        total: demand of each hour relative to its mean.
    """
    joules: Floats = load_shares(placed) * total[:, None] * TOKENS_PER_HOUR * JOULES_PER_OUTPUT_TOKEN
    return joules


def hourly_grams(joules: Floats, g_per_kwh: Floats) -> Floats:
    """Emissions of each hour; 0 where the rate of any zone is unknown, for every policy alike."""
    known = np.isfinite(g_per_kwh).all(axis=1)
    grams: Floats = np.where(known, grams_co2e(joules, np.ones_like(joules), g_per_kwh).sum(axis=1), 0.0)
    return grams


def stepped_grams(joules: Floats, loads: Floats, steps: Tranches, g_per_kwh: Floats) -> Floats:
    """Emissions of each hour where a zone's first tranche has these rates and the rest its median above zero.

    Args:
        joules: shape (hours, d).
        loads: cohorts, shape (hours, d).
        steps: of two tranches.
        g_per_kwh: rates of the first, shape (hours, d).
    """
    zones = loads.shape[1]
    # Load beyond both tranches, which sessions can make, has the rate of the last one that is there.
    first = np.where(steps.cohorts[:, zones:] > 0, np.minimum(loads, steps.cohorts[:, :zones]), loads)
    share = np.divide(first, loads, out=np.ones_like(loads), where=loads > 0.0)
    return hourly_grams(joules, share * g_per_kwh + (1.0 - share) * steps.rest_g_per_kwh)


def saving(
    grams: Floats, baseline: Floats, seed: int, *, block_hours: int = BLOCK_HOURS, resamples: int = RESAMPLES
) -> Interval:
    """1 − grams over the baseline's, with the interval of blocks of hours."""
    return interval((grams, baseline), _saved, seed, block_hours=block_hours, resamples=resamples)


def gained(grams: Floats, other: Floats, baseline: Floats, seed: int) -> Interval:
    """By how much of the baseline the first saves more than the second."""
    return interval((grams, other, baseline), _gained, seed)


def interval(
    columns: Sequence[Floats],
    statistic: Callable[[FloatMatrix], FloatVector],
    seed: int,
    *,
    block_hours: int = BLOCK_HOURS,
    resamples: int = RESAMPLES,
) -> Interval:
    """The 95 % interval of a statistic of the columns' totals."""
    values = np.stack(columns, axis=1)
    return block_bootstrap(values, statistic, block_length=block_hours, resamples=resamples, seed=seed)


def _saved(totals: FloatMatrix) -> FloatVector:
    return 1.0 - totals[:, 0] / totals[:, 1]


def _gained(totals: FloatMatrix) -> FloatVector:
    return (totals[:, 1] - totals[:, 0]) / totals[:, 2]
