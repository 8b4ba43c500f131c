"""What a dispatcher knows of the rates when it places an hour's load; settlement uses the rates that held."""

from enum import StrEnum

import numpy as np

from heliotrope_sim.reproduce.grid.curtailment import Floats

HOURS_PER_DAY = 24
DAYS = 7
GAP_HOURS = 6
"""Readings are missing this long at a time."""


class View(StrEnum):
    """Rates of an hour as they are seen before it begins."""

    FORESIGHT = "perfect foresight"
    """The hour's own, as the paper's."""
    LAST_HOUR = "the last hour's"
    """Persistence: the newest reading is an hour old."""
    YESTERDAY = "yesterday's at this hour"
    LAST_WEEK = "mean of the last seven days at this hour"
    YEAR = "mean of the year"
    """What the paper calls static."""


def seen(rates: Floats, view: View) -> Floats:
    """Shape (hours, d); NaN where too little has been seen yet, or a reading it rests on is unknown."""
    if view is View.FORESIGHT:
        return rates
    if view is View.YEAR:
        return np.broadcast_to(np.nanmean(rates, axis=0), rates.shape)
    if view is View.LAST_HOUR:
        return _earlier(rates, 1)
    if view is View.YESTERDAY:
        return _earlier(rates, HOURS_PER_DAY)
    mean: Floats = np.mean([_earlier(rates, day * HOURS_PER_DAY) for day in range(1, DAYS + 1)], axis=0)
    return mean


def with_unknown(rates: Floats, share: float, seed: int) -> Floats:
    """With so many of the readings missing, for `GAP_HOURS` at a time."""
    if share <= 0.0:
        return rates
    hours, zones = rates.shape
    blocks = np.random.default_rng(seed).random((-(-hours // GAP_HOURS), zones)) < share
    return np.where(np.repeat(blocks, GAP_HOURS, axis=0)[:hours], np.nan, rates)


def _earlier(rates: Floats, hours: int) -> Floats:
    shifted = np.full_like(rates, np.nan)
    shifted[hours:] = rates[:-hours]
    return shifted
