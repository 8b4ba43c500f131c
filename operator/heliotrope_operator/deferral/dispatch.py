"""Dispatch budgets: how much of a pool's batch work to dispatch now, for queues that can hold back."""

from collections.abc import Callable

from heliotrope.scale.dispatch import dispatch_budget, pool_budget
from heliotrope_operator.cluster import Cluster
from heliotrope_operator.deferral.surroundings import pool_regions
from heliotrope_operator.kinds.pools import pool_key
from heliotrope_operator.kinds.regions import region_key
from heliotrope_operator.outlook import outlook
from heliotrope_operator.resources import Key, Kind

DISPATCH = Key(Kind.DISPATCH, "", "budgets")
EVERY_S = 30.0
OUTDATED_S = 3 * EVERY_S
"""Budgets that were not computed anew for so long, as this replica no longer leads, are not published."""


class DispatchController:
    """Computes the budgets of all pools whose policy asks for them."""

    def __init__(self, cluster: Cluster, *, unix_clock: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._cluster = cluster
        self._unix_clock = unix_clock
        self._monotonic = monotonic
        self._budgets: list[tuple[str, str, float]] = []
        self._computed = float("-inf")

    async def reconcile(self, _key: Key) -> float | None:
        """Compute all; returns the seconds until the next time."""
        now_unix_s = self._unix_clock()
        by_region: dict[str, float] = {}
        budgets = []
        for key, policy in self._cluster.policies.items():
            deferral = policy.spec.deferral
            if deferral is None or not deferral.dispatch_budget:
                continue
            for ref in policy.spec.target_refs:
                pool = pool_key(key.namespace, ref.name)
                if self._cluster.pools.get(pool) is None or self._cluster.winner(pool) is not policy:
                    continue
                regions = pool_regions(self._cluster, pool)
                for name in regions - by_region.keys():
                    profile = self._cluster.regions.get(region_key(name))
                    by_region[name] = dispatch_budget(None if profile is None else outlook(profile), now_unix_s)
                budgets.append((pool.namespace, pool.name, pool_budget(by_region[name] for name in regions)))
        self._budgets = sorted(budgets)
        self._computed = self._monotonic()
        return EVERY_S

    def published(self) -> list[tuple[str, str, float]]:
        """Namespace, pool and share; empty while this replica does not compute them."""
        return self._budgets if self._monotonic() - self._computed < OUTDATED_S else []
