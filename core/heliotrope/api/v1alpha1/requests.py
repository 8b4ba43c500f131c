"""What a CarbonPolicy says of single requests: their classes, what they may change, and the power they need left."""

from datetime import timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from heliotrope.api.lists import ListSet
from heliotrope.api.struct import Struct, rule
from heliotrope.api.v1alpha1.common import Name, ShortDuration
from heliotrope.api.v1alpha1.objective import Objective, Slo

ClassName = Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
Priority = Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]


class RequestClass(Struct):
    """Requests that are served by settings of their own.

    A request belongs to the class that it names in the header `x-heliotrope-class`, else to the first that lists its
    InferenceObjective or whose range holds its priority.
    """

    name: ClassName
    """Name of the class, unique in the list, for instance `batch`."""
    inference_objectives: Annotated[tuple[Name, ...], Field(max_length=32), ListSet()] = ()
    """Names of InferenceObjectives, as requests state them in `x-llm-d-inference-objective`."""
    min_priority: Priority | None = None
    """Lowest priority of the class, of the header `x-heliotrope-priority` or of the InferenceObjective; absent with
    `maxPriority` absent: priority counts for nothing."""
    max_priority: Priority | None = None
    """Highest priority of the class. llm-d sheds what is below 0."""
    slo: Slo | None = None
    """The promise of the class; absent: the policy's."""
    objective: Objective | None = None
    """The objective of the class, which replaces the policy's as a whole; absent: the policy's."""
    answers_demand: bool = True
    """Whether the objective of a demand-response event takes the place of this class's; false keeps interactive
    requests as they are."""

    @rule(
        "!has(self.minPriority) || !has(self.maxPriority) || self.minPriority <= self.maxPriority",
        "minPriority must not exceed maxPriority",
        field="minPriority",
    )
    def _ordered(self) -> bool:
        return self.min_priority is None or self.max_priority is None or self.min_priority <= self.max_priority


class Override(StrEnum):
    """Something that a request may change by header."""

    SLO = "Slo"
    OBJECTIVE = "Objective"
    REGIONS = "Regions"
    DEADLINE = "Deadline"


class Overrides(Struct):
    """What a request may change by header. What it may not is left out and named in `x-heliotrope-refused`."""

    allowed: Annotated[tuple[Override, ...], Field(max_length=4), ListSet()] = (Override.SLO,)
    """`Slo`: `x-llm-d-slo-ttft-ms` and `x-llm-d-slo-tpot-ms`, within the bounds below. `Objective`:
    `x-heliotrope-objective`, an order such as `energy,latency` or weights such as `carbon=2,latency=1`. `Regions`:
    `x-heliotrope-regions`, which can only narrow the allowed regions. `Deadline`: `x-heliotrope-deadline`, until when
    the region tier may hold the request for a cleaner hour."""
    shortest_ttft: ShortDuration = timedelta(milliseconds=1)
    """Shortest time to first token that a request may ask for, from 1ms to 1h."""
    longest_ttft: ShortDuration = timedelta(hours=1)
    """Longest time to first token that a request may ask for, from 1ms to 1h."""
    shortest_tpot: ShortDuration = timedelta(milliseconds=1)
    """Shortest time per output token that a request may ask for, from 1ms to 1h."""
    longest_tpot: ShortDuration = timedelta(hours=1)
    """Longest time per output token that a request may ask for, from 1ms to 1h."""

    @rule(
        "duration(self.shortestTtft) <= duration(self.longestTtft)",
        "shortestTtft must not exceed longestTtft",
        field="shortestTtft",
    )
    def _ttft_ordered(self) -> bool:
        return self.shortest_ttft <= self.longest_ttft

    @rule(
        "duration(self.shortestTpot) <= duration(self.longestTpot)",
        "shortestTpot must not exceed longestTpot",
        field="shortestTpot",
    )
    def _tpot_ordered(self) -> bool:
        return self.shortest_tpot <= self.longest_tpot


class PowerHeadroom(Struct):
    """Power that an endpoint must have left.

    One that does not tell what it draws is not ruled out. The constraint yields where no other endpoint keeps the SLO.
    """

    least_watts: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Least watts left under the power limits of all accelerators of the endpoint together. The limits are those that
    its metrics tell, else those of its WorkloadVariant."""
    avoid_throttled: bool = True
    """Rules out endpoints with an accelerator that is slowed down by its power cap, heat or a power brake."""
