"""Facts without what is no amount: NaN, infinities, absurd sizes and negative amounts are unknown, not numbers.

One such value in the program of a part makes HiGHS run without end, and a plan that never comes is no plan for anybody;
as a measured load it would let busy engines look idle.
"""

from dataclasses import replace
from math import isfinite

from heliotrope.scale.facts import FleetFacts, Load, RegionFacts, ReplicaCapacity, ReplicaCounts, VariantFacts

MOST = 1e9
"""Requests per second, watts, joules, grams or money: no replica, region or price has more."""
ASSUMED_START_SECONDS = 120.0


def known(facts: FleetFacts) -> FleetFacts:
    """The same facts, with None for what is no amount. Demands are left to whoever holds on those that are none."""
    return replace(
        facts,
        groups=tuple(replace(each, held_requests=_amount(each.held_requests) or 0.0) for each in facts.groups),
        regions=tuple(_region(each) for each in facts.regions),
        variants=tuple(_variant(each) for each in facts.variants),
    )


def _region(region: RegionFacts) -> RegionFacts:
    intensity, price = region.intensity_g_per_kwh, region.electricity_price_per_kwh
    return replace(
        region,
        intensity_g_per_kwh=intensity if intensity is None or all(_is_amount(each) for each in intensity) else None,
        pue=_amount(region.pue),
        # Electricity may have a price below zero.
        electricity_price_per_kwh=None if price is None or not _is_amount(abs(price)) else price,
        max_watts=_amount(region.max_watts),
    )


def _variant(variant: VariantFacts) -> VariantFacts:
    load, start = variant.load, _amount(variant.start_seconds)
    return replace(
        variant,
        replicas=None if variant.replicas is None else _counts(variant.replicas),
        capacity=None if variant.capacity is None else _capacity(variant.capacity),
        load=Load(
            _amount(load.requests_per_second),
            _amount(load.waiting_requests),
            _amount(load.running_requests),
            _amount(load.kv_usage),
        ),
        price_per_hour=_amount(variant.price_per_hour),
        embodied_grams_per_hour=_amount(variant.embodied_grams_per_hour),
        quality=_amount(variant.quality),
        start_seconds=ASSUMED_START_SECONDS if start is None else start,
    )


def _counts(counts: ReplicaCounts) -> ReplicaCounts:
    soon = tuple(each for each in counts.starting_ready_seconds if _is_amount(each))
    return replace(counts, starting_ready_seconds=soon)


def _capacity(capacity: ReplicaCapacity) -> ReplicaCapacity | None:
    if not _is_amount(capacity.requests_per_second):
        return None
    return ReplicaCapacity(
        capacity.requests_per_second,
        _amount(capacity.joules_per_request),
        _amount(capacity.idle_watts),
        _amount(capacity.host_watts),
    )


def _amount(value: float | None) -> float | None:
    return value if value is not None and _is_amount(value) else None


def _is_amount(value: float) -> bool:
    return isfinite(value) and 0.0 <= value <= MOST
