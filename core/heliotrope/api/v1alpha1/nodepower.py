"""NodePower: clocks and watts that the operator wants on a GPU node, and what the node's agent made of them."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from heliotrope.api.lists import ListMap, ListSet
from heliotrope.api.scalars import Time
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

HEARTBEAT_S = 60.0
"""A live agent writes its status at least so often."""
SILENT_S = 180.0
"""Without a new one for so long it counts as silent."""

Reason = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[A-Z][A-Za-z0-9]*$")]


class IntentPod(Struct):
    """A pod of the variant on this node."""

    name: Name
    """Name of the pod."""
    uid: Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9-]+$")]
    """UID of the pod: the processes on its GPUs must be of this very pod."""


class PowerIntent(Struct):
    """Settings for the GPUs that serve one variant in one role."""

    namespace: Namespace
    """Namespace of the WorkloadVariant."""
    variant: Name
    """Name of the WorkloadVariant."""
    role: Role = Role.BOTH
    """Role of the pods that it holds for, as in the label `llm-d.ai/role`."""
    pods: Annotated[tuple[IntentPod, ...], Field(max_length=64), ListMap("name")] = ()
    """The variant's pods on this node: it holds for the GPUs that the kubelet gave to them. The agent reads no pods of
    the API."""
    enforcement: Enforcement | None = None
    """`Advise` lets the agent report this intent only, as the variant's policy advises; absent: as the node's."""
    sm_clock_mhz: Megahertz | None = None
    """SM clock in MHz; absent: left alone."""
    memory_clock_mhz: Megahertz | None = None
    """Memory clock in MHz; absent: left alone."""
    watts: Watts | None = None
    """Power limit of one GPU in watts; absent: left alone."""
    resting_pods: Annotated[tuple[Name, ...], Field(max_length=64), ListSet()] = ()
    """Names of the variant's pods on this node whose engines rest: `restingSmClockMhz` takes the place of `smClockMhz`
    on their GPUs."""
    resting_sm_clock_mhz: Megahertz | None = None
    """SM clock in MHz of the GPUs of `restingPods`; absent: as for the others."""

    @rule(
        "has(self.smClockMhz) || has(self.memoryClockMhz) || has(self.watts) || has(self.restingSmClockMhz)",
        "set at least one of smClockMhz, memoryClockMhz, watts, restingSmClockMhz",
    )
    def _not_empty(self) -> bool:
        settings = (self.sm_clock_mhz, self.memory_clock_mhz, self.watts, self.resting_sm_clock_mhz)
        return any(each is not None for each in settings)


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
    """Why effective differs from requested, each one CamelCase word: `Advise`, `Ambiguous`, `Clamped`, `Denied`,
    `DriverError`, `DryRun`, `Dwell`, `ForeignOwner`, `ForeignWriter`, `Group`, `LeaseExpired`, `Mig`, `NoWatchdog`,
    `NotEffective`, `OwnersUnknown`, `Shared`, `StateUnwritable`, `Throttled`, `Unsupported`, `Unverified`."""


class NodePowerStatus(Struct):
    """What the node's agent did. It changes on transitions, and once a minute to say that the agent is at work."""

    heartbeat_time: Time | None = None
    """When the agent last said that it is at work, by its node's clock: with each status, and at least once a minute.
    Absent: it is of a version that does not say."""
    observed_generation: ObservedGeneration | None = None
    """The `metadata.generation` that this status answers."""
    conditions: Conditions = ()
    """`Applied`: every intent is in effect. `LeaseValid`: the operator renews its Lease."""
    gpu_count: Annotated[int, Field(ge=0, le=1024)] | None = None
    """GPUs of the node, also beyond those that `gpus` has room for."""
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
            Column("GPUs", ".status.gpuCount", "GPUs of the node.", type="integer"),
            Column("Managed", ".status.managedGpus", "GPUs whose settings Heliotrope has changed.", type="integer"),
            Column("Applied", '.status.conditions[?(@.type=="Applied")].status', "Whether every intent is in effect."),
            Column("Reason", '.status.conditions[?(@.type=="Applied")].reason', "Why, in one word."),
            Column("Lease", '.status.conditions[?(@.type=="LeaseValid")].status', "Whether intents are kept alive."),
            Column("Seen", ".status.heartbeatTime", "Time since the agent last said that it is at work.", type="date"),
            Column("Product", ".status.gpus[0].product", "Product of the first GPU.", priority=1),
            Column("Message", '.status.conditions[?(@.type=="Applied")].message', "Why, in words.", priority=1),
            AGE,
        ),
    )

    kind: Literal["NodePower"] = "NodePower"
    spec: NodePowerSpec = NodePowerSpec()
    """What the operator wants. It holds while the operator renews the Lease `heliotrope-power` in its namespace."""
    status: NodePowerStatus | None = None
    """What the agent did."""
