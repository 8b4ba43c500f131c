"""What the resources share: metadata, references, conditions, labels and the names that the parts agree on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, StringConstraints

from heliotrope.api.lists import ListMap
from heliotrope.api.scalars import DecimalString, DurationString, Time
from heliotrope.api.struct import Struct

GROUP = "heliotrope.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
CATEGORY = "heliotrope"

ROLE_LABEL = "llm-d.ai/role"
"""Label of a pod that says which phase it serves, as llm-d writes it."""
RESTING_LABEL = "heliotrope.io/resting"
"""Label of a pod whose engine rests or is about to; its value is the depth. Pickers send nothing there while others are
awake, and whoever finds it knows that Heliotrope has to wake the engine."""
REGION_LABEL = "heliotrope.io/region"
"""Label of a pod that names its RegionProfile when no WorkloadVariant does."""
TOPOLOGY_REGION_LABEL = "topology.kubernetes.io/region"
"""Label of a node; a RegionProfile claims values of it in `spec.topologyRegions`."""
AFFECTED_MARKER = "heliotrope.io/CarbonPolicyAffected"
"""Annotation of an InferencePool that a CarbonPolicy affects (GEP-713): `namespace/name (Enforce)` or `(Advise)`."""
ORIGINAL_ANNOTATION = "heliotrope.io/original"
"""Annotation of an object of which Heliotrope holds a field: what to put back when it lets go of it."""
GRANT_POWER_LABEL = "heliotrope.io/allow-power"
GRANT_SCALING_LABEL = "heliotrope.io/allow-scaling"
GRANT_DOWNGRADE_LABEL = "heliotrope.io/allow-model-downgrade"
"""Labels of a Namespace, `"true"` where the administrator lets its policies do this."""
DEFERRABLE_LABEL = "heliotrope.io/deferrable"
"""Label `"true"` of a suspended Job that may wait for cleaner hours."""
DEADLINE_ANNOTATION = "heliotrope.io/deadline"
"""Annotation of a deferrable Job: RFC 3339 time at which it must have ended."""
EXPECTED_DURATION_ANNOTATION = "heliotrope.io/expected-duration"
"""Annotation of a deferrable Job: how long it runs, a GEP-2257 duration."""
POWER_LEASE = "heliotrope-power"
"""Lease in the operator's namespace; while the operator renews it, every NodePower intent holds."""

Name = Annotated[
    str,
    StringConstraints(
        min_length=1,
        max_length=253,
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
    ),
]
"""A name of a Kubernetes object (DNS-1123 subdomain)."""
Namespace = Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
Kind = Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=r"^[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?$")]
Group = Annotated[
    str,
    StringConstraints(max_length=253, pattern=r"^$|^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"),
]
Text = Annotated[str, StringConstraints(min_length=1, max_length=253)]
Url = Annotated[str, StringConstraints(min_length=1, max_length=2048, pattern=r"^https?://[^\s]+$")]
Labels = Annotated[dict[str, Annotated[str, StringConstraints(max_length=63)]], Field(min_length=1, max_length=32)]
Currency = Annotated[str, StringConstraints(min_length=3, max_length=3, pattern=r"^[A-Z]{3}$")]
"""ISO 4217 code."""

Decimal = Annotated[float, DecimalString()]
Fraction = Annotated[float, DecimalString(maximum=1)]
Intensity = Annotated[float, DecimalString(maximum=10_000)]
"""gCO2e/kWh. The dirtiest grids stay below 1,500; the bound catches values in other units."""
Price = Annotated[float, DecimalString(maximum=1_000_000)]
Percent = Annotated[int, Field(ge=0, le=100)]
Replicas = Annotated[int, Field(ge=0, le=100_000)]
Megahertz = Annotated[int, Field(ge=1, le=10_000)]
Watts = Annotated[int, Field(ge=1, le=100_000)]
ShortDuration = Annotated[timedelta, DurationString("1ms", "1h")]
LongDuration = Annotated[timedelta, DurationString("0s", "720h")]


ObservedGeneration = Annotated[int, Field(ge=0, le=2**53)]


class Role(StrEnum):
    """Phases that an engine serves, the values of the label `llm-d.ai/role`."""

    PREFILL = "prefill"
    DECODE = "decode"
    BOTH = "both"


class Enforcement(StrEnum):
    """Whether decisions take effect."""

    ADVISE = "Advise"
    ENFORCE = "Enforce"


class ConditionStatus(StrEnum):
    """Truth of a condition; Unknown when it could not be determined."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(Struct):
    """One aspect of the current state, as `metav1.Condition`."""

    type: Annotated[str, StringConstraints(max_length=316, pattern=r"^([a-z0-9.-]{1,253}/)?[A-Za-z][A-Za-z0-9_.-]*$")]
    """Type of the condition in CamelCase, for instance `Accepted`."""
    status: ConditionStatus
    """Whether the condition holds: True, False or Unknown."""
    observed_generation: ObservedGeneration | None = None
    """The `metadata.generation` that this condition speaks of."""
    last_transition_time: Time
    """When the status last changed."""
    reason: Annotated[
        str,
        StringConstraints(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
    ]
    """Why, as one CamelCase word that programs may compare."""
    message: Annotated[str, StringConstraints(max_length=4096)]
    """Why, for a person; may be empty."""


Conditions = Annotated[tuple[Condition, ...], Field(max_length=16), ListMap("type")]


class SecretKeyRef(Struct):
    """One key of a Secret in the operator's own namespace."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})

    name: Name
    """Name of the Secret; it must be in the namespace of the operator."""
    key: Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]
    """Key within the Secret's data."""


class ScaleTargetRef(Struct):
    """An object of the same namespace with a `/scale` subresource."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})

    api_version: Annotated[
        str, StringConstraints(min_length=1, max_length=317, pattern=r"^([a-z0-9.-]{1,253}/)?[a-z0-9]{1,63}$")
    ]
    """Group and version, for instance `apps/v1`."""
    kind: Kind
    """Kind: Deployment, StatefulSet, LeaderWorkerSet or any other that can be scaled."""
    name: Name
    """Name of the object."""


class LabelSelector(Struct):
    """Selects pods of the same namespace."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})

    match_labels: Labels
    """Labels that a pod must carry, all of them, with exactly these values."""

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels is selected."""
        return all(labels.get(key) == value for key, value in self.match_labels.items())


class OwnerReference(Struct):
    """An owner of the object, as `metav1.OwnerReference`."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Struct):
    """The part of `metav1.ObjectMeta` that Heliotrope reads; the API server owns the rest."""

    model_config = ConfigDict(extra="ignore")

    name: Name
    namespace: Namespace | None = None
    uid: str | None = None
    resource_version: str | None = None
    generation: int | None = None
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    owner_references: tuple[OwnerReference, ...] = ()


@dataclass(frozen=True, slots=True)
class Column:
    """One column that `kubectl get` prints."""

    name: str
    path: str
    description: str
    type: Literal["string", "integer", "boolean", "date"] = "string"
    priority: int = 0
    """0: always shown; 1: with `-o wide`."""


@dataclass(frozen=True, slots=True)
class Definition:
    """How the API server knows a kind of resource."""

    plural: str
    short_name: str
    namespaced: bool
    columns: tuple[Column, ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the CustomResourceDefinition itself."""


AGE = Column("Age", ".metadata.creationTimestamp", "Time since the object was created.", type="date")


class Resource(Struct):
    """The base of the custom resources; each adds its literal `kind`, its spec and its status."""

    definition: ClassVar[Definition]

    api_version: Literal["heliotrope.io/v1alpha1"] = "heliotrope.io/v1alpha1"
    metadata: ObjectMeta

    def to_document(self) -> dict[str, Any]:
        """The object as a Kubernetes document: camelCase, defaults spelled out, absent fields left out."""
        return self.model_dump(by_alias=True, exclude_none=True, mode="json")
