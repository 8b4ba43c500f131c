"""What fleet allocation answers: a number per variant, why, and how sure the solver is."""

from dataclasses import dataclass
from enum import StrEnum

from heliotrope.scale.facts import ScalingState


class Reason(StrEnum):
    """What decided a variant's number: the last thing that bound it."""

    DEMAND_MET = "DemandMet"
    """The plan's own number: least of the objective that carries the demand."""
    MINIMUM = "Minimum"
    """`minReplicas`, or the least that must be awake."""
    MAXIMUM = "Maximum"
    """`maxReplicas`, though more would serve the demand better."""
    QUOTA = "Quota"
    """The region's accelerators of the type are used up."""
    REGION_WATTS = "RegionWatts"
    """The region's power is used up."""
    REGION_SHARE = "RegionShare"
    """The largest share of the load that one region may carry."""
    HUB_CEILING = "HubCeiling"
    """The ceiling that a hub published."""
    OBJECTIVE = "Objective"
    """Other variants carry the load with less of the objective (cleaner, less energy, cheaper)."""
    NOT_ALLOWED = "NotAllowed"
    """The policy keeps load away: region, or quality floor."""
    START_AHEAD = "StartAhead"
    """Started now because the forecast needs it by the time it serves."""
    CONSOLIDATION = "Consolidation"
    """Fewer would do on average, but the remaining ones would be loaded too high."""
    SATURATION = "Saturation"
    """The guard raised it, whatever the carbon."""
    WOKEN = "Woken"
    """Requests wait for a first engine."""
    STEP_LIMIT = "StepLimit"
    """On the way to the plan's number, one step at a time."""
    DWELL = "Dwell"
    """The plan's number waits until the last change is long enough ago."""
    DEMAND_UNKNOWN = "DemandUnknown"
    """Held: the demand is unknown."""
    METRICS_UNKNOWN = "MetricsUnknown"
    """Held: replicas or capacity are unknown."""
    UNSERVED = "Unserved"
    """Fewer would carry what is served, but requests wait in engines' queues, or not every engine is measured."""
    SLO_OUT_OF_REACH = "SloOutOfReach"
    """Held: no variant of the group keeps the SLO at any load, so that no number is known to be enough."""
    SOLVER_HELD = "SolverHeld"
    """Held: the solver failed or was late."""
    NOT_MANAGED = "NotManaged"
    """Left alone: no maximum, another owner, or not granted."""

    @property
    def held(self) -> bool:
        """Whether the number stands because something is unknown or failed."""
        return self in (
            Reason.DEMAND_UNKNOWN,
            Reason.METRICS_UNKNOWN,
            Reason.SLO_OUT_OF_REACH,
            Reason.SOLVER_HELD,
        )


class SolverOutcome(StrEnum):
    """How a program ended."""

    OPTIMAL = "Optimal"
    """Proven within the tolerance."""
    FEASIBLE = "Feasible"
    """The best found within the limit; `Certificate.gap` says how far from the bound at most."""
    FAILED = "Failed"
    """Nothing usable; previous numbers hold."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """What is proven of a plan's objective."""

    outcome: SolverOutcome
    gap: float | None
    """Share of the objective by which another plan may at most be better; None: unknown."""
    parts: int
    """Independent programs that the fleet fell into."""
    nodes: int
    """Branch-and-bound nodes of all of them."""
    failed_groups: tuple[str, ...] = ()
    """Groups whose program failed or was late."""


@dataclass(frozen=True, slots=True)
class VariantPlan:
    """The answer for one variant."""

    name: str
    desired: int | None
    """Replicas to ask for now; None: replicas are unknown, so that nothing is asked for."""
    optimal: int | None
    """What the program would have by itself, before guard, steps and dwell; None: it has no opinion."""
    reason: Reason
    explanation: str
    """One sentence, at most 300 characters."""
    state: ScalingState
    """To be remembered."""
    ahead: tuple[int, ...] = ()
    """Replicas that the program expects to ask for in each step; empty without a program."""
    load_requests_per_second: float | None = None
    """What it is meant to carry of the upper demand once what is asked for serves."""


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """The answer for one group."""

    name: str
    demand_requests_per_second: float | None
    """The upper quantile now."""
    capacity_requests_per_second: float | None
    """What the desired replicas carry within the SLO once they serve."""
    load_share: float | None
    """Measured load of what serves, as a share of what that carries within the SLO; may exceed 1."""
    unmet_requests_per_second: float
    """Part of the demand that no plan within the limits carries."""
    terms: tuple[str, ...]
    """Terms of the objective that counted, in order."""
    dropped: tuple[str, ...]
    """Terms that did not count, each with its reason: `carbon: no Fresh signal in fr`."""


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """The answer for the fleet; variants and groups by name."""

    variants: tuple[VariantPlan, ...]
    groups: tuple[GroupPlan, ...]
    certificate: Certificate
