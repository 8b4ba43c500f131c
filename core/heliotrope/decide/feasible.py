"""Which plans may be chosen at all (equation 7), and why the others may not."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from heliotrope.decide.candidates import BoolColumn, Candidates
from heliotrope.decide.estimate import Estimates
from heliotrope.decide.policy import DecisionPolicy
from heliotrope.decide.request import RequestProfile


class Loss(StrEnum):
    """Why a candidate was not chosen."""

    REGION = "region not allowed"
    QUALITY = "quality below the floor"
    CAPACITY = "request does not fit its KV cache"
    TTFT = "TTFT above the SLO"
    TPOT = "TPOT above the SLO"
    QUEUE = "would delay those that wait there beyond the TTFT SLO"
    UNKNOWN = "latency unknown while others are known"
    DOMINATED = "dominated by another plan"
    CARBON = "more carbon"
    ENERGY = "more energy"
    COST = "more cost"
    LATENCY = "slower"
    SCORE = "lower score"
    TIE = "equal, another was drawn"
    SESSION = "the session stays where its KV cache is"


INFEASIBLE = frozenset({Loss.REGION, Loss.QUALITY, Loss.CAPACITY, Loss.UNKNOWN, Loss.TTFT, Loss.TPOT, Loss.QUEUE})
"""Those that are no comparison with another candidate."""


@dataclass(frozen=True, slots=True)
class Feasibility:
    """Columns of the hard constraints and of latency, apart."""

    allowed: BoolColumn
    """Region, quality and capacity hold; these are never relaxed."""
    latency_known: BoolColumn
    meets_slo: BoolColumn
    """Latency is known and within the SLO with the policy's certainty."""
    losses: tuple[Loss | None, ...]
    """The first constraint that each candidate breaks, None where none."""


def feasibility(
    request: RequestProfile, candidates: Candidates, estimates: Estimates, policy: DecisionPolicy
) -> Feasibility:
    """Check each candidate against the policy. An unknown region or quality fails an allow-list or a floor."""
    n = len(candidates)
    in_region = np.ones(n, dtype=np.bool_)
    if policy.allowed_regions is not None:
        in_region = np.array(
            [r is not None and r in policy.allowed_regions for r in candidates.regions], dtype=np.bool_
        )
    good = np.ones(n, dtype=np.bool_)
    if policy.quality_floor is not None:
        good = candidates.quality >= policy.quality_floor  # NaN compares false
    known = np.isfinite(estimates.ttft_seconds) & np.isfinite(estimates.tpot_seconds)
    ttft_ok = _within(estimates.ttft_seconds, estimates.ttft_relative_error, policy, ttft_slo_seconds(request, policy))
    tpot_ok = _within(estimates.tpot_seconds, estimates.tpot_relative_error, policy, tpot_slo_seconds(request, policy))
    queue_ok = _within(estimates.queue_ttft_seconds, estimates.ttft_relative_error, policy, policy.ttft_slo_seconds)
    losses = tuple(
        Loss.REGION
        if not in_region[i]
        else Loss.QUALITY
        if not good[i]
        else Loss.CAPACITY
        if not estimates.kv_fits[i]
        else Loss.UNKNOWN
        if not known[i]
        else Loss.TTFT
        if not ttft_ok[i]
        else Loss.TPOT
        if not tpot_ok[i]
        else Loss.QUEUE
        if not queue_ok[i]
        else None
        for i in range(n)
    )
    return Feasibility(
        allowed=in_region & good & estimates.kv_fits,
        latency_known=known,
        meets_slo=known & ttft_ok & tpot_ok & queue_ok,
        losses=losses,
    )


def _within(
    seconds: np.ndarray[tuple[int], np.dtype[np.float64]],
    relative_error: np.ndarray[tuple[int], np.dtype[np.float64]],
    policy: DecisionPolicy,
    slo_seconds: float | None,
) -> BoolColumn:
    if slo_seconds is None:
        return np.isfinite(seconds)
    return seconds * (1.0 + policy.certainty * relative_error) <= slo_seconds


def ttft_slo_seconds(request: RequestProfile, policy: DecisionPolicy) -> float | None:
    """The promise that holds for this request: its own, else the policy's; None: there is none."""
    return policy.ttft_slo_seconds if request.ttft_slo_seconds is None else request.ttft_slo_seconds


def tpot_slo_seconds(request: RequestProfile, policy: DecisionPolicy) -> float | None:
    """As `ttft_slo_seconds`."""
    return policy.tpot_slo_seconds if request.tpot_slo_seconds is None else request.tpot_slo_seconds
