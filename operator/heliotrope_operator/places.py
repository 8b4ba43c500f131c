"""In which region a variant is: as it says, or as its pods' nodes do."""

from collections.abc import Iterable

from heliotrope.api.v1alpha1 import WorkloadVariant
from heliotrope_operator.cluster import Cluster
from heliotrope_operator.kinds.nodes import node_key
from heliotrope_operator.kinds.pods import Pod


def region_of(cluster: Cluster, variant: WorkloadVariant, pods: Iterable[Pod]) -> str | None:
    """Its `regionRef`; else the one region in which all its pods' nodes are, by the profiles' `topologyRegions`."""
    if variant.spec.region_ref is not None:
        return variant.spec.region_ref.name
    nodes = {pod.node for pod in pods if pod.node is not None}
    places = {None if (node := cluster.nodes.get(node_key(name))) is None else node.region for name in nodes}
    if len(places) != 1 or (place := places.pop()) is None:
        return None
    claims = [each.metadata.name for each in cluster.regions.values() if place in each.spec.topology_regions]
    return claims[0] if len(claims) == 1 else None
