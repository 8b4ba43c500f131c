"""The guard that puts the SLO first: it adds replicas where measured load is too high, and never removes any.

Load is a share of what the serving replicas carry within the SLO. Replicas that are starting already count as an answer
to it, so that the guard does not ask again and again while they start.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf, isfinite

from heliotrope.api.v1alpha1.common import Role
from heliotrope.scale.facts import GroupFacts, VariantFacts

BACKLOG_SECONDS = 60.0
"""Time in which requests that wait in engines' queues are to be worked off, beside what arrives."""
FULL_KV_USAGE = 0.95
"""Share of the KV memory at which an engine is full, whatever its rate."""


@dataclass(frozen=True, slots=True)
class MeasuredLoad:
    """What a group's serving replicas do."""

    requests_per_second: float
    """What arrives, and what the backlog adds."""
    serving_capacity: float
    """Requests per second within the SLO."""
    share: float
    """Load as a share of that; infinite where there is load and nothing serves."""


def measured_load(group: GroupFacts, variants: Sequence[VariantFacts]) -> MeasuredLoad | None:
    """The load of a group now; None: unknown.

    A variant that serves and is not measured makes it unknown: an engine that nobody sees may be the one that is full.

    Args:
        group: for requests that are held.
        variants: its variants.
    """
    rates: list[tuple[Role, str | None, float, float]] = []
    fullest = 0.0
    for variant in variants:
        counts, load = variant.replicas, variant.load
        if counts is None:
            return None
        if counts.serving == 0:
            continue
        rate = load.requests_per_second
        if variant.capacity is None or rate is None or not isfinite(rate):
            return None
        if load.waiting_requests is not None and isfinite(load.waiting_requests):
            rate += load.waiting_requests / BACKLOG_SECONDS
        if load.kv_usage is not None and isfinite(load.kv_usage):
            fullest = max(fullest, load.kv_usage / FULL_KV_USAGE)
        rates.append((variant.role, variant.region, rate, variant.capacity.requests_per_second * counts.serving))
    if not rates:
        waiting = group.held_requests / BACKLOG_SECONDS
        return MeasuredLoad(waiting, 0.0, inf if waiting > 0.0 else 0.0)
    shares, arrivals, capacity = [fullest], 0.0, 0.0
    for roles in ((Role.BOTH, Role.PREFILL), (Role.BOTH, Role.DECODE)):
        rate = sum(each[2] for each in rates if each[0] in roles)
        carried = sum(each[3] for each in rates if each[0] in roles)
        if carried > 0.0:
            shares.append(rate / carried)
        elif rate > 0.0:
            shares.append(inf)
        # Of two phases the one that is nearer to its limit speaks for both.
        if shares[-1] >= max(shares[:-1], default=0.0) or capacity == 0.0:
            arrivals, capacity = rate, carried
    share = max(shares)
    return MeasuredLoad(max(arrivals, share * capacity if isfinite(share) else arrivals), capacity, share)


def raise_to(
    group: GroupFacts,
    variants: Sequence[VariantFacts],
    planned: Mapping[str, int],
    grant: Callable[[VariantFacts, int], int],
    load: MeasuredLoad | None,
) -> dict[str, int]:
    """Replicas at least as planned, with as many more as the measured load needs.

    Args:
        group: whose rules say how high the load may be.
        variants: those of the group that carry load, in the order in which they are raised: the best first.
        planned: replicas that are asked for, by variant.
        grant: how many of so many more replicas a variant may have; they are its own then.
        load: see `measured_load`; None: nothing is raised.
    """
    raised = dict(planned)
    if load is None or not load.share > group.rules.scale_up_share:
        return raised
    for roles in ((Role.BOTH, Role.PREFILL), (Role.BOTH, Role.DECODE)):
        able = [
            (variant, variant.capacity.requests_per_second)
            for variant in variants
            if variant.role in roles and variant.capacity is not None and variant.capacity.requests_per_second > 0.0
        ]
        missing = load.requests_per_second / group.rules.scale_up_share
        missing -= sum(capacity * raised[variant.name] for variant, capacity in able)
        for variant, capacity in able:
            if not missing > 1e-9 * load.requests_per_second:
                break
            more = grant(variant, ceil(missing / capacity - 1e-9))
            raised[variant.name] += more
            missing -= more * capacity
    return raised
