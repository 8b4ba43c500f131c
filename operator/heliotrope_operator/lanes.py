"""What goes first when much is to be done at once: signals and decisions before the many writes that follow them.

A plan may move a thousand targets in one moment, each of which takes a handful of requests. Regions' signals, what
holds on them and what the SLO asks for do not wait behind those.
"""

from enum import IntEnum

from heliotrope_operator.cluster import Cluster
from heliotrope_operator.kinds.targets import actuated_target
from heliotrope_operator.resources import Key, Kind
from heliotrope_operator.tables import Tables


class Lane(IntEnum):
    """In the order in which they go."""

    SIGNALS = 0
    """What a region's source says, and the heartbeat, which tells whether the queue moves."""
    DECISIONS = 1
    """Policies, plans, Jobs, and targets that get more replicas."""
    BULK = 2
    """What there are many of and what can wait: variants' statuses, targets that get fewer replicas or are let go."""


_SIGNALS = frozenset({Kind.HEARTBEAT, Kind.REGION_PROFILE})
_BULK = frozenset({Kind.ACTUATION, Kind.WORKLOAD_VARIANT})


def limits(workers: int) -> dict[int, int]:
    """Most keys of a lane in work at once: the many never take the last worker."""
    return {Lane.BULK: max(workers - 1, 1)}


def lane_of(key: Key, cluster: Cluster, tables: Tables) -> Lane:
    """The lane of a key, as things are now."""
    if key.kind in _SIGNALS:
        return Lane.SIGNALS
    if key.kind not in _BULK or (key.kind is Kind.ACTUATION and _raises(key, cluster, tables)):
        return Lane.DECISIONS
    return Lane.BULK


def _raises(key: Key, cluster: Cluster, tables: Tables) -> bool:
    """Whether more replicas are wanted of a target than its `/scale` asked for when it was read last."""
    owner = cluster.owner(actuated_target(key)) if key.name else None
    if owner is None:
        return False
    variant = Key(Kind.WORKLOAD_VARIANT, key.namespace, owner.metadata.name)
    wanted, scale = tables.wanted.get(variant), tables.scales.get(variant)
    if wanted is None or wanted.replicas is None or scale is None or scale.wanted is None:
        return False
    return wanted.replicas > scale.wanted
