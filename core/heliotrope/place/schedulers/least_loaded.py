"""The region with the least share of its batch slots in use, blind to carbon and to SLOs."""

from dataclasses import replace
from typing import Any

import numpy as np

from heliotrope.place.assignment import Assignment
from heliotrope.place.in_turn import NO_TURN_YET, Rule, assign_in_turn
from heliotrope.place.policy import PlacementPolicy
from heliotrope.place.regions import Regions
from heliotrope.place.window import Window

RULE = Rule(weight=0.0, by_pressure=True, keeps_slo=False)


def least_loaded(
    window: Window, regions: Regions, policy: PlacementPolicy, _now: float, memory: Any = None
) -> Assignment:
    """Assign one after the other; the memory is a cursor."""
    assignment = assign_in_turn(window, regions, policy, RULE, NO_TURN_YET if memory is None else memory)
    return replace(assignment, objective=np.nan, carbon_counts=False)
