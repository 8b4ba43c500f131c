"""The scenario file: what there is, who asks, which policies are compared."""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import AwareDatetime, Field, model_validator

from heliotrope.place.policy import CapacityUnit, Fallback
from heliotrope_sim.scenario.base import Count, Name, NonNegative, Percent, Slo, Strict
from heliotrope_sim.scenario.places import DecisionTime, Polls, Region, Schedulers, Site
from heliotrope_sim.scenario.requests import Workload

MOST_POINTS = 1_000
"""Combinations of a sweep."""


class Gaps(StrEnum):
    """What happens where a carbon series has no value at a time of the run."""

    REFUSE = "refuse"
    """An error that names file and line."""
    UNKNOWN = "unknown"
    """Carbon drops out of decisions then, as in production; grams of those hours are not known."""
    HOLD = "hold"
    """The last value before holds on."""


class Policy(Strict):
    """One arm: a CarbonPolicy, a scheduler, or a CarbonPolicy with some settings replaced."""

    name: Name
    file: str | None = None
    """A CarbonPolicy as it is applied in production, relative to the scenario. It is simulated as if enforced."""
    resource: Name | None = None
    """Its name, where the file holds several."""
    scheduler: Name | None = None
    """RoundRobin, LeastLoaded, LowestIntensity, SoftMultiplier, CleanestFirst, Greedy, HourlyLP, ILP, IterativeILP or
    Facility; absent: the file's."""
    slo: Slo | None = None
    """What this arm aims at; what is judged is the scenario's `slo`."""
    allowed_regions: tuple[Name, ...] | None = None
    largest_share_percent: Annotated[int, Field(ge=1, le=100)] | None = None
    window_seconds: NonNegative | None = None
    """0: every request is decided when it comes. By default the file's, else 0.1."""
    window_requests: Count | None = None
    """Closes a window early. By default the file's, else 300."""
    latency_weight: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    """α of Greedy: 0 carbon alone, 1 latency alone."""
    carbon_weight: NonNegative | None = None
    """w of SoftMultiplier."""
    cleanest_share_percent: Percent | None = None
    """Most of a window's load that CleanestFirst gives one region."""
    standard_deviations: NonNegative | None = None
    """Room that a latency estimate leaves to its SLO; by default 3 with a file, as in production, else 0."""
    capacity_unit: CapacityUnit | None = None
    """Requests or Tokens."""
    fallback: Fallback | None = None
    """LeastLate or RoundRobin: where a request goes that no region serves within its SLO."""
    sees_window: bool = True
    """Whether Greedy sees the requests before one in its window; false: as in the paper."""
    projection: bool | None = None
    """Replaces the scenario's."""
    solver_nodes: Count | None = None
    """Replaces the scenario's."""

    @model_validator(mode="after")
    def _has_a_scheduler(self) -> Self:
        if self.file is None and self.scheduler is None:
            raise ValueError("set file, scheduler or both")
        if self.file is None and self.resource is not None:
            raise ValueError("resource is a name in file; set file")
        return self


class Scenario(Strict):
    """A what-if study. All paths are relative to the scenario's folder."""

    name: Name
    start: AwareDatetime = datetime(2022, 6, 1, tzinfo=UTC)
    """When the run begins, RFC 3339 with an offset: which hours of the carbon series it sees."""
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 7
    """Of everything that is drawn."""
    region_files: tuple[str, ...] = ()
    """Files with RegionProfiles as they are applied in production; sources `static` and `file` are simulated."""
    regions: tuple[Region, ...] = ()
    sites: Annotated[tuple[Site, ...], Field(min_length=1, max_length=1_000)]
    schedulers: Schedulers = Schedulers()
    polls: Polls = Polls()
    projection: bool = True
    """Schedulers project what they sent since the last poll on what they polled, and what their peers may have sent."""
    decision_time: DecisionTime = DecisionTime()
    solver_nodes: Count = 400
    """Nodes after which a solver gives its best so far. A wall clock would make runs depend on the machine."""
    carbon_step_seconds: Annotated[float, Field(ge=1.0, le=86_400.0)] = 3600.0
    """Energy is multiplied by the mean intensity of steps of this length: 3600 for hourly series, 300 for five-minute
    ones."""
    gaps: Gaps = Gaps.REFUSE
    policies: Annotated[tuple[Policy, ...], Field(min_length=1, max_length=64)]
    baseline: Name | None = None
    """Name of the policy that savings are relative to; absent: the first."""
    slo: Slo | None = None
    """What is judged for every policy alike; absent: the promise of the first policy that has a file."""
    workload: Workload
    warm_up_seconds: NonNegative = 0.0
    """Requests that arrive before are left out of latencies and violations; energy and grams are of the whole run."""
    sweep: Annotated[dict[str, Annotated[tuple[Any, ...], Field(min_length=1)]], Field(max_length=6)] = Field(
        default_factory=dict
    )
    """Values by key: `workload.rate_per_second`, `policies.NAME.window_seconds`, `sites.NAME.nodes`, `seed`, … Every
    combination is run with every policy; seeds are averaged over."""

    @model_validator(mode="after")
    def _names(self) -> Self:
        for what, names in (
            ("regions", [each.name for each in self.regions]),
            ("policies", [each.name for each in self.policies]),
            ("workload.classes", [each.name for each in self.workload.classes]),
        ):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"{what}: names must be unique; {', '.join(twice)} occurs more than once")
        if self.baseline is not None and self.baseline not in [each.name for each in self.policies]:
            raise ValueError(f"baseline: {self.baseline!r} is none of the policies")
        return self

    @property
    def baseline_name(self) -> str:
        """Of the policy that others are compared with."""
        return self.policies[0].name if self.baseline is None else self.baseline
