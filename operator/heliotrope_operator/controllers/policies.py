"""CarbonPolicy: whether it holds at its pools, whether it acts, and whether carbon counts in its decisions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from heliotrope.api.v1alpha1 import CarbonPolicy
from heliotrope.api.v1alpha1.carbonpolicy import (
    CONTROLLER_NAME,
    AncestorRef,
    CarbonPolicyStatus,
    PolicyAncestorStatus,
    PolicyReason,
    TargetRef,
)
from heliotrope.api.v1alpha1.common import Condition, ConditionStatus, Enforcement
from heliotrope.api.v1alpha1.regionprofile import Freshness, Signal
from heliotrope_operator.cluster import Cluster
from heliotrope_operator.conditions import ConditionType, Finding, Transition, settle, transitions
from heliotrope_operator.controllers.unreadable import report
from heliotrope_operator.kinds.pools import pool_key
from heliotrope_operator.kinds.regions import region_key
from heliotrope_operator.lookup import Lookup
from heliotrope_operator.resources import Key, Kind
from heliotrope_operator.writer import Writer

MAX_ANCESTORS = 16
OWN_CONDITIONS = frozenset({ConditionType.ACCEPTED, ConditionType.ENFORCED, ConditionType.SIGNALS_FRESH})
"""Other conditions of a policy are other parts'."""


@dataclass(frozen=True, slots=True)
class Target:
    """One target of a policy as it stands."""

    name: str
    exists: bool
    served: bool
    """Whether the API server serves InferencePools at all."""
    winner: str | None
    """`namespace/name` of the policy that holds there."""


@dataclass(frozen=True, slots=True)
class Region:
    """One region that the policy's requests may go to."""

    name: str
    signal: Signal | None
    """None: there is no such RegionProfile."""
    freshness: Freshness | None
    """None: its source has not been asked yet."""


@dataclass(frozen=True, slots=True)
class PolicyFacts:
    """What a policy's status depends on beside the policy."""

    targets: tuple[Target, ...]
    regions: tuple[Region, ...]


class PolicyController:
    """Writes what became of each policy."""

    def __init__(self, cluster: Cluster, lookup: Lookup, writer: Writer, *, unix_clock: Callable[[], float]) -> None:
        self._cluster = cluster
        self._lookup = lookup
        self._writer = writer
        self._unix_clock = unix_clock

    async def reconcile(self, key: Key) -> float | None:
        """Bring the status up to date; see `RegionController.reconcile`."""
        now = datetime.fromtimestamp(int(self._unix_clock()), UTC)
        policy = self._cluster.policies.get(key)
        if policy is None:
            unreadable = self._cluster.unreadable.get(key)
            if unreadable is not None:
                return await report(self._writer, key, unreadable, ConditionType.ACCEPTED, now)
            self._writer.forget(key)
            return None
        await self._lookup.confirm(pool_key(key.namespace, ref.name) for ref in policy.spec.target_refs)
        facts = policy_facts(self._cluster, key, policy)
        if any(region.signal is None for region in facts.regions):
            await self._lookup.confirm(region_key(region.name) for region in facts.regions)
            facts = policy_facts(self._cluster, key, policy)
        status = policy_status(policy, facts, now)
        return await self._writer.status(
            key, policy.metadata, policy.status, status, policy_transitions(policy.status, status)
        )


def policy_facts(cluster: Cluster, key: Key, policy: CarbonPolicy) -> PolicyFacts:
    """What is known of the policy's pools, rivals and regions."""
    pools = [pool_key(key.namespace, ref.name) for ref in policy.spec.target_refs]
    served = cluster.served.get(Kind.INFERENCE_POOL, True)
    targets = tuple(
        Target(pool.name, cluster.pools.get(pool) is not None, served, policy_name(cluster.winner(pool)))
        for pool in pools
    )
    return PolicyFacts(targets, _regions(cluster, pools, policy.spec.placement.allowed_regions))


def _regions(cluster: Cluster, pools: Sequence[Key], allowed: Sequence[str] | None) -> tuple[Region, ...]:
    """Regions of the variants whose pods can be in one of the pools."""
    names = set()
    for key in set().union(*(cluster.variants_of(pool) for pool in pools)):
        variant = cluster.variants.get(key)
        if variant is not None and variant.spec.region_ref is not None:
            names.add(variant.spec.region_ref.name)
    regions = []
    for name in sorted(names if allowed is None else names.intersection(allowed)):
        profile = cluster.regions.get(region_key(name))
        status = None if profile is None else profile.status
        freshness = None if status is None else status.freshness
        regions.append(Region(name, None if profile is None else profile.spec.signal, freshness))
    return tuple(regions)


def policy_name(policy: CarbonPolicy | None) -> str | None:
    """`namespace/name`."""
    return None if policy is None else f"{policy.metadata.namespace}/{policy.metadata.name}"


def policy_status(policy: CarbonPolicy, facts: PolicyFacts, now: datetime) -> CarbonPolicyStatus:
    """The status of a policy. Entries of other controllers stay as they are."""
    previous = policy.status
    generation = policy.metadata.generation
    own = {
        entry.ancestor_ref.name: entry.conditions
        for entry in (() if previous is None else previous.ancestors)
        if entry.controller_name == CONTROLLER_NAME
    }
    others = tuple(
        entry for entry in (() if previous is None else previous.ancestors) if entry.controller_name != CONTROLLER_NAME
    )
    findings = {target.name: _accepted_at(policy, target) for target in facts.targets}
    ancestors = tuple(
        _ancestor(policy, ref, settle(own.get(ref.name, ()), [findings[ref.name]], generation, now))
        for ref in policy.spec.target_refs
    )
    accepted = [name for name, finding in findings.items() if finding.status is ConditionStatus.TRUE]
    return CarbonPolicyStatus(
        observed_generation=generation,
        ancestors=(*ancestors[: MAX_ANCESTORS - len(others)], *others),
        conditions=settle(
            () if previous is None else previous.conditions,
            [_accepted(findings, accepted), _enforced(policy, accepted), _signals_fresh(facts.regions)],
            generation,
            now,
            own=OWN_CONDITIONS,
        ),
        demand_response=None if previous is None else previous.demand_response,
    )


def policy_transitions(before: CarbonPolicyStatus | None, after: CarbonPolicyStatus) -> list[Transition]:
    """What to tell: `Accepted` for each pool, the other conditions once."""
    known = {
        (entry.controller_name, entry.ancestor_ref.name): entry.conditions
        for entry in (() if before is None else before.ancestors)
    }
    changes = []
    for entry in after.ancestors:
        if entry.controller_name == CONTROLLER_NAME:
            name = entry.ancestor_ref.name
            conditions = known.get((entry.controller_name, name), ())
            changes.extend(transitions(conditions, entry.conditions))
    changes.extend(
        transitions(
            () if before is None else before.conditions,
            [each for each in after.conditions if each.type in OWN_CONDITIONS - {ConditionType.ACCEPTED}],
        )
    )
    return changes


def _ancestor(policy: CarbonPolicy, ref: TargetRef, conditions: tuple[Condition, ...]) -> PolicyAncestorStatus:
    reference = AncestorRef(group=ref.group, kind=ref.kind, namespace=policy.metadata.namespace, name=ref.name)
    return PolicyAncestorStatus(ancestor_ref=reference, controller_name=CONTROLLER_NAME, conditions=conditions)


def _accepted_at(policy: CarbonPolicy, target: Target) -> Finding:
    kind = ConditionType.ACCEPTED
    if not target.served:
        message = "this cluster has no InferencePools: install the CRDs of the Gateway API Inference Extension"
        return Finding(kind, ConditionStatus.FALSE, PolicyReason.TARGET_NOT_FOUND.value, message)
    if not target.exists:
        message = f"there is no InferencePool {policy.metadata.namespace}/{target.name}"
        return Finding(kind, ConditionStatus.FALSE, PolicyReason.TARGET_NOT_FOUND.value, message)
    if target.winner != policy_name(policy):
        message = f"the older CarbonPolicy {target.winner} holds on InferencePool {target.name}"
        return Finding(kind, ConditionStatus.FALSE, PolicyReason.CONFLICTED.value, message)
    return Finding(kind, ConditionStatus.TRUE, PolicyReason.ACCEPTED.value, f"holds on InferencePool {target.name}")


def _accepted(findings: dict[str, Finding], accepted: Sequence[str]) -> Finding:
    """Over all targets; one that fails speaks for the policy."""
    failed = [finding for finding in findings.values() if finding.status is not ConditionStatus.TRUE]
    if not failed:
        message = f"holds on {_pools(accepted)}"
        return Finding(ConditionType.ACCEPTED, ConditionStatus.TRUE, PolicyReason.ACCEPTED.value, message)
    prefix = f"holds on {len(accepted)} of {len(findings)} pools: " if len(findings) > 1 else ""
    message = prefix + "; ".join(finding.message for finding in failed)
    return Finding(ConditionType.ACCEPTED, ConditionStatus.FALSE, failed[0].reason, message)


def _enforced(policy: CarbonPolicy, accepted: Sequence[str]) -> Finding:
    kind = ConditionType.ENFORCED
    if policy.spec.enforcement is Enforcement.ADVISE:
        message = "spec.enforcement is Advise: it computes and reports, and changes nothing"
        return Finding(kind, ConditionStatus.FALSE, "AdviseOnly", message)
    if not accepted:
        return Finding(kind, ConditionStatus.FALSE, "NotAccepted", "it holds on no pool")
    return Finding(kind, ConditionStatus.TRUE, "Enforced", f"acts on {_pools(accepted)}")


def _signals_fresh(regions: Sequence[Region]) -> Finding:
    kind = ConditionType.SIGNALS_FRESH
    if not regions:
        message = "no WorkloadVariant of the pools names a region, so it is not known whether carbon counts"
        return Finding(kind, ConditionStatus.UNKNOWN, "NoRegions", message)
    missing = [
        f"there is no RegionProfile {region.name}" if region.signal is None else f"{region.name} is {region.freshness}"
        for region in regions
        if region.signal is None or region.freshness in (Freshness.STALE, Freshness.ABSENT)
    ]
    if missing:
        message = f"carbon drops out of decisions: {', '.join(missing)}"
        return Finding(kind, ConditionStatus.FALSE, "SignalsStale", message)
    if any(region.freshness is None for region in regions):
        return Finding(kind, ConditionStatus.UNKNOWN, "SignalsPending", "the sources of the regions are being asked")
    kinds = {
        region.name: f"{region.signal.type} {region.signal.emission_factor}" for region in regions if region.signal
    }
    if len(set(kinds.values())) > 1:
        described = ", ".join(f"{name} is {signal}" for name, signal in kinds.items())
        message = f"carbon drops out of decisions, as signals of different kinds cannot be compared: {described}"
        return Finding(kind, ConditionStatus.FALSE, "MixedSignals", message)
    return Finding(kind, ConditionStatus.TRUE, "SignalsFresh", f"carbon counts: {', '.join(kinds)}")


def _pools(names: Sequence[str]) -> str:
    return f"InferencePool{'s' if len(names) > 1 else ''} {', '.join(names)}"
