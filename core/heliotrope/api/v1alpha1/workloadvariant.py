"""WorkloadVariant: one way to serve a model, with its measured energy, its price and what it may be set to."""

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from heliotrope.api.lists import ListMap
from heliotrope.api.scalars import DecimalString, DurationString, Time
from heliotrope.api.struct import Struct, rule
from heliotrope.api.v1alpha1.common import (
    AGE,
    Column,
    Conditions,
    Currency,
    Definition,
    Enforcement,
    Fraction,
    LabelSelector,
    Megahertz,
    Name,
    ObservedGeneration,
    Percent,
    Price,
    Replicas,
    Resource,
    Role,
    ScaleTargetRef,
    Text,
    Watts,
)
from heliotrope.api.v1alpha1.engine import Engine

Lifetime = Annotated[timedelta, DurationString("1h", "99999h")]
TokensPerSecond = Annotated[float, DecimalString(minimum=0.001, maximum=10_000_000)]
JoulesPerToken = Annotated[float, DecimalString(minimum=0.000001, maximum=100_000)]


class Phase(StrEnum):
    """A phase of inference."""

    PREFILL = "prefill"
    DECODE = "decode"


class Accelerator(Struct):
    """The accelerators of one replica."""

    type: Text
    """Type, for instance `H100-SXM-80GB`."""
    count: Annotated[int, Field(ge=1, le=1_024)] = 1
    """Accelerators of one replica, which is its tensor parallelism."""
    memory_gibibytes: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Memory of one accelerator in GiB; absent: unknown."""


class RegionRef(Struct):
    """A RegionProfile."""

    name: Name
    """Name of the RegionProfile."""


class EnergyPoint(Struct):
    """What was measured in one phase at one SM clock, for a whole replica at its usual batch."""

    phase: Phase
    """Phase that was measured."""
    sm_clock_mhz: Megahertz
    """SM clock in MHz."""
    tokens_per_second: TokensPerSecond
    """Throughput in tokens per second, a decimal string."""
    joules_per_token: JoulesPerToken
    """Energy of all accelerators per token in joules (not millijoules), a decimal string."""
    watts: Watts
    """Power of all accelerators in watts."""
    uncertainty_percent: Percent | None = None
    """Half width of the 90 % interval of the energy, in percent; absent: unknown."""

    @rule(
        "double(self.joulesPerToken) * double(self.tokensPerSecond) >= 0.75 * double(self.watts) && "
        "double(self.joulesPerToken) * double(self.tokensPerSecond) <= 1.25 * double(self.watts)",
        "joulesPerToken × tokensPerSecond must be within 25 % of watts: check the units (joules, not millijoules)",
        field="joulesPerToken",
    )
    def _consistent(self) -> bool:
        power = self.joules_per_token * self.tokens_per_second
        return 0.75 * self.watts <= power <= 1.25 * self.watts


class ClockRange(Struct):
    """SM clocks that Heliotrope may set."""

    min_mhz: Megahertz
    """Lowest clock in MHz."""
    max_mhz: Megahertz
    """Highest clock in MHz."""

    @rule("self.minMhz <= self.maxMhz", "minMhz must not exceed maxMhz", field="minMhz")
    def _ordered(self) -> bool:
        return self.min_mhz <= self.max_mhz


class WattRange(Struct):
    """Power limits of one accelerator that Heliotrope may set."""

    min_watts: Watts
    """Lowest limit in watts."""
    max_watts: Watts
    """Highest limit in watts."""

    @rule("self.minWatts <= self.maxWatts", "minWatts must not exceed maxWatts", field="minWatts")
    def _ordered(self) -> bool:
        return self.min_watts <= self.max_watts


class EmbodiedCarbon(Struct):
    """Emissions of making the hardware of one replica: its accelerators and its share of the host."""

    grams_co2e: Annotated[int, Field(ge=0, le=10**12)]
    """Embodied emissions in gCO2e."""
    lifetime: Lifetime = timedelta(hours=5 * 8_760)
    """Time over which they are written off, from 1h to 99999h; five years unless set."""


class WorkloadVariantSpec(Struct):
    """A variant as the user describes it."""

    model: Text
    """Model that is served, as requests name it."""
    endpoint_selector: LabelSelector
    """Which pods (or endpoints of a file) are replicas of this variant."""
    scale_target_ref: ScaleTargetRef | None = None
    """What to scale; absent: nothing is scaled."""
    role: Role = Role.BOTH
    """Phases that the variant serves, as in the label `llm-d.ai/role`."""
    accelerator: Accelerator
    """The accelerators of one replica."""
    region_ref: RegionRef | None = None
    """Region of the variant; absent: that of the pod's label `heliotrope.io/region`, else of its node."""
    min_replicas: Replicas = 1
    """Fewest replicas."""
    max_replicas: Replicas | None = None
    """Most replicas; absent: Heliotrope does not change their number."""
    quality: Fraction | None = None
    """Quality of the answers from 0 to 1, a decimal string; absent: unknown, which fails every quality floor."""
    price_per_hour: Price | None = None
    """Price of one replica for an hour, a decimal string; absent: unknown."""
    currency: Currency = "USD"
    """ISO 4217 code of the price's currency."""
    engine: Engine | None = None
    """How long steps take and what they draw; absent: learned, and unknown until then."""
    energy_profile: Annotated[tuple[EnergyPoint, ...], Field(max_length=256), ListMap("phase", "sm_clock_mhz")] = ()
    """Measured energy per phase and SM clock, as `heliotrope calibrate` writes it."""
    clock_range: ClockRange | None = None
    """SM clocks that Heliotrope may set; absent: clocks are left alone."""
    watt_range: WattRange | None = None
    """Power limits that Heliotrope may set; absent: limits are left alone."""
    embodied_carbon: EmbodiedCarbon | None = None
    """Emissions of making the hardware; absent: unknown."""

    @rule(
        "!has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
        "minReplicas must not exceed maxReplicas",
        field="minReplicas",
    )
    def _ordered(self) -> bool:
        return self.max_replicas is None or self.min_replicas <= self.max_replicas

    @rule(
        "self.role == 'both' || self.energyProfile.all(p, p.phase == self.role)",
        "energyProfile holds a phase that the role does not serve",
        field="energyProfile",
    )
    def _profile_of_role(self) -> bool:
        return self.role is Role.BOTH or all(point.phase.value == self.role.value for point in self.energy_profile)


class ChosenPower(Struct):
    """Settings that the operator chose for the accelerators of a phase."""

    role: Role
    """Phase that they hold for; `both` for mixed engines."""
    enforcement: Enforcement | None = None
    """`Advise`: nothing puts them into effect, as the policy advises or its namespace is not granted power."""
    sm_clock_mhz: Megahertz | None = None
    """SM clock in MHz; absent: the device's own choice."""
    watts: Watts | None = None
    """Power limit of one accelerator in watts; absent: the device's default."""
    since: Time | None = None
    """When these settings were chosen."""
    reason: Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[A-Z][A-Za-z0-9]*$")] | None = None
    """Why, as one CamelCase word: `LeastEnergy`, `SloGuard`, `Held`, `LoadUnknown`, `OnlyForBudget`, `WithinBudget`,
    `PromiseAtRisk`, `BudgetInfeasible`."""


class ScaleDirection(StrEnum):
    """Which way a number of replicas went."""

    UP = "Up"
    DOWN = "Down"


class ScalingMemory(Struct):
    """What one decision on replicas remembers for the next, so that a restart does not begin dwell times anew."""

    last_change: Time | None = None
    """When the wanted number last changed."""
    last_direction: ScaleDirection | None = None
    """Which way it went then."""
    lower_since: Time | None = None
    """Since when every decision has asked for fewer replicas than there are; absent: the last one did not."""
    lower_peak: Replicas | None = None
    """Most replicas that any of these decisions asked for."""


class WorkloadVariantStatus(Struct):
    """A variant as the operator sees it. It changes on transitions only."""

    observed_generation: ObservedGeneration | None = None
    """The `metadata.generation` that this status answers."""
    conditions: Conditions = ()
    """`TargetResolved`: the scale target exists. `RegionResolved`: the region's profile exists. `Conflicted`: something
    else decides on the target's replicas. `Scaled`: what is wanted of its replicas is in effect, or why it is not."""
    desired_replicas: Replicas | None = None
    """Replicas that the operator wants; absent: it has no opinion."""
    scaling: ScalingMemory | None = None
    """What is remembered of decisions on replicas; absent: none was made."""
    current_replicas: Replicas | None = None
    """Replicas that the scale target has."""
    active_engines: Replicas | None = None
    """Replicas that are awake and serve."""
    chosen_power: Annotated[tuple[ChosenPower, ...], Field(max_length=3), ListMap("role")] = ()
    """Clocks and watts that the operator chose."""


class WorkloadVariant(Resource):
    """One way to serve a model: where it runs, how it scales, what it draws and what it may be set to."""

    definition: ClassVar[Definition] = Definition(
        plural="workloadvariants",
        short_name="wv",
        namespaced=True,
        columns=(
            Column("Model", ".spec.model", "Model that is served."),
            Column("Role", ".spec.role", "Phases that the variant serves."),
            Column("Region", ".spec.regionRef.name", "Region of the variant."),
            Column("Accelerator", ".spec.accelerator.type", "Type of accelerator."),
            Column("Desired", ".status.desiredReplicas", "Replicas that the operator wants.", type="integer"),
            Column("Current", ".status.currentReplicas", "Replicas that there are.", type="integer"),
            Column("Active", ".status.activeEngines", "Replicas that are awake.", type="integer"),
            Column(
                "Resolved",
                '.status.conditions[?(@.type=="TargetResolved")].status',
                "Whether the scale target exists.",
            ),
            Column("Min", ".spec.minReplicas", "Fewest replicas.", type="integer", priority=1),
            Column("Max", ".spec.maxReplicas", "Most replicas.", type="integer", priority=1),
            AGE,
        ),
    )

    kind: Literal["WorkloadVariant"] = "WorkloadVariant"
    spec: WorkloadVariantSpec
    """What the user states about the variant."""
    status: WorkloadVariantStatus | None = None
    """What the operator knows and wants."""
