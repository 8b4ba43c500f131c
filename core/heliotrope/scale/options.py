"""The facts as columns: what the program may choose, what it must count, and which groups have to hold.

An option is a variant that carries load, whether its number may change (`low < high`) or not. Options are in the order
of their names, so that a plan does not depend on the order of the facts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, isfinite

import numpy as np
from numpy.typing import NDArray

from heliotrope.api.v1alpha1.common import Role
from heliotrope.scale.facts import DemandForecast, FleetFacts, GroupFacts, RegionFacts, ScalingRules, VariantFacts
from heliotrope.scale.plan import Reason
from heliotrope.scale.stabilise import Reach, reach
from heliotrope.scale.terms import GroupTerms, group_terms

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

NO_REGION = -1
LEAST_ARRIVALS = 0.5
"""With fewer requests expected over the whole horizon (upper quantile) a group that may go to zero has no load."""
LEAST_LOAD_SHARE = 1e-3
"""Of the smallest replica: the load that a group without any is planned for, so that one whole chain is there."""


@dataclass(frozen=True, slots=True)
class Limit:
    """Something that variants of a region share."""

    region: int
    accelerator: str | None
    """Accelerators of this type; None: watts."""
    high: float
    """In accelerators or watts."""


@dataclass(frozen=True, slots=True)
class GroupColumns:
    """A group; arrays have one value per step."""

    facts: GroupFacts
    held: Reason | None
    """Why it is not planned."""
    terms: GroupTerms
    members: Integers
    """Its options."""
    demand: Floats
    """Requests per second that capacity is planned for: upper quantile and warm reserve."""
    load_share: Floats
    """Share of a replica's capacity that may be used."""
    least: int
    """Replicas that must be there."""
    region_shares: dict[int, float]
    """Most of its load by region, where that is less than all."""


@dataclass(frozen=True, slots=True)
class Options:
    """N options over H steps."""

    variants: tuple[VariantFacts, ...]
    regions: tuple[RegionFacts, ...]
    group: Integers
    region: Integers
    entry: Flags
    """Takes requests in: it serves prefill, or both phases."""
    exit: Flags
    """Ends them: it serves decode, or both phases."""
    usable: Flags
    """Whether it may carry load."""
    current: Integers
    low: Integers
    high: Integers
    """Of step 0; so is `low`."""
    reaches: tuple[Reach | None, ...]
    """None: its number may not change."""
    later_low: Integers
    """Of later steps; so is the next."""
    later_high: Integers
    ceiling: Floats
    """A hub's; infinite without one."""
    capacity: Floats
    """Requests per second of a replica."""
    available: Floats
    """Replicas that serve in each step of those that are wanted already, shape (N, H)."""
    lead: Integers
    """Steps from the wish for a replica until it serves."""
    rise: Floats
    """Most replicas that a later step adds."""
    accelerators: Integers
    loaded_watts: Floats
    """Of a replica at its capacity, the host's included; what is unknown counts 0."""
    start_seconds: Floats
    groups: tuple[GroupColumns, ...]
    limits: tuple[Limit, ...]
    in_limit: tuple[Integers, ...]
    """Options of each limit."""
    limits_of: tuple[tuple[tuple[int, float], ...], ...]
    """The limits of each option, with what a replica takes of each."""
    free_now: Floats
    """Of each limit, for growth in step 0; at least 0."""
    free_later: Floats
    """Of each limit, for all replicas of later steps beside groups that hold; at least what cannot go away."""
    step_seconds: float

    @property
    def steps(self) -> int:
        """H."""
        return int(self.available.shape[1])


def prepare(facts: FleetFacts) -> Options:
    """Sort facts out. Variants of unknown replicas are no options."""
    groups = sorted(facts.groups, key=lambda group: group.name)
    group_index = {group.name: index for index, group in enumerate(groups)}
    regions = tuple(sorted(facts.regions, key=lambda region: region.name))
    region_index = {region.name: index for index, region in enumerate(regions)}
    everyone = sorted(facts.variants, key=lambda variant: variant.name)
    by_group: list[list[VariantFacts]] = [[] for _ in groups]
    for variant in everyone:
        by_group[group_index[variant.group]].append(variant)
    held = [_why_held(group, members) for group, members in zip(groups, by_group, strict=True)]
    variants = tuple(v for v in everyone if v.replicas is not None)
    rules = [groups[group_index[v.group]].rules for v in variants]
    steps = max((len(g.demand.upper) for g in groups if g.demand is not None), default=1)
    steps = max(steps, 1)
    count = len(variants)
    current = np.array([v.replicas.wanted if v.replicas else 0 for v in variants], dtype=np.int64)
    capacity = np.array([_capacity(v) for v in variants], dtype=np.float64)
    reaches: list[Reach | None] = []
    low, high = current.copy(), current.copy()
    later_low, later_high = current.copy(), current.copy()
    for i, v in enumerate(variants):
        bounds = reach(v, rules[i], facts.now_unix_s) if _movable(v) else None
        reaches.append(bounds)
        if bounds is not None:
            low[i], high[i] = bounds.low, bounds.high
            later_low[i], later_high[i] = v.min_replicas, max(v.max_replicas or 0, v.min_replicas)
    usable = np.array([_usable(v, rules[i]) for i, v in enumerate(variants)], dtype=np.bool_)
    lead = np.array([_lead(v, facts.step_seconds, steps) for v in variants], dtype=np.int64)
    rise = np.array(
        [max(int(facts.step_seconds / each.interval_seconds), 1) * each.scale_up.max_replicas for each in rules],
        dtype=np.float64,
    )
    region = np.array([region_index.get(v.region or "", NO_REGION) for v in variants], dtype=np.int64)
    accelerators = np.array([v.accelerators_per_replica for v in variants], dtype=np.int64)
    standing = np.array([_standing_watts(v) for v in variants], dtype=np.float64)
    per_rate = np.array(
        [(v.capacity.joules_per_request or 0.0) if v.capacity else 0.0 for v in variants], dtype=np.float64
    )
    loaded = standing + per_rate * capacity
    limits, in_limit = _limits(regions, variants, region)
    free_now, free_later = np.zeros(len(limits)), np.zeros(len(limits))
    limits_of: list[list[tuple[int, float]]] = [[] for _ in variants]
    holds = np.array([held[group_index[v.group]] is not None for v in variants], dtype=np.bool_)
    for index, (limit, members) in enumerate(zip(limits, in_limit, strict=True)):
        place = regions[limit.region]
        weight = weights_in(limit, members, accelerators, loaded)
        foreign, draining = 0.0, 0.0
        if limit.accelerator is not None:
            foreign = float(place.foreign_accelerators.get(limit.accelerator, 0))
            draining = sum(
                float(variants[i].accelerators_per_replica * counts.draining)
                for i in members
                if (counts := variants[i].replicas) is not None
            )
        free_now[index] = max(limit.high - foreign - draining - float(weight @ current[members]), 0.0)
        waits = holds[members]
        kept = float(weight[waits] @ current[members[waits]])
        free_later[index] = max(limit.high - foreign - kept, float(weight[~waits] @ later_low[members[~waits]]))
        for i, each in zip(members, weight, strict=True):
            limits_of[i].append((index, float(each)))
    roles = [v.role for v in variants]
    members_of: list[list[int]] = [[] for _ in groups]
    for i, v in enumerate(variants):
        members_of[group_index[v.group]].append(i)
    usable_capacity = capacity * usable
    return Options(
        variants=variants,
        regions=regions,
        group=np.array([group_index[v.group] for v in variants], dtype=np.int64),
        region=region,
        entry=np.array([role is not Role.DECODE for role in roles], dtype=np.bool_),
        exit=np.array([role is not Role.PREFILL for role in roles], dtype=np.bool_),
        usable=usable,
        current=current,
        low=low,
        high=high,
        reaches=tuple(reaches),
        later_low=later_low,
        later_high=later_high,
        ceiling=np.array([np.inf if v.ceiling is None else v.ceiling for v in variants], dtype=np.float64),
        capacity=capacity,
        available=np.array([_available(v, facts.step_seconds, steps) for v in variants]).reshape(count, steps),
        lead=lead,
        rise=rise,
        accelerators=accelerators,
        loaded_watts=loaded,
        start_seconds=np.array([v.start_seconds for v in variants], dtype=np.float64),
        groups=tuple(
            _columns(
                group,
                why,
                np.array(members, dtype=np.int64),
                facts.step_seconds,
                variants,
                usable_capacity,
                current,
                regions,
                steps,
            )
            for group, why, members in zip(groups, held, members_of, strict=True)
        ),
        limits_of=tuple(map(tuple, limits_of)),
        limits=limits,
        in_limit=in_limit,
        free_now=free_now,
        free_later=free_later,
        step_seconds=facts.step_seconds,
    )


def weights_in(limit: Limit, members: Integers, accelerators: Integers, loaded_watts: Floats) -> Floats:
    """What a replica of each member takes of a limit: accelerators, or its watts under full load."""
    return (loaded_watts if limit.accelerator is None else accelerators.astype(np.float64))[members]


def _why_held(group: GroupFacts, members: Sequence[VariantFacts]) -> Reason | None:
    demand = group.demand
    if demand is None or not demand.upper or not all(map(isfinite, (*demand.upper, *demand.expected))):
        return Reason.DEMAND_UNKNOWN
    for variant in members:
        if variant.replicas is None:
            return Reason.METRICS_UNKNOWN
        # It serves, and nobody knows how much: the others cannot know what is left for them.
        if variant.capacity is None and variant.replicas.serving > 0 and variant.load.requests_per_second is None:
            return Reason.METRICS_UNKNOWN
    usable = [v for v in members if _usable(v, group.rules) and v.capacity is not None]
    if usable and all(v.capacity is not None and not v.capacity.requests_per_second > 0.0 for v in usable):
        return Reason.SLO_OUT_OF_REACH
    return None


def _movable(variant: VariantFacts) -> bool:
    return (
        variant.managed
        and variant.max_replicas is not None
        and variant.replicas is not None
        and variant.capacity is not None
    )


def _capacity(variant: VariantFacts) -> float:
    if variant.capacity is not None:
        return max(variant.capacity.requests_per_second, 0.0)
    serving = variant.replicas.serving if variant.replicas is not None else 0
    return (variant.load.requests_per_second or 0.0) / serving if serving > 0 else 0.0


def _usable(variant: VariantFacts, rules: ScalingRules) -> bool:
    if rules.allowed_regions is not None and variant.region not in rules.allowed_regions:
        return False
    return rules.quality_floor is None or (variant.quality is not None and variant.quality >= rules.quality_floor)


def _lead(variant: VariantFacts, step_seconds: float, steps: int) -> int:
    return min(ceil(variant.start_seconds / step_seconds), steps - 1)


def _available(variant: VariantFacts, step_seconds: float, steps: int) -> list[float]:
    counts = variant.replicas
    if counts is None:
        return [0.0] * steps
    times = sorted(counts.starting_ready_seconds)[: counts.starting]
    times += [variant.start_seconds] * (counts.starting - len(times))
    return [counts.serving + sum(time <= step * step_seconds for time in times) for step in range(steps)]


def _standing_watts(variant: VariantFacts) -> float:
    if variant.capacity is None:
        return 0.0
    return (variant.capacity.idle_watts or 0.0) + (variant.capacity.host_watts or 0.0)


def _limits(
    regions: tuple[RegionFacts, ...], variants: tuple[VariantFacts, ...], region: Integers
) -> tuple[tuple[Limit, ...], tuple[Integers, ...]]:
    limits: list[Limit] = []
    members: list[Integers] = []
    types = np.array([variant.accelerator_type for variant in variants])
    for index, place in enumerate(regions):
        here = np.flatnonzero(region == index)
        for accelerator in sorted(place.accelerators):
            inside = here[types[here] == accelerator] if len(here) else here
            if len(inside):
                limits.append(Limit(index, accelerator, float(place.accelerators[accelerator])))
                members.append(inside)
        if place.max_watts is not None and len(here):
            limits.append(Limit(index, None, place.max_watts))
            members.append(here)
    return tuple(limits), tuple(members)


def _columns(
    group: GroupFacts,
    held: Reason | None,
    members: Integers,
    step_seconds: float,
    variants: tuple[VariantFacts, ...],
    capacity: Floats,
    current: Integers,
    regions: tuple[RegionFacts, ...],
    steps: int,
) -> GroupColumns:
    rules, forecast = group.rules, group.demand
    if held is not None or forecast is None:
        forecast = DemandForecast((0.0,), (0.0,), None)
    upper, expected = _padded(forecast.upper, steps), _padded(forecast.expected, steps)
    upper = np.maximum(upper, expected)
    share = np.divide(expected, upper, out=np.ones(steps), where=upper > 0.0)
    demand = upper * (1.0 + rules.warm_reserve_share)
    arrivals = float(upper.sum()) * step_seconds
    idle = arrivals < LEAST_ARRIVALS and group.held_requests <= 0.0
    smallest = capacity[members][capacity[members] > 0.0].min(initial=np.inf)
    least = 0
    if rules.scale_to_zero and idle:
        demand = np.zeros(steps)
    elif isfinite(smallest):
        demand = np.maximum(demand, LEAST_LOAD_SHARE * smallest)
        least = max(rules.least_awake, 1)
    there = served_together(variants, members, capacity * current)
    used = np.divide(demand, there, out=np.full(steps, np.inf), where=there > 0.0)
    # Between the two shares the present capacity is just right: what it is made of may change, not how much it is.
    load_share = np.clip(used, rules.scale_down_share, rules.scale_up_share)
    by_region = {
        index: cap
        for index, place in enumerate(regions)
        if (cap := min(place.largest_share, rules.largest_region_share)) < 1.0
    }
    terms = group_terms(group, [variants[i] for i in members], {r.name: r for r in regions}, share, step_seconds)
    return GroupColumns(group, held, terms, members, demand, load_share, least, by_region)


def served_together(variants: tuple[VariantFacts, ...], members: Integers, rates: Floats) -> float:
    """Requests per second that the members carry from first to last token.

    Args:
        variants: all of them.
        members: of the group.
        rates: requests per second of each variant.
    """
    mixed = 0.0
    phases: dict[str | None, dict[Role, float]] = {}
    for i in members:
        variant = variants[i]
        if variant.role is Role.BOTH:
            mixed += float(rates[i])
        else:
            # KV caches go from prefill to decode within a region.
            here = phases.setdefault(variant.region, {Role.PREFILL: 0.0, Role.DECODE: 0.0})
            here[variant.role] += float(rates[i])
    return mixed + sum(min(each.values()) for each in phases.values())


def _padded(values: tuple[float, ...], steps: int) -> Floats:
    """The last value holds on."""
    given = np.asarray(values[:steps], dtype=np.float64)
    return np.concatenate([given, np.full(steps - len(given), given[-1])]) if len(given) < steps else given
