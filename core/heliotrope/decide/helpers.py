"""Endpoints that may do a phase of a request for others: which the policy allows, and what their grids weigh."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from heliotrope.carbon.signal import Freshness
from heliotrope.decide.candidates import BoolColumn, Candidates, FloatColumn, RegionView
from heliotrope.decide.policy import DecisionPolicy
from heliotrope.decide.shares import regions_at_limit
from heliotrope.decide.standing import UNKNOWN_STANDING, Standing, enough_power


@dataclass(frozen=True, slots=True)
class Grid:
    """What a region's electricity costs the climate."""

    weight: float
    """PUE · CI; NaN where no fresh signal is known."""
    kind: tuple[str, str] | None
    """What CI means; None where it is unknown."""


_UNKNOWN = Grid(float("nan"), None)


def grids_of(candidates: Candidates, helpers: Candidates, now_unix_s: float) -> dict[str | None, Grid]:
    """Of every region of either, and of the unknown one."""
    grids: dict[str | None, Grid] = {None: _UNKNOWN}
    for each in (candidates, helpers):
        for name in each.region_names:
            if name not in grids:
                view = each.region_views.get(name)
                grids[name] = _UNKNOWN if view is None else _grid(view, now_unix_s)
    return grids


def _grid(view: RegionView, now_unix_s: float) -> Grid:
    reading = view.signal.reading
    if reading is None or view.signal.freshness(now_unix_s) is not Freshness.FRESH:
        return _UNKNOWN
    return Grid(view.pue * reading.intensity_g_per_kwh, (reading.signal_type.value, reading.emission_factor.value))


def weights_of(candidates: Candidates, grids: Mapping[str | None, Grid]) -> FloatColumn:
    """PUE · CI where each plan is; NaN where it is unknown."""
    # Code -1 takes the last one.
    values = [grids[name].weight for name in (*candidates.region_names, None)]
    column: FloatColumn = np.array(values)[candidates.region_codes]
    return column


def usable_helpers(
    candidates: Candidates,
    helpers: Candidates,
    policy: DecisionPolicy,
    now_unix_s: float,
    standing: Standing = UNKNOWN_STANDING,
    helper_standing: Standing = UNKNOWN_STANDING,
) -> BoolColumn:
    """Which endpoints the policy allows to do a phase of a request for the candidates: prefillers, encoders."""
    grids = grids_of(candidates, helpers, now_unix_s)
    return usable(candidates, helpers, policy, grids, standing, helper_standing)


def usable(
    candidates: Candidates,
    helpers: Candidates,
    policy: DecisionPolicy,
    grids: Mapping[str | None, Grid],
    standing: Standing,
    helper_standing: Standing,
) -> BoolColumn:
    """`usable_helpers` where the grids are there.

    A helper's grid must be known as well as the candidates', in a signal of the same type: an unknown one would take
    carbon out of the whole decision (`heliotrope.decide.decision.carbon_unusable`).
    """
    named = candidates.region_names
    kinds = {grids[name].kind for name in ((*named, None) if candidates.region_codes.min() < 0 else named)}
    at_limit = regions_at_limit(standing.region_counts, policy.largest_region_share)
    allowed = policy.allowed_regions
    good = [
        (allowed is None or name in allowed) and name not in at_limit and (None in kinds or grids[name].kind in kinds)
        for name in (*helpers.region_names, None)
    ]
    column: BoolColumn = np.array(good, dtype=np.bool_)[helpers.region_codes]
    if policy.power is not None:
        power = policy.power
        column &= enough_power(helpers, helper_standing, power.least_watts, avoid_throttled=power.avoid_throttled)
    return column
