"""What the resources mean for each endpoint: pure, from one value to another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from heliotrope.api.v1alpha1 import CarbonPolicy, RegionProfile, WorkloadVariant
from heliotrope.decide.candidates import Embodied, FloatColumn, Hardware
from heliotrope.decide.from_resources import decision_policy, embodied, engine_model, hardware, power_limit_watts
from heliotrope.decide.policy import DecisionPolicy
from heliotrope.decide.rows import describe
from heliotrope.engine.model import EngineModel
from heliotrope.errors import UnknownProfileError
from heliotrope_epp.datalayer.endpoint import ENGINE_TYPE_LABEL, REGION_LABEL, Endpoint, Traits
from heliotrope_epp.datalayer.metrics_text import EngineType
from heliotrope_epp.datalayer.resources import PoolRef, Resources

_DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class World:
    """Resolved resources: what the fast path reads."""

    endpoints: tuple[Endpoint, ...] = ()
    traits: Mapping[str, Traits] = field(default_factory=dict)
    """By endpoint key, one for each."""
    policy: DecisionPolicy | None = None
    """The policy in force on the pool; None: none attaches to it."""
    policy_resource: CarbonPolicy | None = None
    """The CarbonPolicy that `policy` was made of."""
    policy_outdated_because: str | None = None
    """Why the newest version of it could not be used, so that this older one holds; None: this is the newest."""
    conflicts: tuple[str, ...] = ()
    """`namespace/name` of further policies on the pool, which do not hold."""
    regions: Mapping[str, RegionProfile] = field(default_factory=dict)
    priorities: Mapping[str, int] = field(default_factory=dict)
    """Of InferenceObjectives, by name."""
    models: frozenset[str] = frozenset()
    """That the variants serve, also those without an endpoint now."""
    problems: tuple[str, ...] = ()
    """What the resources say that cannot be honoured, each with its reason, those of the source first."""


def resolve(resources: Resources, pool: PoolRef | None, profiles: Mapping[str, EngineModel]) -> World:
    """Resolve resources.

    Args:
        resources: what a source published.
        pool: whose policy is in force. None takes every policy, for a folder that serves a single pool.
        profiles: the shipped engine profiles by name.
    """
    problems = list(resources.problems)
    regions = {region.metadata.name: region for region in resources.regions}
    variants = _resolved_variants(resources.variants, regions, profiles, problems)
    claims = _claims(resources.regions, problems)
    holding, losers = effective_policy(resources.policies, pool)
    if holding is not None and _waits_for_events(holding):
        problems.append(
            f"CarbonPolicy {_qualified(holding)}: spec.demandResponse: a source is asked by the operator, in a "
            f"cluster; without one only planned events are answered, so its weights or objective never hold"
        )
    policy = None if holding is None else _within_rights(decision_policy(holding), resources)
    if policy is not None and policy.models is not None and policy.models.withheld is not None:
        problems.append(f"CarbonPolicy {policy.name}: spec.models: NotGranted: {policy.models.withheld}")
    return World(
        endpoints=resources.endpoints,
        traits={
            endpoint.key: _traits(endpoint, variants, regions, claims, problems) for endpoint in resources.endpoints
        },
        policy=policy,
        policy_resource=holding,
        policy_outdated_because=None if holding is None else resources.outdated_policies.get(_qualified(holding)),
        conflicts=tuple(_qualified(policy) for policy in losers),
        regions=regions,
        priorities=resources.priorities,
        models=frozenset(variant.spec.model for variant in resources.variants),
        problems=tuple(dict.fromkeys(problems)),
    )


def _within_rights(policy: DecisionPolicy, resources: Resources) -> DecisionPolicy:
    """The policy without what its namespace was not granted."""
    if policy.models is None or resources.downgrades_withheld_because is None:
        return policy
    return replace(policy, models=replace(policy.models, withheld=resources.downgrades_withheld_because))


def effective_policy(
    policies: Sequence[CarbonPolicy], pool: PoolRef | None
) -> tuple[CarbonPolicy | None, tuple[CarbonPolicy, ...]]:
    """The policy that holds on a pool, and those that lose to it: the oldest wins, ties go by namespace and name.

    Objects without a creation time (files) tie.
    """
    attached = sorted((policy for policy in policies if _attaches(policy, pool)), key=_precedence)
    return (attached[0], tuple(attached[1:])) if attached else (None, ())


def _waits_for_events(policy: CarbonPolicy) -> bool:
    """Whether a policy of a folder, which no operator serves, asks a source for its events."""
    response = policy.spec.demand_response
    if response is None or response.events is not None or policy.metadata.generation is not None:
        return False
    return response.weights is not None or response.objective is not None


def _attaches(policy: CarbonPolicy, pool: PoolRef | None) -> bool:
    if pool is None:
        return True
    return _namespace(policy) == pool.namespace and any(ref.name == pool.name for ref in policy.spec.target_refs)


def _precedence(policy: CarbonPolicy) -> tuple[datetime, str, str]:
    created = policy.metadata.creation_timestamp
    return created or datetime.max.replace(tzinfo=UTC), _namespace(policy), policy.metadata.name


@dataclass(frozen=True, slots=True)
class _Variant:
    resource: WorkloadVariant
    engine: EngineModel | None
    hardware: Hardware
    hardware_row: FloatColumn
    embodied: Embodied | None
    price_per_hour: float | None


def _resolved_variants(
    variants: Sequence[WorkloadVariant],
    regions: Mapping[str, RegionProfile],
    profiles: Mapping[str, EngineModel],
    problems: list[str],
) -> list[_Variant]:
    resolved = []
    currencies = {variant.spec.currency for variant in variants if variant.spec.price_per_hour is not None}
    if len(currencies) > 1:
        problems.append(f"WorkloadVariants have prices in {', '.join(sorted(currencies))}: cost is unknown everywhere")
    # Equal models become one object: decisions compute each only once for all its endpoints.
    engines: dict[EngineModel, EngineModel] = {}
    for variant in sorted(variants, key=_qualified):
        name = f"WorkloadVariant {_qualified(variant)}"
        engine = None
        try:
            engine = engine_model(variant, profiles)
            engine = engine if engine is None else engines.setdefault(engine, engine)
        except UnknownProfileError as error:
            problems.append(f"{name}: {error}")
        ref = variant.spec.region_ref
        if ref is not None and ref.name not in regions:
            problems.append(f"{name}: spec.regionRef.name: there is no RegionProfile {ref.name!r}")
        price = variant.spec.price_per_hour if len(currencies) == 1 else None
        stated = hardware(variant)
        row = describe(stated, engine).row()
        resolved.append(_Variant(variant, engine, stated, row, embodied(variant), price))
    return resolved


def _claims(regions: Sequence[RegionProfile], problems: list[str]) -> dict[str, str]:
    """Node region → the RegionProfile that claims it, the first by name where several do."""
    claims: dict[str, str] = {}
    for region in sorted(regions, key=lambda each: each.metadata.name):
        for topology in region.spec.topology_regions:
            holder = claims.setdefault(topology, region.metadata.name)
            if holder != region.metadata.name:
                problems.append(
                    f"RegionProfile {region.metadata.name}: spec.topologyRegions: {topology!r} is already "
                    f"claimed by {holder!r}, which holds"
                )
    return claims


def _traits(
    endpoint: Endpoint,
    variants: Sequence[_Variant],
    regions: Mapping[str, RegionProfile],
    claims: Mapping[str, str],
    problems: list[str],
) -> Traits:
    engine_type = endpoint.labels.get(ENGINE_TYPE_LABEL)
    if engine_type is not None and engine_type not in list(EngineType):
        problems.append(f"endpoint {endpoint.key}: label {ENGINE_TYPE_LABEL}: {engine_type!r} is read as vllm")
    variant = _variant_of(endpoint, variants, problems)
    region = _region_of(endpoint, variant, regions, claims, problems)
    if variant is None:
        return Traits(region=region)
    spec = variant.resource.spec
    return Traits(
        variant=_qualified(variant.resource),
        region=region,
        engine=variant.engine,
        quality=spec.quality,
        price_per_hour=variant.price_per_hour,
        currency=None if variant.price_per_hour is None else spec.currency,
        embodied=variant.embodied,
        power_limit_watts=power_limit_watts(variant.resource),
        hardware=variant.hardware,
        hardware_row=variant.hardware_row,
    )


def _variant_of(endpoint: Endpoint, variants: Sequence[_Variant], problems: list[str]) -> _Variant | None:
    """The variant that selects an endpoint, the first by name where several do."""
    matching = [
        variant
        for variant in variants
        if _namespace(variant.resource) == endpoint.namespace
        and variant.resource.spec.endpoint_selector.matches(endpoint.labels)
    ]
    if len(matching) > 1:
        names = [_qualified(variant.resource) for variant in matching]
        problems.append(f"WorkloadVariants {', '.join(names)} select the same endpoints; {names[0]} holds")
    return matching[0] if matching else None


def _region_of(
    endpoint: Endpoint,
    variant: _Variant | None,
    regions: Mapping[str, RegionProfile],
    claims: Mapping[str, str],
    problems: list[str],
) -> str | None:
    ref = None if variant is None else variant.resource.spec.region_ref
    if ref is not None:
        return ref.name
    label = endpoint.labels.get(REGION_LABEL)
    if label:
        if label not in regions:
            problems.append(f"endpoint {endpoint.key}: label {REGION_LABEL}: there is no RegionProfile {label!r}")
        return label
    return None if endpoint.node_region is None else claims.get(endpoint.node_region)


def _namespace(resource: CarbonPolicy | WorkloadVariant) -> str:
    return resource.metadata.namespace or _DEFAULT_NAMESPACE


def _qualified(resource: CarbonPolicy | WorkloadVariant) -> str:
    return f"{_namespace(resource)}/{resource.metadata.name}"
