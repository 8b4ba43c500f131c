"""One request of a window after the other, each on the load with those before it (paper carbon-slo-tension, §IV-A).

Greedy takes, of the regions that keep the request's SLO, the one of least

    α · Lat / max Lat + (1 − α) · CI / max CI

and the soft multiplier (paper cleanest-grid, §3.1) the one of least pressure · (1 + w · CI / max CI), pressure being
the share of the batch slots that the region would have in use: at w = 1 the dirtiest region looks twice as loaded as a
clean one. Maxima are over the regions that are compared. Where carbon does not count its term is 0. Ties go to the
least latency. Intensities below 0 are better than 0.

What has no region then:

1. The largest share yields: the region of least intensity that keeps the SLO.
2. `PlacementPolicy.fallback`: least expected TTFT, else each in turn.
3. Regions about which too little is known take turns when no other is possible.
"""

from dataclasses import dataclass

import numpy as np

from heliotrope.place.assignment import NOWHERE, Assignment, Outcome, Reason
from heliotrope.place.policy import CapacityUnit, Fallback, PlacementPolicy
from heliotrope.place.regions import Regions
from heliotrope.place.state import state_of
from heliotrope.place.window import IntColumn, Window

NO_TURN_YET = -1
"""A cursor before the first round: region 0 is next."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Which region a request takes."""

    weight: float
    """α of greedy, or w of the soft multiplier."""
    by_pressure: bool = False
    """The soft multiplier's score instead of greedy's."""
    limited: bool = False
    """Regions without headroom are out. The paper's greedy has no such limit, only the SLO."""
    keeps_slo: bool = True
    """Regions whose estimates break the SLO are out."""


CLEANEST = Rule(weight=0.0, limited=True)
"""What solvers fall back to: the cleanest feasible region with headroom."""


def assign_in_turn(
    window: Window,
    regions: Regions,
    policy: PlacementPolicy,
    rule: Rule,
    cursor: int,
    pinned: IntColumn | None = None,
) -> Assignment:
    """Assign the whole window; the assignment's memory is the next cursor.

    Args:
        window: to assign.
        regions: as seen now.
        policy: fallback, capacity unit, standard deviations, whether requests see those before them.
        rule: see there.
        cursor: memory of the last assignment, else `NO_TURN_YET`.
        pinned: regions of requests that have one already, `NOWHERE` of the others.
    """
    places = np.full(len(window), NOWHERE) if pinned is None else pinned.copy()
    reasons = np.full(len(window), int(Reason.OBJECTIVE))
    cursor, cost, carbon = _assign(window, regions, policy, rule, cursor, places, reasons)
    return Assignment(
        regions=places,
        reasons=reasons,
        outcome=Outcome.HEURISTIC,
        objective=cost,
        gap=np.nan,
        work=len(window) * len(regions),
        carbon_counts=carbon,
        memory=cursor,
    )


def place_rest(
    window: Window, regions: Regions, policy: PlacementPolicy, cursor: int, places: IntColumn, reasons: IntColumn
) -> tuple[IntColumn, IntColumn, int]:
    """Assign what a solver left without a region: cleanest with headroom, then the policy's fallback.

    Args:
        window: all of it.
        regions: without the solver's assignments, which are projected first.
        policy: see `assign_in_turn`.
        cursor: see there.
        places: length n, `NOWHERE` where the solver had none.
        reasons: length n, kept where it had one.

    Returns:
        Copies of both columns, completed, and the next cursor.
    """
    if (places != NOWHERE).all():
        return places, reasons, cursor
    places, reasons = places.copy(), reasons.copy()
    left = places == NOWHERE
    cursor, _, _ = _assign(window, regions, policy, CLEANEST, cursor, places, reasons)
    reasons[left & (reasons == Reason.OBJECTIVE)] = Reason.CLEANEST_WITH_HEADROOM
    return places, reasons, cursor


def _assign(
    window: Window,
    regions: Regions,
    policy: PlacementPolicy,
    rule: Rule,
    cursor: int,
    places: IntColumn,
    reasons: IntColumn,
) -> tuple[int, float, bool]:
    from heliotrope.place.in_turn_kernel import assign
    from heliotrope.place.kernel import TERMS

    return assign(
        regions.engine_rows,
        state_of(regions),
        np.empty((TERMS, len(regions))),
        window.prompt_tokens,
        window.output_tokens,
        window.waited_seconds,
        window.ttft_slo_seconds,
        window.tpot_slo_seconds,
        window.cached_tokens,
        window.allowed,
        policy.standard_deviations,
        policy.unknown_output_tokens,
        policy.capacity_unit is CapacityUnit.TOKENS,
        policy.projects,
        policy.fallback is Fallback.ROUND_ROBIN,
        rule.by_pressure,
        rule.weight,
        rule.limited,
        rule.keeps_slo,
        cursor,
        places,
        reasons,
    )
