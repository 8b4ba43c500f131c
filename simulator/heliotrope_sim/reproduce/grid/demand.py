"""How much is asked for, where and when: a mean week of `data/casper`, repeated.

Zones of a part of the country share a shape and every zone asks for as much over a week. The paper's workload varies by
the season, too; seven weeks of records say nothing of that.
"""

from dataclasses import dataclass

import numpy as np

from heliotrope.units import SECONDS_PER_HOUR
from heliotrope_sim.fleet.diurnal import casper
from heliotrope_sim.reproduce.grid.curtailment import Floats
from heliotrope_sim.reproduce.grid.rates import Rates
from heliotrope_sim.reproduce.grid.zones import Part

HOURS_OF_WEEK = 168
EAST = ("us-east-1", "us-east-2")
WEST = ("us-west-1",)


@dataclass(frozen=True, slots=True)
class Demand:
    """Both are relative to the mean over hours and zones."""

    by_zone: Floats
    """Shape (hours, d); mean about 1."""

    @property
    def total(self) -> Floats:
        """Of all zones, length hours; mean about 1."""
        mean: Floats = self.by_zone.mean(axis=1)
        return mean


def demand(rates: Rates) -> Demand:
    """What the zones ask for in the hours of the rates."""
    shapes = {Part.EAST: _week(EAST), Part.WEST: _week(WEST)}
    shapes[Part.CENTRAL] = (shapes[Part.EAST] + shapes[Part.WEST]) / 2.0
    hour_of_week = rates.hours_unix.astype(np.int64) % HOURS_OF_WEEK
    return Demand(np.stack([shapes[zone.part][hour_of_week] for zone in rates.zones], axis=1))


def _week(regions: tuple[str, ...]) -> Floats:
    """Mean by hour of the week, relative to the week's mean."""
    rates = casper().of(*regions)
    per_hour = rates.per_hour.sum(axis=1)
    hours = (round(rates.start_unix_s / SECONDS_PER_HOUR) + np.arange(len(per_hour))) % HOURS_OF_WEEK
    sums = np.bincount(hours, weights=per_hour, minlength=HOURS_OF_WEEK)
    mean = sums / np.bincount(hours, minlength=HOURS_OF_WEEK)
    week: Floats = mean / mean.mean()
    return week
