"""Which plans may be chosen at all (equation 7), and why the others may not.

Three kinds of constraints. Region, quality and KV capacity are never relaxed. A region's largest share and power
headroom are limits of the fleet: they yield, power first, where they leave no plan that keeps the latency promise. The
promise itself is relaxed last, and then alone: limits hold again for what is left, as far as they leave anything.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from heliotrope.decide.candidates import BoolColumn, Candidates
from heliotrope.decide.estimate import Estimates
from heliotrope.decide.losses import CODE, LossCodes
from heliotrope.decide.losses import INFEASIBLE as INFEASIBLE
from heliotrope.decide.losses import Loss as Loss
from heliotrope.decide.policy import DecisionPolicy
from heliotrope.decide.request import RequestProfile
from heliotrope.decide.shares import regions_at_limit
from heliotrope.decide.standing import UNKNOWN_STANDING, Standing, enough_power

NAN = float("nan")


class Limit(StrEnum):
    """A limit of the fleet, which yields to the latency promise."""

    SHARE = "largest region share"
    POWER = "power headroom"


@dataclass(frozen=True, slots=True)
class Feasibility:
    """Columns of the constraints, apart."""

    allowed: BoolColumn
    """Region, quality and capacity hold; these are never relaxed."""
    in_share: BoolColumn | None
    """The region has not reached its largest share; None: every one is within it. So for power."""
    in_power: BoolColumn | None
    latency_known: BoolColumn
    meets_slo: BoolColumn
    """Latency is known and within the SLO with the policy's certainty."""
    broken: LossCodes
    """The first constraint that each breaks; limits and slowed neighbours, which yield, left out."""
    slowing: BoolColumn | None = None
    """Plans that keep every promise but one: their prefill stalls others for too long; None: none is out for that."""

    def codes(self, relaxed: tuple[Limit, ...] = ()) -> LossCodes:
        """The first constraint that each candidate breaks, limits that were relaxed left out."""
        codes = self.broken.copy()
        # Of what may break several, later ones overwrite; hard constraints come before all of them.
        if self.slowing is not None:
            codes[self.slowing & self.allowed] = CODE[Loss.NEIGHBOURS]
        if self.in_power is not None and Limit.POWER not in relaxed:
            codes[self.allowed & ~self.in_power] = CODE[Loss.POWER]
        if self.in_share is not None and Limit.SHARE not in relaxed:
            codes[self.allowed & ~self.in_share] = CODE[Loss.SHARE]
        return codes


def feasibility(
    request: RequestProfile,
    candidates: Candidates,
    estimates: Estimates,
    policy: DecisionPolicy,
    standing: Standing = UNKNOWN_STANDING,
) -> Feasibility:
    """Check each candidate against the policy. An unknown region or quality fails an allow-list or a floor."""
    from heliotrope.decide.constraints import check

    n, regions = len(candidates), policy.allowed_regions
    in_list = [regions is None or name in regions for name in candidates.region_names]
    columns, broken = np.empty((3, n), dtype=np.bool_), np.empty(n, dtype=np.int8)
    check(
        estimates.ttft_seconds,
        estimates.tpot_seconds,
        estimates.queue_ttft_seconds,
        estimates.ttft_relative_error,
        estimates.tpot_relative_error,
        estimates.kv_fits,
        candidates.quality,
        candidates.region_codes,
        np.array([*in_list, regions is None], dtype=np.bool_),
        _or_nan(policy.quality_floor),
        float(policy.certainty),
        _or_nan(ttft_slo_seconds(request, policy)),
        _or_nan(tpot_slo_seconds(request, policy)),
        _or_nan(policy.ttft_slo_seconds),
        columns,
        broken,
    )
    allowed, known, meets_slo = columns
    power = policy.power
    slowing = _slowing(candidates, estimates, policy, allowed, meets_slo)
    return Feasibility(
        allowed=allowed,
        in_share=_in_share(candidates, policy, standing),
        in_power=None
        if power is None
        else enough_power(candidates, standing, power.least_watts, avoid_throttled=power.avoid_throttled),
        latency_known=known,
        meets_slo=meets_slo if slowing is None else meets_slo & ~slowing,
        broken=broken,
        slowing=slowing,
    )


def _slowing(
    candidates: Candidates, estimates: Estimates, policy: DecisionPolicy, allowed: BoolColumn, meets_slo: BoolColumn
) -> BoolColumn | None:
    """Where a prompt may be prefilled elsewhere, plans that break the TPOT that was promised to others.

    It yields to every other promise: None where no plan is left that breaks none.
    """
    pairs, slo_seconds = candidates.pairs, policy.tpot_slo_seconds
    if pairs is None or slo_seconds is None:
        return None
    seconds = pairs.neighbour_tpot_seconds * (1.0 + policy.certainty * estimates.tpot_relative_error)
    slowing: BoolColumn = meets_slo & (seconds > slo_seconds)  # NaN compares false: nobody decodes there
    return slowing if slowing.any() and (allowed & meets_slo & ~slowing).any() else None


def relaxations(checked: Feasibility) -> list[tuple[BoolColumn | None, tuple[Limit, ...]]]:
    """The limits to try in turn, each a column (None: no limit) with what it gives up."""
    share, power = checked.in_share, checked.in_power
    if share is None and power is None:
        return [(None, ())]
    if power is None:
        return [(share, ()), (None, (Limit.SHARE,))]
    if share is None:
        return [(power, ()), (None, (Limit.POWER,))]
    return [(share & power, ()), (share, (Limit.POWER,)), (None, (Limit.POWER, Limit.SHARE))]


def _in_share(candidates: Candidates, policy: DecisionPolicy, standing: Standing) -> BoolColumn | None:
    full = regions_at_limit(standing.region_counts, policy.largest_region_share)
    if standing.session_region is not None:
        full -= {standing.session_region}
    if not full:
        return None
    column = _by_region(candidates, [name not in full for name in candidates.region_names], unknown=None not in full)
    return None if column.all() else column


def _by_region(candidates: Candidates, values: list[bool], *, unknown: bool) -> BoolColumn:
    # Code -1, of an unknown region, takes the last one.
    column: BoolColumn = np.array([*values, unknown], dtype=np.bool_)[candidates.region_codes]
    return column


def _or_nan(value: float | None) -> float:
    return NAN if value is None else float(value)


def ttft_slo_seconds(request: RequestProfile, policy: DecisionPolicy) -> float | None:
    """The promise that holds for this request: its own, else the policy's; None: there is none."""
    return policy.ttft_slo_seconds if request.ttft_slo_seconds is None else request.ttft_slo_seconds


def tpot_slo_seconds(request: RequestProfile, policy: DecisionPolicy) -> float | None:
    """As `ttft_slo_seconds`."""
    return policy.tpot_slo_seconds if request.tpot_slo_seconds is None else request.tpot_slo_seconds
