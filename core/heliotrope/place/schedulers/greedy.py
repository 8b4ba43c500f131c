"""Each request on its own: latency against intensity by α (paper carbon-slo-tension, §IV-A)."""

from typing import Any

from heliotrope.place.assignment import Assignment
from heliotrope.place.in_turn import NO_TURN_YET, Rule, assign_in_turn
from heliotrope.place.policy import PlacementPolicy
from heliotrope.place.regions import Regions
from heliotrope.place.window import Window


def greedy(window: Window, regions: Regions, policy: PlacementPolicy, _now: float, memory: Any = None) -> Assignment:
    """Assign one after the other by `PlacementPolicy.latency_weight`; the memory is a cursor."""
    rule = Rule(weight=policy.latency_weight)
    return assign_in_turn(window, regions, policy, rule, NO_TURN_YET if memory is None else memory)
