"""Grams of energy that was drawn over time, priced by the intensity that held meanwhile."""

from collections.abc import Iterable
from dataclasses import dataclass

from heliotrope.carbon.series import Series
from heliotrope.units import grams_co2e


@dataclass(frozen=True, slots=True)
class EnergyInterval:
    """IT energy drawn evenly between two times."""

    start_unix_s: float
    end_unix_s: float
    it_joules: float


@dataclass(frozen=True, slots=True)
class Emissions:
    """Operational emissions of a set of intervals. Joules without a known intensity are kept apart, not priced at 0."""

    it_joules: float
    grams_co2e: float
    unpriced_joules: float


def emissions(intervals: Iterable[EnergyInterval], intensity: Series, pue: float) -> Emissions:
    """Price each interval with the mean intensity over it (sum of E·PUE·CI, paper carbon-slo-tension §II).

    Args:
        intervals: energy drawn, in any order.
        intensity: the grid's series on the same clock, g/kWh.
        pue: facility over IT energy, ≥ 1.
    """
    total = priced = unpriced = 0.0
    for interval in intervals:
        total += interval.it_joules
        mean = intensity.average(interval.start_unix_s, interval.end_unix_s)
        if mean is None:
            unpriced += interval.it_joules
        else:
            priced += grams_co2e(interval.it_joules, pue, mean)
    return Emissions(it_joules=total, grams_co2e=priced, unpriced_joules=unpriced)
