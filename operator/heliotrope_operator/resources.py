"""The kinds that the operator knows, their places in the API, and the keys of objects."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from heliotrope.api.v1alpha1 import CarbonPolicy, NodePower, RegionProfile, WorkloadVariant
from heliotrope.api.v1alpha1.common import GROUP, VERSION, Resource

POOL_GROUP = "inference.networking.k8s.io"


class Kind(StrEnum):
    """Kinds of objects that are remembered, and of work that passes through the queue."""

    REGION_PROFILE = "RegionProfile"
    CARBON_POLICY = "CarbonPolicy"
    WORKLOAD_VARIANT = "WorkloadVariant"
    INFERENCE_POOL = "InferencePool"
    NODE_POWER = "NodePower"
    NAMESPACE = "Namespace"
    NODE = "Node"
    POD = "Pod"
    JOB = "Job"
    HORIZONTAL_POD_AUTOSCALER = "HorizontalPodAutoscaler"
    SCALED_OBJECT = "ScaledObject"
    VARIANT_AUTOSCALING = "VariantAutoscaling"
    ADMISSION_CHECK = "AdmissionCheck"
    WORKLOAD = "Workload"
    HEARTBEAT = "Heartbeat"
    """No resource: it passes through the queue to show that the queue moves."""
    ALLOCATION = "Allocation"
    """No resource: replicas of all variants are planned together."""
    ACTUATION = "Actuation"
    """No resource: replicas of one scale target are made so."""
    ACTIVATION = "Activation"
    """No resource: engines are put to rest and woken."""
    POWER = "Power"
    """No resource: clocks and watts of all variants are chosen together."""
    DEMAND_RESPONSE = "DemandResponse"
    """No resource: the sources of one policy's events are asked."""
    DISPATCH = "Dispatch"
    """No resource: dispatch budgets of all pools are published."""
    CEILINGS = "Ceilings"
    """No resource: the hub is asked."""


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


def _own(kind: Kind, resource: type[Resource]) -> tuple[Kind, ResourceType]:
    about = resource.definition
    return kind, ResourceType(kind.value, GROUP, VERSION, about.plural, about.namespaced)


RESOURCES: dict[Kind, ResourceType] = {
    **dict(
        (
            _own(Kind.REGION_PROFILE, RegionProfile),
            _own(Kind.CARBON_POLICY, CarbonPolicy),
            _own(Kind.WORKLOAD_VARIANT, WorkloadVariant),
            _own(Kind.NODE_POWER, NodePower),
        )
    ),
    Kind.INFERENCE_POOL: ResourceType("InferencePool", POOL_GROUP, "v1", "inferencepools"),
    Kind.NAMESPACE: ResourceType("Namespace", "", "v1", "namespaces", namespaced=False),
    Kind.NODE: ResourceType("Node", "", "v1", "nodes", namespaced=False),
    Kind.POD: ResourceType("Pod", "", "v1", "pods"),
    Kind.JOB: ResourceType("Job", "batch", "v1", "jobs"),
    Kind.HORIZONTAL_POD_AUTOSCALER: ResourceType(
        "HorizontalPodAutoscaler", "autoscaling", "v2", "horizontalpodautoscalers"
    ),
    Kind.SCALED_OBJECT: ResourceType("ScaledObject", "keda.sh", "v1alpha1", "scaledobjects"),
    Kind.VARIANT_AUTOSCALING: ResourceType("VariantAutoscaling", "llmd.ai", "v1alpha1", "variantautoscalings"),
    Kind.ADMISSION_CHECK: ResourceType(
        "AdmissionCheck", "kueue.x-k8s.io", "v1beta2", "admissionchecks", namespaced=False
    ),
    Kind.WORKLOAD: ResourceType("Workload", "kueue.x-k8s.io", "v1beta2", "workloads"),
}
"""Where each kind of object is in the API."""

SCALE_TARGETS: tuple[ResourceType, ...] = (
    ResourceType("Deployment", "apps", "v1", "deployments"),
    ResourceType("StatefulSet", "apps", "v1", "statefulsets"),
    ResourceType("LeaderWorkerSet", "leaderworkerset.x-k8s.io", "v1", "leaderworkersets"),
)
"""Kinds that are watched, not remembered: a change of one wakes the variants that scale it."""

ENDPOINT_SLICES = ResourceType("EndpointSlice", "discovery.k8s.io", "v1", "endpointslices")
SECRETS = ResourceType("Secret", "", "v1", "secrets")
CONFIG_MAPS = ResourceType("ConfigMap", "", "v1", "configmaps")
EVENTS = ResourceType("Event", "events.k8s.io", "v1", "events")
LEASES = ResourceType("Lease", "coordination.k8s.io", "v1", "leases")
