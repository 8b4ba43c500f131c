"""InferencePool: carries the affected-marker of GEP-713 while a CarbonPolicy holds on it."""

from heliotrope.api.v1alpha1 import CarbonPolicy
from heliotrope.api.v1alpha1.common import AFFECTED_MARKER
from heliotrope_operator.cluster import Cluster
from heliotrope_operator.controllers.policies import policy_name
from heliotrope_operator.resources import Key
from heliotrope_operator.writer import Writer


class PoolController:
    """Sets, changes and removes the marker."""

    def __init__(self, cluster: Cluster, writer: Writer) -> None:
        self._cluster = cluster
        self._writer = writer

    async def reconcile(self, key: Key) -> float | None:
        """Bring the marker up to date; see `RegionController.reconcile`."""
        pool = self._cluster.pools.get(key)
        if pool is None:
            self._writer.forget(key)
            return None
        marker = affected_marker(self._cluster.winner(key))
        if marker != pool.marker:
            await self._writer.annotation(key, pool.metadata, AFFECTED_MARKER, marker)
        return None


def affected_marker(winner: CarbonPolicy | None) -> str | None:
    """The policy that holds on a pool and whether it acts: `namespace/name (Enforce)`; None without one."""
    return None if winner is None else f"{policy_name(winner)} ({winner.spec.enforcement})"
