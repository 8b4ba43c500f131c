"""The kinds that the operator knows, their places in the API, and the keys of objects."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from heliotrope.api.v1alpha1 import CarbonPolicy, RegionProfile, WorkloadVariant
from heliotrope.api.v1alpha1.common import GROUP, VERSION

POOL_GROUP = "inference.networking.k8s.io"


class Kind(StrEnum):
    """Kinds that are reconciled."""

    REGION_PROFILE = "RegionProfile"
    CARBON_POLICY = "CarbonPolicy"
    WORKLOAD_VARIANT = "WorkloadVariant"
    INFERENCE_POOL = "InferencePool"
    HEARTBEAT = "Heartbeat"
    """No resource: it passes through the queue to show that the queue moves."""


class Key(NamedTuple):
    """One object. The namespace is empty for cluster-scoped kinds."""

    kind: Kind
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind.value} {self.namespace}/{self.name}" if self.namespace else f"{self.kind.value} {self.name}"


@dataclass(frozen=True, slots=True)
class ResourceType:
    """A kind as the API server serves it."""

    kind: str
    group: str
    version: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """Group and version."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The path of a collection, an object or its subresource. An empty namespace means all of them."""
        base = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        middle = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return (
            f"{base}{middle}/{self.plural}" + (f"/{name}" if name else "") + (f"/{subresource}" if subresource else "")
        )


RECONCILED: dict[Kind, ResourceType] = {
    Kind.REGION_PROFILE: ResourceType(
        "RegionProfile", GROUP, VERSION, RegionProfile.definition.plural, RegionProfile.definition.namespaced
    ),
    Kind.CARBON_POLICY: ResourceType(
        "CarbonPolicy", GROUP, VERSION, CarbonPolicy.definition.plural, CarbonPolicy.definition.namespaced
    ),
    Kind.WORKLOAD_VARIANT: ResourceType(
        "WorkloadVariant", GROUP, VERSION, WorkloadVariant.definition.plural, WorkloadVariant.definition.namespaced
    ),
    Kind.INFERENCE_POOL: ResourceType("InferencePool", POOL_GROUP, "v1", "inferencepools"),
}
"""Kinds that are watched and remembered."""

SCALE_TARGETS: tuple[ResourceType, ...] = (
    ResourceType("Deployment", "apps", "v1", "deployments"),
    ResourceType("StatefulSet", "apps", "v1", "statefulsets"),
    ResourceType("LeaderWorkerSet", "leaderworkerset.x-k8s.io", "v1", "leaderworkersets"),
)
"""Kinds that are watched, not remembered: a change of one wakes the variants that scale it."""

CONFIG_MAPS = ResourceType("ConfigMap", "", "v1", "configmaps")
EVENTS = ResourceType("Event", "events.k8s.io", "v1", "events")
LEASES = ResourceType("Lease", "coordination.k8s.io", "v1", "leases")
