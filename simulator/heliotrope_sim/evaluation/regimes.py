"""Load regimes, by utilisation: arrivals per second over the measured capacity of the engine for the same mix.

Capacity is what the engine completes while it never runs out of work (`sweep.saturated_rate`). Below saturation is up
to 0.8 of it, above from 1.1 on; around is what lies between, where the batch fills at times and queues come and go.
"""

from enum import StrEnum

BELOW_UP_TO = 0.8
ABOVE_FROM = 1.1


class Regime(StrEnum):
    """How loaded a run is."""

    BELOW = "below"
    AROUND = "around"
    ABOVE = "above"


def regime(utilisation: float) -> Regime:
    """The regime of a utilisation."""
    if utilisation <= BELOW_UP_TO:
        return Regime.BELOW
    return Regime.ABOVE if utilisation >= ABOVE_FROM else Regime.AROUND


TRAINING_LOADS = (0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 1.0, 1.2, 1.35)
HELD_OUT_LOADS = (0.2, 0.35, 0.5, 0.65, 0.78, 0.95, 1.05, 1.3)
"""None of them is a training load, so that a model must interpolate."""
