"""NodePower: clocks and watts that the operator wants on a GPU node, and what the node's agent made of them."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from heliotrope.api.lists import ListMap, ListSet
from heliotrope.api.struct import Struct, rule
from heliotrope.api.v1alpha1.common import (
    AGE,
    Column,
    Conditions,
    Definition,
    Enforcement,
    Megahertz,
    Name,
    Namespace,
    ObservedGeneration,
    Resource,
    Role,
    Text,
    Watts,
)

Reason = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[A-Z][A-Za-z0-9]*$")]


class PowerIntent(Struct):
    """Settings for the GPUs that serve one variant in one role."""

    namespace: Namespace
    """Namespace of the WorkloadVariant."""
    variant: Name
    """Name of the WorkloadVariant."""
    role: Role = Role.BOTH
    """Role of the pods that it holds for, as in the label `llm-d.ai/role`."""
    sm_clock_mhz: Megahertz | None = None
    """SM clock in MHz; absent: left alone."""
    memory_clock_mhz: Megahertz | None = None
    """Memory clock in MHz; absent: left alone."""
    watts: Watts | None = None
    """Power limit of one GPU in watts; absent: left alone."""

    @rule(
        "has(self.smClockMhz) || has(self.memoryClockMhz) || has(self.watts)",
        "set at least one of smClockMhz, memoryClockMhz, watts",
    )
    def _not_empty(self) -> bool:
        return any(each is not None for each in (self.sm_clock_mhz, self.memory_clock_mhz, self.watts))


class NodePowerSpec(Struct):
    """What the operator wants on the node."""

    enforcement: Enforcement = Enforcement.ADVISE
    """`Advise` lets the agent report only; `Enforce` lets it set clocks and watts."""
    intents: Annotated[tuple[PowerIntent, ...], Field(max_length=64), ListMap("namespace", "variant", "role")] = ()
    """Settings per variant and role."""


class GpuSettings(Struct):
    """Clocks and power limit of one GPU; an absent field is not set."""

    sm_clock_mhz: Megahertz | None = None
    """Locked SM clock in MHz; absent: not locked."""
    memory_clock_mhz: Megahertz | None = None
    """Locked memory clock in MHz; absent: not locked."""
    watts: Watts | None = None
    """Power limit in watts."""


class GpuOwner(Struct):
    """The pod that a GPU belongs to."""

    namespace: Namespace
    """Namespace of the pod."""
    pod: Name
    """Name of the pod."""
    variant: Name | None = None
    """WorkloadVariant of the pod; absent: none, and the GPU is left alone."""
    role: Role | None = None
    """Role of the pod."""


class GpuStatus(Struct):
    """One GPU of the node."""

    uuid: Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9-]+$")]
    """UUID as the driver reports it."""
    product: Text | None = None
    """Name of the product."""
    owner: GpuOwner | None = None
    """Pod that it belongs to; absent: none."""
    requested: GpuSettings | None = None
    """Settings that the intent asks for; absent: none."""
    effective: GpuSettings | None = None
    """Settings read back from the driver."""
    original: GpuSettings | None = None
    """Settings before Heliotrope's first change, which are put back; absent: nothing was changed."""
    reasons: Annotated[tuple[Reason, ...], Field(max_length=16), ListSet()] = ()
    """Why effective differs from requested, each one CamelCase word: `Advise`, `Clamped`, `Shared`, `Mig`,
    `ForeignOwner`, `LeaseExpired`, `DriverError`, `Throttled`."""


class NodePowerStatus(Struct):
    """What the node's agent did. It changes on transitions only; watts and joules are metrics."""

    observed_generation: ObservedGeneration | None = None
    """The `metadata.generation` that this status answers."""
    conditions: Conditions = ()
    """`Applied`: every intent is in effect. `LeaseValid`: the operator renews its Lease."""
    managed_gpus: Annotated[int, Field(ge=0, le=64)] | None = None
    """GPUs whose settings Heliotrope has changed."""
    gpus: Annotated[tuple[GpuStatus, ...], Field(max_length=64), ListMap("uuid")] = ()
    """The GPUs of the node."""


class NodePower(Resource):
    """Clocks and watts for the GPUs of the node of the same name."""

    definition: ClassVar[Definition] = Definition(
        plural="nodepowers",
        short_name="np",
        namespaced=False,
        columns=(
            Column("Enforcement", ".spec.enforcement", "Advise or Enforce."),
            Column("Managed", ".status.managedGpus", "GPUs whose settings Heliotrope has changed.", type="integer"),
            Column("Applied", '.status.conditions[?(@.type=="Applied")].status', "Whether every intent is in effect."),
            Column("Reason", '.status.conditions[?(@.type=="Applied")].reason', "Why, in one word."),
            Column("Lease", '.status.conditions[?(@.type=="LeaseValid")].status', "Whether intents are kept alive."),
            AGE,
        ),
    )

    kind: Literal["NodePower"] = "NodePower"
    spec: NodePowerSpec = NodePowerSpec()
    """What the operator wants. It holds while the operator renews the Lease `heliotrope-power` in its namespace."""
    status: NodePowerStatus | None = None
    """What the agent did."""
