"""Regions filled from the cleanest on, each up to a cap, sessions where they are (paper cleanest-grid, §6)."""

from dataclasses import replace
from typing import Any

import numpy as np

from heliotrope.place.assignment import NOWHERE, Assignment
from heliotrope.place.estimate import carbon_counts, possible_pairs
from heliotrope.place.in_turn import CLEANEST, NO_TURN_YET, Rule, assign_in_turn
from heliotrope.place.policy import PlacementPolicy
from heliotrope.place.regions import Regions
from heliotrope.place.window import NO_HOME, IntColumn, Window

PRESSURE = Rule(weight=0.0, by_pressure=True, limited=True)


def cleanest_first(
    window: Window, regions: Regions, policy: PlacementPolicy, _now: float, memory: Any = None
) -> Assignment:
    """Pin sessions to their home, then fill; the memory is a cursor.

    A region gets at most `PlacementPolicy.share_cap` of the window; pinned requests count, and stay beyond it. Where
    carbon does not count the others go by pressure alone.
    """
    capped = replace(regions, largest_share=np.minimum(regions.largest_share, policy.share_cap))
    rule = CLEANEST if carbon_counts(window, regions) else PRESSURE
    cursor = NO_TURN_YET if memory is None else memory
    return assign_in_turn(window, capped, policy, rule, cursor, _at_home(window, regions, policy))


def _at_home(window: Window, regions: Regions, policy: PlacementPolicy) -> IntColumn:
    possible = possible_pairs(window, regions, policy)
    at_home = (window.home != NO_HOME) & possible[np.arange(len(window)), window.home]
    return np.where(at_home, window.home, NOWHERE)
