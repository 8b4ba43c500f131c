"""CarbonPolicies: their pools carry their names, and other policies may win or lose those."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, cast

from heliotrope.api.v1alpha1 import CarbonPolicy
from heliotrope_operator.kinds import read
from heliotrope_operator.kinds.pools import pool_key
from heliotrope_operator.kinds.spec import KindSpec, Reader
from heliotrope_operator.kinds.targets import actuations
from heliotrope_operator.resources import RESOURCES, Key, Kind

if TYPE_CHECKING:
    from heliotrope_operator.cluster import Cluster


def policy_key(policy: CarbonPolicy) -> Key:
    """The key of a CarbonPolicy."""
    return Key(Kind.CARBON_POLICY, policy.metadata.namespace or "", policy.metadata.name)


def spec() -> KindSpec[CarbonPolicy]:
    """How CarbonPolicies are watched and remembered; found by `pool`."""
    return KindSpec(
        Kind.CARBON_POLICY,
        RESOURCES[Kind.CARBON_POLICY],
        cast("Reader[CarbonPolicy]", read.own),
        indexes={"pool": lambda key, policy: [pool_key(key.namespace, ref.name) for ref in policy.spec.target_refs]},
        dependents=_dependents,
    )


def _dependents(cluster: Cluster, key: Key, before: CarbonPolicy | None, after: CarbonPolicy | None) -> set[Key]:
    facts, acts = _facts(before) != _facts(after), _acts(before) != _acts(after)
    touched: set[Key] = set()
    for policy in (before, after) if facts or acts else ():
        for ref in () if policy is None else policy.spec.target_refs:
            pool = pool_key(key.namespace, ref.name)
            if facts:
                touched.update((pool, *cluster.policies.by("pool", pool)))
            touched |= actuations(cluster, cluster.variants_of(pool))
    return touched


def _acts(policy: CarbonPolicy | None) -> Hashable:
    """What decides whether and how replicas are made so."""
    return None if policy is None else (_facts(policy), _actuation(policy))


def _actuation(policy: CarbonPolicy) -> Hashable:
    return None if policy.spec.autoscaling is None else policy.spec.autoscaling.actuation


def _facts(policy: CarbonPolicy | None) -> Hashable:
    return None if policy is None else (policy.metadata.uid, policy.spec.enforcement, policy.spec.target_refs)
