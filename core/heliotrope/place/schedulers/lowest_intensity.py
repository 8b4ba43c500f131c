"""The SLO-feasible region of the lowest intensity: MOER-based routing, which is greedy at α = 0."""

from typing import Any

from heliotrope.place.assignment import Assignment
from heliotrope.place.in_turn import NO_TURN_YET, Rule, assign_in_turn
from heliotrope.place.policy import PlacementPolicy
from heliotrope.place.regions import Regions
from heliotrope.place.window import Window

RULE = Rule(weight=0.0)


def lowest_intensity(
    window: Window, regions: Regions, policy: PlacementPolicy, _now: float, memory: Any = None
) -> Assignment:
    """Assign one after the other; the memory is a cursor."""
    return assign_in_turn(window, regions, policy, RULE, NO_TURN_YET if memory is None else memory)
