"""What fleet allocation looks at: frozen facts of variants, regions and the groups that share a demand.

None is unknown, everywhere and never zero. Rates are per second, powers watts of a whole replica (all its
accelerators). Replicas are replicas: pods of a Deployment, groups of a LeaderWorkerSet. Only quotas count accelerators.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from heliotrope.api.v1alpha1.common import Role
from heliotrope.api.v1alpha1.objective import Objective
from heliotrope.carbon.signal import EmissionFactor, SignalType


class Direction(StrEnum):
    """Which way a number of replicas went."""

    UP = "Up"
    DOWN = "Down"


@dataclass(frozen=True, slots=True)
class ScalingState:
    """What must be remembered of a variant from decision to decision; small enough for a status.

    Empty for a variant that was never scaled, and after a loss: then only the dwell starts over.
    """

    last_change_unix_s: float | None = None
    """When the wanted number last changed."""
    last_direction: Direction | None = None
    """Which way it went then."""
    lower_since_unix_s: float | None = None
    """Since when each decision has asked for fewer replicas than there are; None: the last one did not."""
    lower_peak: int | None = None
    """Most replicas that any of these decisions asked for."""


@dataclass(frozen=True, slots=True)
class Step:
    """How fast replicas move in one direction."""

    max_replicas: int
    """Most replicas that one decision moves."""
    dwell_seconds: float
    """Time since the last change before the next one in this direction."""


@dataclass(frozen=True, slots=True)
class ScalingRules:
    """What a CarbonPolicy says on scaling, as numbers."""

    objective: Objective = field(default_factory=Objective)
    embodied: bool = False
    """Whether the carbon of making the hardware counts."""
    scale_up: Step = Step(4, 0.0)
    scale_down: Step = Step(1, 300.0)
    scale_up_share: float = 0.85
    """Load, as a share of what the replicas carry within the SLO, above which replicas are added in any case."""
    scale_down_share: float = 0.70
    """Load that the remaining replicas may have at most after some are taken away."""
    interval_seconds: float = 30.0
    """Time between decisions: how many of them fall into a step of the horizon."""
    scale_to_zero: bool = False
    """Whether a group may be left without any replica."""
    warm_reserve_share: float = 0.0
    """Capacity kept above the expected load, as a share of it."""
    least_awake: int = 1
    """Replicas of the group that stay whatever the load; with `scale_to_zero` only while there is load."""
    allowed_regions: frozenset[str] | None = None
    """Regions where requests may be served; None: all. Unknown regions are out where it is set."""
    largest_region_share: float = 1.0
    """Most of the group's load that one region may carry. It yields where nothing else carries the load."""
    quality_floor: float | None = None
    """Least quality of a variant that carries load; an unknown quality is then out."""


@dataclass(frozen=True, slots=True)
class Mix:
    """The requests of a group on average, at the upper quantile of the rates."""

    prompt_tokens: float
    """Uncached tokens of a prompt."""
    output_tokens: float
    prompt_variation: float = 1.0
    """Standard deviation as a share of the mean; 1, as of an exponential distribution, where nobody knows."""
    output_variation: float = 1.0


@dataclass(frozen=True, slots=True)
class DemandForecast:
    """Requests that arrive per second in each step ahead; step 0 is now."""

    expected: tuple[float, ...]
    """Requests per second, the middle of what is expected: what energy and carbon are counted for."""
    upper: tuple[float, ...]
    """Requests per second, the upper quantile: what capacity must carry. Nowhere below `expected`."""
    mix: Mix | None
    """None: no request was seen yet."""
    burst: bool = False
    """Whether arrivals are now above what the forecast allowed for; `upper` already follows them."""


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A model of a pool: the variants that carry one demand between them."""

    name: str
    """Unique, for instance `namespace/pool/model`."""
    rules: ScalingRules
    demand: DemandForecast | None
    """None: unknown, so that every variant of the group holds its replicas."""
    held_requests: float = 0.0
    """Requests that wait because no engine is awake (the picker's hold queue)."""
    told_by: str | None = None
    """Who tells the demand, for people to read; None: the pool's own pickers."""
    keeps: bool = False
    """Whether nothing may be taken away, as the demand may be more than it seems: requests wait in engines' queues, or
    some engines are not measured."""


@dataclass(frozen=True, slots=True)
class ReplicaCounts:
    """The replicas of a variant now, in the units of its scale target."""

    wanted: int
    """`spec.replicas` of the target."""
    serving: int
    """Ready and awake."""
    starting: int = 0
    """Wanted, and not serving yet."""
    draining: int = 0
    """No longer wanted, and still holding their accelerators."""
    starting_ready_seconds: tuple[float, ...] = ()
    """When starting replicas are expected to serve, seconds from now; those without an entry take a whole start."""


@dataclass(frozen=True, slots=True)
class ReplicaCapacity:
    """What one replica carries within the SLO, for the group's mix of requests (`heliotrope.scale.throughput`)."""

    requests_per_second: float
    """Of a prefill or decode replica: requests whose phase it serves."""
    joules_per_request: float | None
    """IT energy above idle, the host's included where it grows with load."""
    idle_watts: float | None
    """Of all accelerators of the replica with nothing in flight."""
    host_watts: float | None
    """The replica's share of its node; None: unknown."""


@dataclass(frozen=True, slots=True)
class Load:
    """What is measured of a variant's replicas together; None where a replica's value is missing."""

    requests_per_second: float | None = None
    """Requests that the variant was sent."""
    waiting_requests: float | None = None
    """In the engines' queues."""
    running_requests: float | None = None
    kv_usage: float | None = None
    """Share of the KV memory in use, the mean of the replicas."""


@dataclass(frozen=True, slots=True)
class VariantFacts:
    """A variant in its region."""

    name: str
    """Unique, `namespace/name`."""
    group: str
    """Name of its `GroupFacts`."""
    region: str | None
    """Name of its `RegionFacts`; None: unknown."""
    role: Role
    accelerator_type: str
    accelerators_per_replica: int
    min_replicas: int
    max_replicas: int | None
    """None: its number is left alone, and counts for the others."""
    replicas: ReplicaCounts | None
    """None: unknown; its number is left alone, and its group holds."""
    capacity: ReplicaCapacity | None
    """None: unknown; its number is left alone."""
    load: Load = field(default_factory=Load)
    price_per_hour: float | None = None
    """Of one replica."""
    currency: str = "USD"
    embodied_grams_per_hour: float | None = None
    """Of one replica."""
    quality: float | None = None
    start_seconds: float = 120.0
    """From the wish for a replica until it serves."""
    drain_seconds: float = 60.0
    """From the wish for one less until its accelerators are free."""
    managed: bool = True
    """False: something else owns the number, or the namespace does not grant it; it counts for the others."""
    ceiling: int | None = None
    """Most replicas that a hub allows; None: no hub. A replica that the demand needs goes beyond it."""
    state: ScalingState = field(default_factory=ScalingState)


@dataclass(frozen=True, slots=True)
class RegionFacts:
    """A region as a place for replicas."""

    name: str
    intensity_g_per_kwh: tuple[float, ...] | None
    """Expected in each step, from a Fresh signal; None: not Fresh, so that carbon drops out for all."""
    signal: tuple[SignalType, EmissionFactor] | None = None
    """What the intensity means; carbon counts only where it means the same everywhere."""
    pue: float | None = None
    electricity_price_per_kwh: float | None = None
    currency: str = "USD"
    accelerators: Mapping[str, int] = field(default_factory=dict)
    """Accelerators by type, those of the variants and `foreign_accelerators` included; without an entry: unlimited."""
    foreign_accelerators: Mapping[str, int] = field(default_factory=dict)
    """Accelerators by type that something else than the variants of these facts has."""
    max_watts: float | None = None
    """IT power of all engines; None: no limit."""
    largest_share: float = 1.0
    """Most of a group's load that the region may carry."""


@dataclass(frozen=True, slots=True)
class FleetFacts:
    """Everything one plan is made from."""

    now_unix_s: float
    step_seconds: float
    """Length of a step of the horizon."""
    groups: tuple[GroupFacts, ...]
    regions: tuple[RegionFacts, ...]
    variants: tuple[VariantFacts, ...]
