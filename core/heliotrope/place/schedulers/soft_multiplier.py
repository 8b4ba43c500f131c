"""Pressure times one plus w times relative intensity (paper cleanest-grid, §3.1)."""

from typing import Any

from heliotrope.place.assignment import Assignment
from heliotrope.place.in_turn import NO_TURN_YET, Rule, assign_in_turn
from heliotrope.place.policy import PlacementPolicy
from heliotrope.place.regions import Regions
from heliotrope.place.window import Window


def soft_multiplier(
    window: Window, regions: Regions, policy: PlacementPolicy, _now: float, memory: Any = None
) -> Assignment:
    """Assign one after the other by `PlacementPolicy.carbon_weight`; the memory is a cursor.

    Where carbon does not count this is pressure alone.
    """
    rule = Rule(weight=policy.carbon_weight, by_pressure=True, limited=True)
    return assign_in_turn(window, regions, policy, rule, NO_TURN_YET if memory is None else memory)
