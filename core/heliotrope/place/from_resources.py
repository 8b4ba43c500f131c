"""From a CarbonPolicy to what schedulers follow: the same for the region tier and for simulations."""

from collections.abc import Sequence

import numpy as np

from heliotrope.api.v1alpha1.objective import Placement
from heliotrope.decide.policy import DecisionPolicy
from heliotrope.place.policy import PlacementPolicy, WorkLimit
from heliotrope.place.window import FloatColumn


def placement_policy(
    spec: Placement, policy: DecisionPolicy | None, limit: WorkLimit, peers: int = 0
) -> PlacementPolicy:
    """What schedulers follow.

    Args:
        spec: `CarbonPolicy.spec.placement`, or its defaults.
        policy: the whole CarbonPolicy as decisions follow it; None: there is none, and estimates keep no distance to
            their SLO.
        limit: of a solver.
        peers: other schedulers that place on the same regions.
    """
    return PlacementPolicy(
        latency_weight=spec.greedy_latency_weight,
        carbon_weight=1.0 if policy is None else policy.soft_weight,
        window_seconds=spec.window.total_seconds(),
        limit=limit,
        standard_deviations=0.0 if policy is None else policy.certainty,
        peers=peers,
    )


def largest_shares(by_policy: float, by_region: Sequence[float], up: Sequence[bool]) -> FloatColumn:
    """Most of the recent requests that each region may get, in (0, 1]: the policy's and its own, the smaller of both.

    Where the regions that are up may not take all requests together, what each may take grows in proportion: somebody
    has to serve what the others would have had.

    Args:
        by_policy: one share for all, in (0, 1].
        by_region: each region's own, in (0, 1].
        up: whether it takes requests.
    """
    caps = np.minimum(np.asarray(by_region, dtype=np.float64), by_policy)
    together = float(caps[np.asarray(up, dtype=bool)].sum())
    return np.minimum(caps / together, 1.0) if 0.0 < together < 1.0 else caps
