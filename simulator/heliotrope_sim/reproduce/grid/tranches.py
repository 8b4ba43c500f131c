"""A zone's supply in an hour: all at one rate, or so much at the curtailed one and the rest at another.

A zone with finite headroom is two places to a scheduler: what its curtailed power serves, and the rest at its median
rate above zero. Column i of 2 d is zone i's first, column d + i its second.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heliotrope_sim.reproduce.grid.curtailment import Floats
from heliotrope_sim.reproduce.grid.rates import Rates
from heliotrope_sim.reproduce.grid.runs import Run


@dataclass(frozen=True, slots=True)
class Tranches:
    """What zones take in every hour."""

    per_zone: int
    """1 or 2."""
    cohorts: NDArray[np.int64]
    """Most of the hour's cohorts, shape (hours, d · per_zone)."""
    rest_g_per_kwh: Floats
    """Rate of the second tranche, length d."""

    def prices(self, view: Floats, hour: int) -> Floats:
        """Rates as the dispatcher sees them, length d · per_zone."""
        first: Floats = view[hour]
        return first if self.per_zone == 1 else np.concatenate([first, self.rest_g_per_kwh])

    def of_homes(self, homes: NDArray[np.int64], hour: int) -> NDArray[np.int64]:
        """The column that each session stays in: its zone's first as far as that reaches, then the second."""
        if self.per_zone == 1:
            return homes
        zones = len(self.rest_g_per_kwh)
        order = np.argsort(homes, kind="stable")
        ordered = homes[order]
        rank = np.empty(len(homes), np.int64)
        rank[order] = np.arange(len(homes)) - np.searchsorted(ordered, ordered)
        return np.where(rank < self.cohorts[hour, homes], homes, homes + zones)


def tranches(run: Run, base: Rates, total: Floats) -> Tranches:
    """The supply of a run.

    Args:
        run: its headroom, cap and cohorts.
        base: rates without credit, whose zeros are the curtailed hours.
        total: demand of all zones in each hour, relative to its mean.
    """
    hours, zones = base.g_per_kwh.shape
    rest = base.uncurtailed_g_per_kwh
    if not np.isfinite(run.headroom):
        return Tranches(1, np.full((hours, zones), run.cohorts), rest)
    most = round(run.cap * run.cohorts)
    curtailed = np.minimum(np.round(run.headroom * run.cohorts / zones / total), most).astype(np.int64)
    first = np.where(base.g_per_kwh == 0.0, curtailed[:, None], most)
    return Tranches(2, np.concatenate([first, most - first], axis=1), rest)
