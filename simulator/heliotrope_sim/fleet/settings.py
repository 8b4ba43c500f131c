"""How a run goes: who places requests, on what knowledge, and what engines are told to do meanwhile."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

from heliotrope.errors import InvalidInputError
from heliotrope.place.assignment import Assignment, Scheduler
from heliotrope.place.policy import PlacementPolicy, WorkLimit

if TYPE_CHECKING:
    from heliotrope_sim.fleet.view import FleetView, SiteEngines


SOLVER_NODES = 400
"""Of a window's search, where a policy limits seconds only: runs must not depend on the machine."""


class Depth(IntEnum):
    """How deep an engine sleeps; deeper draws less and takes longer to wake."""

    AWAKE = 0
    IDLE_CLOCK = 1
    """Awake, but at the lowest clock that the device has while nothing is in flight."""
    SLEEP = 2
    """Weights offloaded, the process alive: `EngineModel.sleep_watts`."""
    EXIT = 3
    """No process: `EngineModel.unloaded_watts`, or `sleep_watts` where that is unknown."""
    NODE_OFF = 4
    """Nothing; when all engines of a node are this deep, its host draws nothing either."""


@dataclass(frozen=True, slots=True)
class Command:
    """What some engines of a site are told. They finish what is in flight before they sleep."""

    site: int
    engines: Sequence[int]
    """Indices within the site, node by node."""
    depth: Depth | None = None
    """Go there; None: stay."""
    clock_mhz: int | None = None
    """Run at this SM clock from the next step on; None: no change."""


Controller = Callable[[float, "FleetView"], Sequence[Command]]
"""(seconds since the start, what there is) → what to tell engines; called every `RunSettings.control_seconds`."""


@dataclass(frozen=True, slots=True)
class Pick:
    """Where the endpoint tier sends a request; a transfer ends on the next whole millisecond."""

    site: int
    engine: int
    """Index within the site, node by node."""
    prefill: tuple[int, int] | None = None
    """Site and engine that prefill it, if they are others; its KV is transferred when that is done."""
    fetched_tokens: int = 0
    """Leading prompt tokens whose KV is fetched from somewhere before it is queued."""
    transfer_seconds: float = 0.0
    """Of that KV."""
    transfer_joules: float = 0.0


class Picker(Protocol):
    """The endpoint tier: which engine gets a request."""

    def __call__(self, request: int, seconds: float, sites: "Sequence[SiteEngines]") -> Pick | None:
        """Where a request (its index in the workload) goes at a time since the start; None: nowhere."""
        ...


@dataclass(frozen=True, slots=True)
class DecisionTime:
    """How long a decision takes: base + per request × n + per work × `Assignment.work`. Never the wall clock."""

    base_seconds: float = 0.0005
    seconds_per_request: float = 2e-6
    seconds_per_work: float = 2e-6
    limit_seconds: float = 0.25

    def seconds(self, requests: int, assignment: Assignment) -> float:
        """Of one window."""
        work = self.seconds_per_work * assignment.work
        return min(self.base_seconds + self.seconds_per_request * requests + work, self.limit_seconds)


@dataclass(frozen=True, slots=True)
class RunSettings:
    """One run."""

    scheduler: Scheduler | None = None
    """The region tier: assigns windows of requests to sites."""
    policy: PlacementPolicy = field(default_factory=PlacementPolicy)
    """Solvers stop by nodes alone: a limit of seconds is left out, and `SOLVER_NODES` holds where none is given."""
    window_seconds: float = 0.1
    """Longest time that a window stays open; 0: every request is decided when it comes."""
    window_requests: int = 300
    """A window closes early when it holds so many."""
    poll_seconds: float = 1.0
    staggered_polls: bool = False
    """Each site is polled at its own time of the period; else all at once."""
    project: bool = True
    """Between polls a scheduler projects its own dispatches on its snapshot (`heliotrope.place.projection`)."""
    peers: float | None = None
    """Requests that other schedulers are expected to send for each own one; None: one for each other scheduler."""
    decision_time: DecisionTime = field(default_factory=DecisionTime)
    forwards_wait: bool = True
    """A request that goes to another zone waits in the window of a scheduler there too."""
    start_unix_s: float = 0.0
    """When the run starts: which hours of the sites' carbon series it sees."""
    carbon_step_seconds: float = 3600.0
    """Energy is summed up and multiplied by intensity in intervals that end at multiples of this in Unix time."""
    picker: Picker | None = None
    """The endpoint tier. Without a scheduler every request gets an engine of any site when it arrives, without window
    or poll; with one, an engine of the site that it was sent to, when it gets there."""
    commands: Sequence[tuple[float, Command]] = ()
    """(seconds since the start, command)."""
    controller: Controller | None = None
    control_seconds: float = 10.0

    def __post_init__(self) -> None:
        """Periods are positive, and somebody decides."""
        if self.scheduler is None and self.picker is None:
            raise InvalidInputError("settings.scheduler", "a scheduler or a picker must decide")
        for name in ("poll_seconds", "carbon_step_seconds", "control_seconds"):
            if not getattr(self, name) > 0.0:
                raise InvalidInputError(f"settings.{name}", f"must be above 0, got {getattr(self, name)}")
        if not self.window_seconds >= 0.0:
            raise InvalidInputError("settings.window_seconds", f"must be 0 or more, got {self.window_seconds}")
        if self.window_requests < 1:
            raise InvalidInputError("settings.window_requests", f"must be at least 1, got {self.window_requests}")

    def simulated_policy(self) -> PlacementPolicy:
        """The policy with a limit that gives the same assignments on every machine."""
        nodes = self.policy.limit.nodes
        return replace(self.policy, limit=WorkLimit(seconds=None, nodes=SOLVER_NODES if nodes is None else nodes))
