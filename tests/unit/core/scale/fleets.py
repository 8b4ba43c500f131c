"""Small fleets for tests of allocation."""

from dataclasses import replace
from typing import Any

from heliotrope.api.v1alpha1.common import Role
from heliotrope.carbon.signal import EmissionFactor, SignalType
from heliotrope.scale.facts import (
    DemandForecast,
    FleetFacts,
    GroupFacts,
    Load,
    Mix,
    RegionFacts,
    ReplicaCapacity,
    ReplicaCounts,
    ScalingRules,
    Step,
    VariantFacts,
)

NOW = 1_700_000_000.0
FREE = ScalingRules(scale_up=Step(1000, 0.0), scale_down=Step(1000, 0.0))
"""No limit of steps or dwell."""


def region(name: str, intensity: float | tuple[float, ...] | None = 300.0, steps: int = 3, **more: Any) -> RegionFacts:
    if isinstance(intensity, float | int):
        intensity = (float(intensity),) * steps
    fields: dict[str, Any] = {"pue": 1.2, "signal": (SignalType.AVERAGE, EmissionFactor.LIFECYCLE)} | more
    return RegionFacts(name, intensity, **fields)


def demand(*upper: float, steps: int = 3, expected: float = 0.9) -> DemandForecast:
    values = upper if len(upper) > 1 else upper * steps
    return DemandForecast(tuple(expected * v for v in values), tuple(values), Mix(500.0, 100.0))


def group(
    forecast: DemandForecast | None, rules: ScalingRules = FREE, name: str = "g", held: float = 0.0
) -> GroupFacts:
    return GroupFacts(name, rules, forecast, held)


def variant(name: str, current: int = 1, rate: float | None = 10.0, **more: Any) -> VariantFacts:
    """One of ten requests per second a replica that serves what it should, unless said otherwise."""
    place = more.pop("region", "r")
    load = more.pop("load", Load(requests_per_second=0.75 * (rate or 0.0) * current))
    watts = more.pop("watts", 100.0)
    each = more.pop("joules", 20.0)
    capacity = None if rate is None else ReplicaCapacity(rate, each, watts, 50.0)
    fields: dict[str, Any] = {
        "group": "g",
        "role": Role.BOTH,
        "accelerator_type": "H100",
        "accelerators_per_replica": 1,
        "min_replicas": 0,
        "max_replicas": 100,
        "replicas": ReplicaCounts(current, current),
        "price_per_hour": 2.0,
    } | more
    return VariantFacts(name, region=place, capacity=capacity, load=load, **fields)


def fleet(groups: Any, regions: Any, variants: Any, step_seconds: float = 300.0) -> FleetFacts:
    def many(x: Any) -> Any:
        return tuple(x) if isinstance(x, list | tuple) else (x,)

    return FleetFacts(NOW, step_seconds, many(groups), many(regions), many(variants))


def scaled(facts: FleetFacts, desired: dict[str, int | None]) -> FleetFacts:
    """The fleet after its plan has been carried out."""
    return replace(
        facts,
        variants=tuple(
            replace(v, replicas=ReplicaCounts(count, count)) if (count := desired[v.name]) is not None else v
            for v in facts.variants
        ),
    )
