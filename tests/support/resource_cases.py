"""For every validation rule of the CRDs: documents that it accepts and documents that it refuses.

Rules of structs are listed by hand; the bounds of decimal strings and durations follow from the schema. A test checks
that no rule is left out.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.resource_documents import (
    DEMAND_SOURCES,
    REMOVED,
    SOURCES,
    Document,
    carbon_policy,
    changed,
    full_documents,
    node_power,
    region_profile,
    value_at,
    workload_variant,
)

from heliotrope.api import crd
from heliotrope.api.scalars import format_decimal, format_duration, parse_duration
from heliotrope.api.v1alpha1 import KINDS

Changes = Mapping[str, Any]
_MARGINAL_DIRECT = {"type": "marginal", "emissionFactor": "direct"}
_AVERAGE_LIFECYCLE = {"type": "average", "emissionFactor": "lifecycle"}
_ANSWERED_BY_OBJECTIVE: Changes = {
    "spec.demandResponse.weights": REMOVED,
    "spec.demandResponse.objective": {"mode": "Lexicographic", "order": ["energy", "latency"]},
}


@dataclass(frozen=True)
class Case:
    """One rule at one place of a kind."""

    kind: str
    place: str
    """Path of the schema that owns the rule, with `[]` for the items of a list."""
    message: str
    field: str
    """Path that an error names."""
    accepted: tuple[Document, ...]
    refused: tuple[Document, ...]


def declared_rules() -> Iterator[tuple[str, str, str]]:
    """Kind, place and message of every rule in the CRDs."""
    for kind, place, rule in _rules():
        yield kind, place, rule["message"]


def cases() -> list[Case]:
    """All cases."""
    return [*_struct_cases(), *_bound_cases()]


def _rules() -> Iterator[tuple[str, str, Mapping[str, str]]]:
    for name, kind in KINDS.items():
        for path, schema in crd.nodes(crd.schema(kind)):
            for rule in schema.get("x-kubernetes-validations", ()):
                yield name, ".".join(path).replace(".[]", "[]").replace(".{}", "{}"), rule


def _case(
    base: Document, place: str, message: str, field: str, *, accepts: tuple[Changes, ...], refuses: tuple[Changes, ...]
) -> Case:
    return Case(
        kind=base["kind"],
        place=place,
        message=message,
        field=field,
        accepted=(base, *(changed(base, changes) for changes in accepts)),
        refused=tuple(changed(base, changes) for changes in refuses),
    )


def _struct_cases() -> list[Case]:
    return [*_region_profile_cases(), *_carbon_policy_cases(), *_workload_variant_cases(), *_node_power_cases()]


def _region_profile_cases() -> Iterator[Case]:
    profile = region_profile()
    yield _case(
        profile,
        "spec.source",
        "set exactly one of electricityMaps, wattTime, neso, energyCharts, entsoe, prometheus, carbonAwareSdk, file, "
        "configMap, static",
        "spec.source",
        accepts=tuple(
            {"spec.source": {name: source}, "spec.signal": region_profile(name)["spec"]["signal"]}
            for name, source in SOURCES.items()
        ),
        refuses=(
            {"spec.source": {}},
            *({f"spec.source.{name}": source} for name, source in SOURCES.items() if name != "static"),
        ),
    )
    yield _case(
        profile,
        "spec",
        "staleAfter must be at least pollInterval, or every value is stale before the next poll",
        "spec.staleAfter",
        accepts=({"spec.staleAfter": "5m"}, {"spec.staleAfter": REMOVED}, {"spec.pollInterval": "7200s"}),
        refuses=({"spec.staleAfter": "4m59s999ms"}, {"spec.pollInterval": "2h1ms"}),
    )
    yield _case(
        region_profile("wattTime"),
        "spec",
        "wattTime gives marginal intensity of direct emissions: set signal.type to marginal and signal.emissionFactor "
        "to direct",
        "spec.signal",
        accepts=({"spec.source": {"prometheus": SOURCES["prometheus"]}, "spec.signal": _AVERAGE_LIFECYCLE},),
        refuses=(
            {"spec.signal": REMOVED},
            {"spec.signal.type": "average"},
            {"spec.signal.emissionFactor": "lifecycle"},
        ),
    )
    yield _case(
        region_profile("neso"),
        "spec",
        "neso gives average intensity of direct emissions: set signal.type to average and signal.emissionFactor to "
        "direct",
        "spec.signal",
        accepts=({"spec.signal.type": REMOVED},),
        refuses=(
            {"spec.signal": REMOVED},
            {"spec.signal": _MARGINAL_DIRECT},
            {"spec.signal.emissionFactor": "lifecycle"},
        ),
    )
    for source in ("electricityMaps", "energyCharts", "entsoe"):
        yield _case(
            region_profile(source),
            "spec",
            "electricityMaps, energyCharts and entsoe give average intensity: set signal.type to average",
            "spec.signal",
            accepts=({"spec.signal": REMOVED}, {"spec.signal.emissionFactor": "direct"}),
            refuses=({"spec.signal": _MARGINAL_DIRECT}, {"spec.signal.type": "marginal"}),
        )


def _carbon_policy_cases() -> Iterator[Case]:
    policy = carbon_policy()
    yield _case(
        policy,
        "spec.targetRefs[]",
        "a CarbonPolicy attaches to an InferencePool of the group inference.networking.k8s.io",
        "spec.targetRefs[1]",
        accepts=({"spec.targetRefs": [{"name": "llama"}]},),
        refuses=(
            {"spec.targetRefs[1].kind": "Service"},
            {"spec.targetRefs[1].group": ""},
            {"spec.targetRefs[1].group": "inference.networking.x-k8s.io"},
        ),
    )
    yield _case(
        policy,
        "spec.objective",
        "order must name each term once",
        "spec.objective.order",
        accepts=(
            {"spec.objective.order": ["latency"]},
            {"spec.objective.order": ["latency", "cost", "energy", "carbon"]},
            {"spec.objective.order": REMOVED},
        ),
        refuses=({"spec.objective.order": ["carbon", "carbon"]}, {"spec.objective.order": ["cost", "energy", "cost"]}),
    )
    no_weights = dict.fromkeys(("latency", "energy", "carbon", "cost", "risk"), "0")
    yield _case(
        policy,
        "spec.objective",
        'mode Weighted needs at least one weight above 0, for instance carbon: "1"',
        "spec.objective.weights",
        accepts=(
            *({"spec.objective.weights": {**no_weights, name: "0.001"}} for name in no_weights),
            {"spec.objective.mode": "Lexicographic", "spec.objective.weights": no_weights},
            {"spec.objective.mode": "SoftMultiplier", "spec.objective.weights": REMOVED},
        ),
        refuses=({"spec.objective.weights": no_weights}, {"spec.objective.weights": REMOVED}),
    )
    yield _case(
        policy,
        "spec.placement",
        "the allowed regions cannot take all requests: raise largestRegionSharePercent to at least 100 divided by "
        "their number",
        "spec.placement.largestRegionSharePercent",
        accepts=(
            {"spec.placement.largestRegionSharePercent": 50},
            {"spec.placement.largestRegionSharePercent": REMOVED, "spec.placement.allowedRegions": ["es"]},
            {"spec.placement.largestRegionSharePercent": 1, "spec.placement.allowedRegions": REMOVED},
        ),
        refuses=(
            {"spec.placement.largestRegionSharePercent": 49},
            {"spec.placement.largestRegionSharePercent": 99, "spec.placement.allowedRegions": ["es"]},
        ),
    )
    yield _case(
        policy,
        "spec.kvActions",
        "allowed must contain Recompute: it is the only action that is always possible",
        "spec.kvActions.allowed",
        accepts=({"spec.kvActions.allowed": ["Recompute"]}, {"spec.kvActions.allowed": REMOVED}),
        refuses=({"spec.kvActions.allowed": ["LocalHit", "PeerTransfer"]},),
    )
    yield _case(
        policy,
        "spec.autoscaling.saturation",
        "scaleDownPercent must be below scaleUpPercent, or replicas would go up and down in turn",
        "spec.autoscaling.saturation.scaleDownPercent",
        accepts=(
            {"spec.autoscaling.saturation.scaleDownPercent": 79},
            {"spec.autoscaling.saturation": {"scaleUpPercent": 71}},
        ),
        refuses=(
            {"spec.autoscaling.saturation.scaleDownPercent": 80},
            {"spec.autoscaling.saturation.scaleDownPercent": 100},
            {"spec.autoscaling.saturation": {"scaleUpPercent": 70}},
        ),
    )
    yield _case(
        policy,
        "spec.power.budget.schedule[]",
        "start and end must differ; for a whole day use 00:00 and 23:59",
        "spec.power.budget.schedule[1].end",
        accepts=({"spec.power.budget.schedule[1].end": "22:01"}, {"spec.power.budget.schedule[1].end": "21:59"}),
        refuses=({"spec.power.budget.schedule[1].end": "22:00"},),
    )
    yield _case(
        policy,
        "spec.power.budget",
        "set watts, schedule or both",
        "spec.power.budget",
        accepts=({"spec.power.budget.watts": REMOVED}, {"spec.power.budget.schedule": REMOVED}),
        refuses=({"spec.power.budget": {}}, {"spec.power.budget": {"schedule": []}}),
    )
    yield _case(
        policy,
        "spec.demandResponse.events[]",
        "end must be after start",
        "spec.demandResponse.events[1].end",
        accepts=(
            {"spec.demandResponse.events[1].end": "2026-01-16T01:00:01Z"},
            {"spec.demandResponse.events[1].end": "2026-01-16T02:00:01+01:00"},
        ),
        refuses=(
            {"spec.demandResponse.events[1].end": "2026-01-16T01:00:00Z"},
            {"spec.demandResponse.events[1].end": "2026-01-16T01:30:00+01:00"},
        ),
    )
    yield _case(
        policy,
        "spec.demandResponse",
        "set exactly one of events, prometheus, http",
        "spec.demandResponse",
        accepts=tuple({"spec.demandResponse": {name: source}} for name, source in DEMAND_SOURCES.items()),
        refuses=(
            {"spec.demandResponse.events": REMOVED},
            {"spec.demandResponse.http": DEMAND_SOURCES["http"]},
            {"spec.demandResponse": DEMAND_SOURCES},
        ),
    )
    yield _case(
        policy,
        "spec",
        "demandResponse needs power, autoscaling, or weights or an objective of its own, or there is nothing to "
        "respond with",
        "spec.demandResponse",
        accepts=(
            {"spec.power": REMOVED},
            {"spec.autoscaling": REMOVED},
            {"spec.power": REMOVED, "spec.autoscaling": REMOVED},
            {"spec.power": REMOVED, "spec.autoscaling": REMOVED, **_ANSWERED_BY_OBJECTIVE},
            {"spec.power": REMOVED, "spec.autoscaling": REMOVED, "spec.demandResponse": REMOVED},
        ),
        refuses=({"spec.power": REMOVED, "spec.autoscaling": REMOVED, "spec.demandResponse.weights": REMOVED},),
    )
    yield _case(
        policy,
        "spec.demandResponse",
        "set weights or objective, not both",
        "spec.demandResponse.objective",
        accepts=(_ANSWERED_BY_OBJECTIVE, {"spec.demandResponse.weights": REMOVED}),
        refuses=({"spec.demandResponse.objective": {"mode": "Lexicographic"}},),
    )
    yield _case(
        policy,
        "spec.demandResponse",
        "at least one weight must be above 0",
        "spec.demandResponse.weights",
        accepts=({"spec.demandResponse.weights": {"energy": "0.5"}},),
        refuses=({"spec.demandResponse.weights": {}}, {"spec.demandResponse.weights": no_weights}),
    )
    for place, base in (
        ("spec.classes[].objective", policy),
        ("spec.demandResponse.objective", carbon_policy(respond="objective")),
    ):
        path = place.replace("[]", "[0]")
        yield _case(
            base,
            place,
            "order must name each term once",
            f"{path}.order",
            accepts=({f"{path}.order": ["risk", "latency", "cost", "energy", "carbon"]},),
            refuses=({f"{path}.order": ["risk", "risk"]},),
        )
        yield _case(
            base,
            place,
            'mode Weighted needs at least one weight above 0, for instance carbon: "1"',
            f"{path}.weights",
            accepts=({f"{path}.mode": "Weighted"},),
            refuses=({f"{path}.mode": "Weighted", f"{path}.weights": no_weights},),
        )
    yield _case(
        policy,
        "spec.classes[]",
        "minPriority must not exceed maxPriority",
        "spec.classes[1].minPriority",
        accepts=({"spec.classes[1].minPriority": 20}, {"spec.classes[1].maxPriority": REMOVED}),
        refuses=({"spec.classes[1].minPriority": 21},),
    )
    yield _case(
        policy,
        "spec",
        "models.classes names a class that spec.classes does not have",
        "spec.models",
        accepts=({"spec.models.classes": []}, {"spec.models": REMOVED}),
        refuses=({"spec.models.classes": ["nobody"]},),
    )
    yield _case(
        policy,
        "spec.models.groups[].members[]",
        "a Lora member must name its base model in servedBy",
        "spec.models.groups[0].members[0].servedBy",
        accepts=({"spec.models.groups[0].members[0].kind": "Quantised"},),
        refuses=({"spec.models.groups[0].members[0].servedBy": REMOVED},),
    )
    for each in ("Ttft", "Tpot"):
        yield _case(
            policy,
            "spec.overrides",
            f"shortest{each} must not exceed longest{each}",
            f"spec.overrides.shortest{each}",
            accepts=({f"spec.overrides.shortest{each}": "1h"}, {f"spec.overrides.longest{each}": REMOVED}),
            refuses=({f"spec.overrides.shortest{each}": "1m1ms", f"spec.overrides.longest{each}": "1m"},),
        )


def _workload_variant_cases() -> Iterator[Case]:
    variant = workload_variant()
    yield _case(
        variant,
        "spec",
        "minReplicas must not exceed maxReplicas",
        "spec.minReplicas",
        accepts=(
            {"spec.minReplicas": 8},
            {"spec.minReplicas": 9, "spec.maxReplicas": REMOVED},
            {"spec.minReplicas": 0, "spec.maxReplicas": 0},
        ),
        refuses=({"spec.minReplicas": 9}, {"spec.minReplicas": REMOVED, "spec.maxReplicas": 0}),
    )
    yield _case(
        variant,
        "spec",
        "energyProfile holds a phase that the role does not serve",
        "spec.energyProfile",
        accepts=(
            {"spec.role": "prefill", "spec.energyProfile[1].phase": "prefill", "spec.energyProfile[1].smClockMhz": 990},
            {"spec.role": "decode", "spec.energyProfile": REMOVED},
        ),
        refuses=({"spec.role": "prefill"}, {"spec.role": "decode"}),
    )
    yield _case(
        variant,
        "spec.energyProfile[]",
        "joulesPerToken × tokensPerSecond must be within 25 % of watts: check the units (joules, not millijoules)",
        "spec.energyProfile[1].joulesPerToken",
        accepts=(
            {"spec.energyProfile[1].joulesPerToken": "0.135"},
            {"spec.energyProfile[1].joulesPerToken": "0.225"},
        ),
        refuses=(
            {"spec.energyProfile[1].joulesPerToken": "180"},
            {"spec.energyProfile[1].joulesPerToken": "0.1349"},
            {"spec.energyProfile[1].joulesPerToken": "0.2251"},
        ),
    )
    yield _case(
        variant,
        "spec.engine",
        "set exactly one of profile, coefficients",
        "spec.engine",
        accepts=({"spec.engine": workload_variant("coefficients")["spec"]["engine"]}, {"spec.engine": REMOVED}),
        refuses=(
            {"spec.engine": {}},
            {"spec.engine.coefficients": workload_variant("coefficients")["spec"]["engine"]["coefficients"]},
        ),
    )
    for base, place in (
        (variant, "spec.clockRange"),
        (workload_variant("coefficients"), "spec.engine.coefficients.clock"),
    ):
        yield _case(
            base,
            place,
            "minMhz must not exceed maxMhz",
            f"{place}.minMhz",
            accepts=({f"{place}.minMhz": 1980},),
            refuses=({f"{place}.minMhz": 1981}, {f"{place}.maxMhz": 10}),
        )
    yield _case(
        variant,
        "spec.wattRange",
        "minWatts must not exceed maxWatts",
        "spec.wattRange.minWatts",
        accepts=({"spec.wattRange.minWatts": 700},),
        refuses=({"spec.wattRange.minWatts": 701}, {"spec.wattRange.maxWatts": 1}),
    )


def _node_power_cases() -> Iterator[Case]:
    names = ("smClockMhz", "memoryClockMhz", "watts", "restingSmClockMhz")
    settings = {f"spec.intents[1].{name}": REMOVED for name in names}
    yield _case(
        node_power(),
        "spec.intents[]",
        "set at least one of smClockMhz, memoryClockMhz, watts, restingSmClockMhz",
        "spec.intents[1]",
        accepts=tuple({name: value for name, value in settings.items() if name != kept} for kept in settings),
        refuses=(settings,),
    )


_POINT = "spec.energyProfile[0]"
_COMPANIONS: Mapping[tuple[str, str], Changes] = {
    ("spec.pollInterval", "24h"): {"spec.staleAfter": "168h"},
    ("spec.staleAfter", "1s"): {"spec.pollInterval": "1s"},
    (f"{_POINT}.tokensPerSecond", "0.001"): {f"{_POINT}.joulesPerToken": "100000", f"{_POINT}.watts": 100},
    (f"{_POINT}.tokensPerSecond", "10000000"): {f"{_POINT}.joulesPerToken": "0.00001", f"{_POINT}.watts": 100},
    (f"{_POINT}.joulesPerToken", "0.000001"): {f"{_POINT}.tokensPerSecond": "10000000", f"{_POINT}.watts": 10},
    (f"{_POINT}.joulesPerToken", "100000"): {f"{_POINT}.tokensPerSecond": "0.001", f"{_POINT}.watts": 100},
}
"""What else must change for a bound to be reached without breaking another rule."""


def _bound_cases() -> Iterator[Case]:
    """Decimal strings and durations: the bounds are accepted and what lies just beyond is refused."""
    documents = full_documents()
    for kind, place, rule in _rules():
        match = re.fullmatch(r"must be (?:between (\S+) and (\S+)|at least (\S+))", rule["message"])
        if match is None:
            continue
        field = place.replace("[]", "[0]")
        base = next(document for document in documents[kind] if _has(document, field))
        least, most = match[1] or match[3], match[2]
        step = _beyond_duration if "duration" in rule["rule"] else _beyond_decimal
        inside = [bound for bound in (least, most) if bound is not None]
        outside = [step(bound, sign) for bound, sign in ((least, -1), (most, 1)) if bound is not None]
        yield Case(
            kind=kind,
            place=place,
            message=rule["message"],
            field=field,
            accepted=tuple(changed(base, {field: value, **_COMPANIONS.get((field, value), {})}) for value in inside),
            refused=tuple(changed(base, {field: value}) for value in outside if value is not None),
        )


def _has(document: Document, field: str) -> bool:
    try:
        value_at(document, field)
    except (KeyError, IndexError):
        return False
    return True


def _beyond_decimal(bound: str, sign: int) -> str | None:
    value = float(bound) * (1 + sign * 1e-6)
    return format_decimal(value) if value != float(bound) else None


def _beyond_duration(bound: str, sign: int) -> str | None:
    beyond = parse_duration(bound) + sign * parse_duration("1ms")
    return format_duration(beyond) if beyond >= parse_duration("0s") else None
