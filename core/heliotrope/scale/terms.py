"""What a replica and a request cost in each term of the objective, and which terms count for a group.

A term that is unknown for one variant of a group is dropped for all of them, with the reason. Latency and risk are no
terms here: capacity is what replicas carry within the SLO, so that both are constraints.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from heliotrope.api.v1alpha1.objective import ObjectiveMode, Term
from heliotrope.scale.facts import GroupFacts, RegionFacts, VariantFacts
from heliotrope.units import grams_co2e, hours_from_seconds, joules_from_watts, kwh_from_joules

Matrix = NDArray[np.float64]

ACCELERATORS = "accelerators"
"""What counts where no term does: as few accelerators as possible."""


@dataclass(frozen=True, slots=True)
class TermCosts:
    """One term for the variants of a group, shape (variants, steps) each."""

    per_replica: Matrix
    """Of a replica that is there for a step with nothing in flight."""
    per_request_rate: Matrix
    """On top of it for each request per second of the upper demand that it carries for a step."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What is made small, and how much worse than its least it may become for the sake of the next stage."""

    name: str
    costs: TermCosts
    tolerance: float


@dataclass(frozen=True, slots=True)
class GroupTerms:
    """The objective of a group."""

    stages: tuple[Stage, ...]
    names: tuple[str, ...]
    """Terms that count."""
    dropped: tuple[str, ...]
    """Terms that do not, each with its reason."""


def group_terms(
    group: GroupFacts,
    variants: Sequence[VariantFacts],
    regions: dict[str, RegionFacts],
    expected_share: NDArray[np.float64],
    step_seconds: float,
) -> GroupTerms:
    """The stages of a group's objective.

    Args:
        group: whose rules have the objective.
        variants: of the group, those that carry load or may.
        regions: by name.
        expected_share: expected demand as a share of the upper demand, one per step: capacity follows the upper,
            energy the expected.
        step_seconds: length of a step.
    """
    steps, objective = len(expected_share), group.rules.objective
    dropped: list[str] = []
    known: dict[Term, TermCosts] = {}
    energy = _energy(variants, expected_share, step_seconds)
    if isinstance(energy, str):
        dropped.append(f"energy: {energy}")
    else:
        known[Term.ENERGY] = energy
    carbon = _carbon(group, variants, regions, energy, steps, step_seconds)
    if isinstance(carbon, str):
        dropped.append(f"carbon: {carbon}")
    else:
        known[Term.CARBON] = carbon
    cost = _cost(variants, regions, energy, steps, step_seconds)
    if isinstance(cost, str):
        dropped.append(f"cost: {cost}")
    else:
        known[Term.COST] = cost
    wanted: list[Term]
    if objective.mode is ObjectiveMode.LEXICOGRAPHIC:
        wanted = [term for term in objective.order if term not in (Term.LATENCY, Term.RISK)]
        stages = [
            Stage(term.value, known[term], getattr(objective.tolerances_percent, term.value) / 100.0)
            for term in wanted
            if term in known
        ]
    else:
        weights = _weights(group)
        wanted = [term for term in weights if weights[term] > 0.0]
        parts = [(term, weights[term], known[term]) for term in wanted if term in known]
        stages = [Stage("+".join(term.value for term, _, _ in parts), _sum(parts), 0.0)] if parts else []
    names = tuple(term.value for term in wanted if term in known)
    dropped = [line for line in dropped if line.split(":")[0] in {term.value for term in wanted}]
    if not stages:
        accelerators = np.array([[float(v.accelerators_per_replica)] * steps for v in variants]).reshape(-1, steps)
        stages = [Stage(ACCELERATORS, TermCosts(accelerators, np.zeros_like(accelerators)), 0.0)]
        names = (ACCELERATORS,)
    return GroupTerms(tuple(stages), names, tuple(dropped))


def _weights(group: GroupFacts) -> dict[Term, float]:
    objective = group.rules.objective
    if objective.mode is ObjectiveMode.SOFT_MULTIPLIER:
        # A score is multiplied by less the dirtier; as a sum: energy, and carbon at the multiplier's strength.
        return {Term.ENERGY: 1.0, Term.CARBON: objective.soft_multiplier_weight}
    weights = objective.weights
    return {Term.CARBON: weights.carbon, Term.ENERGY: weights.energy, Term.COST: weights.cost}


def _sum(parts: Sequence[tuple[Term, float, TermCosts]]) -> TermCosts:
    """Weighted terms, each in units of its mean over the variants, so that weights compare like with like."""
    per_replica, per_rate = np.zeros_like(parts[0][2].per_replica), np.zeros_like(parts[0][2].per_replica)
    for _, weight, costs in parts:
        unit = float(costs.per_replica.mean()) or float(costs.per_request_rate.mean()) or 1.0
        per_replica += weight / unit * costs.per_replica
        per_rate += weight / unit * costs.per_request_rate
    return TermCosts(per_replica, per_rate)


def _energy(
    variants: Sequence[VariantFacts], expected_share: NDArray[np.float64], step_seconds: float
) -> TermCosts | str:
    standing, each = [], []
    for variant in variants:
        capacity = variant.capacity
        if capacity is None or capacity.joules_per_request is None or capacity.idle_watts is None:
            return f"unknown for {variant.name}"
        standing.append(capacity.idle_watts)
        each.append(capacity.joules_per_request)
    # A host's share counts where it is known of all, or the variant that hides it would seem the best.
    hosts = [variant.capacity.host_watts if variant.capacity else None for variant in variants]
    if all(host is not None for host in hosts):
        standing = [watts + (host or 0.0) for watts, host in zip(standing, hosts, strict=True)]
    replica = joules_from_watts(np.asarray(standing), np.asarray(step_seconds))
    steps = len(expected_share)
    return TermCosts(
        np.repeat(replica[:, None], steps, axis=1),
        np.asarray(each)[:, None] * expected_share[None, :] * step_seconds,
    )


def _carbon(
    group: GroupFacts,
    variants: Sequence[VariantFacts],
    regions: dict[str, RegionFacts],
    energy: TermCosts | str,
    steps: int,
    step_seconds: float,
) -> TermCosts | str:
    if isinstance(energy, str):
        return f"energy {energy}"
    factors = np.zeros((len(variants), steps))
    places: list[RegionFacts] = []
    for row, variant in enumerate(variants):
        region = None if variant.region is None else regions.get(variant.region)
        if region is None:
            return f"unknown region of {variant.name}"
        if region.intensity_g_per_kwh is None or region.signal is None:
            return f"no Fresh signal in {region.name}"
        if region.pue is None:
            return f"unknown PUE of {region.name}"
        intensity = np.asarray(region.intensity_g_per_kwh, dtype=np.float64)
        if len(intensity) < steps or not np.isfinite(intensity).all():
            return f"no forecast for the whole horizon in {region.name}"
        factors[row] = grams_co2e(1.0, region.pue, 1.0) * intensity[:steps]
        places.append(region)
    for one, other in pairwise(places):
        if one.signal != other.signal:
            return f"signals of {one.name} and {other.name} mean different things"
    per_replica = energy.per_replica * factors
    if group.rules.embodied:
        for row, variant in enumerate(variants):
            if variant.embodied_grams_per_hour is None:
                return f"unknown embodied carbon of {variant.name}"
            per_replica[row] += variant.embodied_grams_per_hour * hours_from_seconds(step_seconds)
    return TermCosts(per_replica, energy.per_request_rate * factors)


def _cost(
    variants: Sequence[VariantFacts],
    regions: dict[str, RegionFacts],
    energy: TermCosts | str,
    steps: int,
    step_seconds: float,
) -> TermCosts | str:
    """Rent where it is known of all, as a rent often includes the electricity; else the electricity."""
    if all(variant.price_per_hour is not None for variant in variants):
        currencies = {variant.currency for variant in variants}
        if len(currencies) > 1:
            return f"prices in {' and '.join(sorted(currencies))}"
        prices = np.array([variant.price_per_hour or 0.0 for variant in variants])
        per_replica = np.repeat((prices * hours_from_seconds(step_seconds))[:, None], steps, axis=1)
        return TermCosts(per_replica, np.zeros_like(per_replica))
    if isinstance(energy, str):
        return f"unknown price, and energy {energy}"
    places = [regions.get(variant.region or "") for variant in variants]
    prices_per_kwh: list[float] = []
    for variant, region in zip(variants, places, strict=True):
        if region is None or region.electricity_price_per_kwh is None or region.pue is None:
            return f"unknown price of {variant.name}, and of its electricity"
        prices_per_kwh.append(region.electricity_price_per_kwh * region.pue)
    currencies = {region.currency for region in places if region is not None}
    if len(currencies) > 1:
        return f"electricity prices in {' and '.join(sorted(currencies))}"
    factor = np.asarray(prices_per_kwh)[:, None]
    return TermCosts(kwh_from_joules(energy.per_replica) * factor, kwh_from_joules(energy.per_request_rate) * factor)
