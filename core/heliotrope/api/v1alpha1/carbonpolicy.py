"""CarbonPolicy: what an InferencePool optimises, what it promises, and what Heliotrope may change for it."""

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from heliotrope.api.lists import ListMap
from heliotrope.api.scalars import Time
from heliotrope.api.struct import Struct, rule
from heliotrope.api.v1alpha1.common import (
    AGE,
    Column,
    Conditions,
    Definition,
    Enforcement,
    Fraction,
    Group,
    Kind,
    Name,
    Namespace,
    ObservedGeneration,
    Resource,
    Text,
)
from heliotrope.api.v1alpha1.controls import Autoscaling, Deferral, DemandResponse, Power
from heliotrope.api.v1alpha1.models import Models
from heliotrope.api.v1alpha1.objective import AccountingBoundary, KvActions, Objective, Placement, Slo
from heliotrope.api.v1alpha1.requests import Overrides, PowerHeadroom, RequestClass

POLICY_LABEL = "gateway.networking.k8s.io/policy"
CONTROLLER_NAME = "heliotrope.io/operator"
"""The controller name in `status.ancestors`."""


class PolicyReason(StrEnum):
    """Reasons of the ancestor condition `Accepted`, as GEP-713 names them."""

    ACCEPTED = "Accepted"
    CONFLICTED = "Conflicted"
    INVALID = "Invalid"
    TARGET_NOT_FOUND = "TargetNotFound"


class TargetRef(Struct):
    """An InferencePool in the policy's own namespace."""

    group: Annotated[str, StringConstraints(max_length=253)] = "inference.networking.k8s.io"
    """API group of the target."""
    kind: Annotated[str, StringConstraints(min_length=1, max_length=63)] = "InferencePool"
    """Kind of the target."""
    name: Name
    """Name of the target."""

    @rule(
        "self.group == 'inference.networking.k8s.io' && self.kind == 'InferencePool'",
        "a CarbonPolicy attaches to an InferencePool of the group inference.networking.k8s.io",
    )
    def _is_pool(self) -> bool:
        return self.group == "inference.networking.k8s.io" and self.kind == "InferencePool"


class CarbonPolicySpec(Struct):
    """A policy as the user describes it."""

    target_refs: Annotated[tuple[TargetRef, ...], Field(min_length=1, max_length=16), ListMap("group", "kind", "name")]
    """InferencePools that the policy attaches to. On a pool with several policies the oldest holds."""
    objective: Objective = Objective()
    """What to make small."""
    slo: Slo
    """The latency promise that everything else respects."""
    quality_floor: Fraction | None = None
    """Least quality of an answer, from 0 to 1 as a decimal string, on the scale of `WorkloadVariant.spec.quality`; a
    variant of unknown quality is then out. Absent: no floor."""
    power_headroom: PowerHeadroom | None = None
    """Power that an endpoint must have left while another one keeps the SLO; absent: power is no constraint."""
    accounting_boundary: AccountingBoundary = AccountingBoundary()
    """What counts beside operational emissions."""
    placement: Placement = Placement()
    """How requests are spread over regions."""
    kv_actions: KvActions = KvActions()
    """Which KV actions the picker may choose."""
    autoscaling: Autoscaling | None = None
    """Chooses replicas; absent: replicas are left alone. Needs the namespace label `heliotrope.io/allow-scaling`."""
    power: Power | None = None
    """Sets clocks and watts; absent: they are left alone. Needs the namespace label `heliotrope.io/allow-power`."""
    demand_response: DemandResponse | None = None
    """Answers the grid's requests to draw less; absent: it does not. Needs `power`, `autoscaling`, or weights or an
    objective of its own."""
    deferral: Deferral | None = None
    """Moves opted-in Jobs to cleaner hours; absent: Jobs start as they come."""
    holdout_percent: Annotated[int, Field(ge=0, le=50)] = 0
    """Share of requests that is routed without regard to carbon so that savings are measured, in percent; 0: savings
    are called modelled."""
    holdout_seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Seed of the choice of those requests."""
    enforcement: Enforcement = Enforcement.ADVISE
    """`Advise` computes, reports and traces everything and changes nothing; `Enforce` acts. The default is Advise, so
    that a policy shows what it would do before it does it."""
    classes: Annotated[tuple[RequestClass, ...], Field(max_length=8), ListMap("name")] = ()
    """Classes of requests with promises and objectives of their own; the first that a request belongs to holds."""
    overrides: Overrides = Overrides()
    """What a request may change by header."""
    models: Models | None = None
    """Which models may answer in place of the one that is asked for; absent: none."""

    @rule(
        "!has(self.models) || self.models.classes.all(c, self.classes.exists(k, k.name == c))",
        "models.classes names a class that spec.classes does not have",
        field="models",
    )
    def _classes_known(self) -> bool:
        return self.models is None or set(self.models.classes) <= {each.name for each in self.classes}

    @rule(
        "!has(self.demandResponse) || has(self.power) || has(self.autoscaling) || has(self.demandResponse.weights) || "
        "has(self.demandResponse.objective)",
        "demandResponse needs power, autoscaling, or weights or an objective of its own, or there is nothing to "
        "respond with",
        field="demandResponse",
    )
    def _can_respond(self) -> bool:
        response = self.demand_response
        if response is None or self.power is not None or self.autoscaling is not None:
            return True
        return response.weights is not None or response.objective is not None


class AncestorRef(Struct):
    """The object that a policy's status speaks of."""

    group: Group = "inference.networking.k8s.io"
    """API group of the ancestor."""
    kind: Kind = "InferencePool"
    """Kind of the ancestor."""
    namespace: Namespace | None = None
    """Namespace of the ancestor; absent: the policy's."""
    name: Name
    """Name of the ancestor."""


class PolicyAncestorStatus(Struct):
    """What became of the policy at one of its targets (GEP-713)."""

    ancestor_ref: AncestorRef
    """The target."""
    controller_name: Annotated[
        str, StringConstraints(min_length=1, max_length=253, pattern=r"^[a-z0-9.-]+/[A-Za-z0-9/~._-]+$")
    ]
    """Name of the controller that wrote this entry."""
    conditions: Annotated[Conditions, Field(min_length=1)]
    """`Accepted`: the policy holds at this target, or why it does not."""


EventWatts = Annotated[int, Field(ge=0, le=1_000_000_000)]


class DemandResponseStatus(Struct):
    """The event of demand response that is being answered."""

    event: Text
    """Name of the event."""
    since: Time
    """When the answer began: from then on power goes down, and the event's weights or objective hold."""
    start: Time | None = None
    """When the reduction must be reached; absent: at once."""
    end: Time | None = None
    """When the event ends; it is moved on while a source without an end goes on asking. Afterwards power comes back."""
    watts: EventWatts | None = None
    """Power that the pool may draw during the event in watts; absent: not limited, or unknown."""
    baseline_watts: EventWatts | None = None
    """Power of the pool before the event in watts, against which `reductionPercent` is meant; absent: unknown."""


class CarbonPolicyStatus(Struct):
    """A policy as the operator sees it. It changes on transitions only."""

    observed_generation: ObservedGeneration | None = None
    """The `metadata.generation` that this status answers."""
    ancestors: Annotated[tuple[PolicyAncestorStatus, ...], Field(max_length=16)] = ()
    """What became of the policy at each of its targets."""
    conditions: Conditions = ()
    """`Accepted`: the policy holds at every target. `Enforced`: it acts (False under Advise). `SignalsFresh`: carbon
    counts in its decisions."""
    demand_response: DemandResponseStatus | None = None
    """The event that is being answered; absent: none."""


class CarbonPolicy(Resource):
    """What an InferencePool optimises within its latency promise, and what Heliotrope may change for it."""

    definition: ClassVar[Definition] = Definition(
        plural="carbonpolicies",
        short_name="cp",
        namespaced=True,
        columns=(
            Column("Pool", ".spec.targetRefs[0].name", "First InferencePool that the policy attaches to."),
            Column("Mode", ".spec.objective.mode", "How the objective's terms are brought together."),
            Column("TTFT", ".spec.slo.ttft", "Promised time to first token."),
            Column("TPOT", ".spec.slo.tpot", "Promised time per output token."),
            Column("Enforcement", ".spec.enforcement", "Advise or Enforce."),
            Column("Accepted", '.status.conditions[?(@.type=="Accepted")].status', "Whether the policy holds."),
            Column(
                "Reason",
                '.status.conditions[?(@.type=="Accepted")].reason',
                "Why the policy holds or not.",
            ),
            Column("Scheduler", ".spec.placement.scheduler", "Assigns requests to regions.", priority=1),
            AGE,
        ),
        labels={POLICY_LABEL: "Direct"},
    )

    kind: Literal["CarbonPolicy"] = "CarbonPolicy"
    spec: CarbonPolicySpec
    """What the user wants."""
    status: CarbonPolicyStatus | None = None
    """What became of it."""
