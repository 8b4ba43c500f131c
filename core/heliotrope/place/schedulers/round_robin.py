"""Each possible region in turn, blind to load, latency and carbon: what savings are measured against."""

from typing import Any

import numpy as np

from heliotrope.place.assignment import NOWHERE, Assignment, Outcome, Reason
from heliotrope.place.estimate import possible_pairs
from heliotrope.place.in_turn import NO_TURN_YET
from heliotrope.place.policy import PlacementPolicy
from heliotrope.place.regions import Regions
from heliotrope.place.window import Window


def round_robin(
    window: Window, regions: Regions, policy: PlacementPolicy, _now: float, memory: Any = None
) -> Assignment:
    """Assign in the order of arrival; the memory is the region that had the last turn."""
    from heliotrope.place.in_turn_kernel import take_turns

    places = np.full(len(window), NOWHERE)
    cursor = take_turns(possible_pairs(window, regions, policy), NO_TURN_YET if memory is None else memory, places)
    return Assignment(
        regions=places,
        reasons=np.where(places == NOWHERE, int(Reason.NOWHERE), int(Reason.ROUND_ROBIN)),
        outcome=Outcome.HEURISTIC,
        objective=np.nan,
        gap=np.nan,
        work=len(window),
        carbon_counts=False,
        memory=cursor,
    )
