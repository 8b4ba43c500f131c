"""What is known of the cluster beside a Job, for its verdict."""

from collections.abc import Callable

from heliotrope_operator.cluster import Cluster
from heliotrope_operator.deferral.verdict import Surroundings
from heliotrope_operator.kinds.pools import pool_key
from heliotrope_operator.resources import Key

KEPT_S = 2.0
"""A thousand Jobs of one namespace that are looked at together share one answer."""


class KnownSurroundings:
    """Policies of a namespace, all regions, and those that the policies' pools reach; at most `KEPT_S` old."""

    def __init__(self, cluster: Cluster, monotonic: Callable[[], float]) -> None:
        self._cluster = cluster
        self._monotonic = monotonic
        self._kept: dict[str, Surroundings] = {}
        self._since = float("-inf")

    def of(self, namespace: str) -> Surroundings:
        """What is known for the Jobs of a namespace."""
        now = self._monotonic()
        if now > self._since + KEPT_S:
            self._kept.clear()
            self._since = now
        if namespace not in self._kept:
            self._kept[namespace] = surroundings(self._cluster, namespace)
        return self._kept[namespace]


def surroundings(cluster: Cluster, namespace: str) -> Surroundings:
    """The same as of now."""
    policies = tuple(policy for key, policy in cluster.policies.items() if key.namespace == namespace)
    pools = {pool_key(namespace, ref.name) for policy in policies for ref in policy.spec.target_refs}
    reached = frozenset[str]().union(*(pool_regions(cluster, pool) for pool in pools))
    return Surroundings(policies, tuple(cluster.regions.values()), reached)


def pool_regions(cluster: Cluster, pool: Key) -> frozenset[str]:
    """Regions of the variants whose pods can be in a pool."""
    variants = (cluster.variants.get(key) for key in cluster.variants_of(pool))
    return frozenset(
        each.spec.region_ref.name for each in variants if each is not None and each.spec.region_ref is not None
    )
